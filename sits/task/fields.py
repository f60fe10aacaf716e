"""Train on own labels: cross-validated learners, the best of them or their blend in one model file."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Literal

import geopandas as gpd
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from geomix.checkpoint import Card, Source, save_model
from geomix.config import Config
from geomix.errors import InputError
from geomix.files import make_folder, new_file
from geomix.learn.folds import block_size, blocks, deal, draw_folds
from geomix.learn.metrics import confusion, scores
from geomix.learn.report import Report
from geomix.progress import progress
from geomix.report import table
from sits.data.inputs import Inputs, days_of
from sits.data.own import OwnData
from sits.model.fields import FieldsConfig, FieldsModel, Steps
from sits.task.learners import LEARNERS, Fitted, Numbers, Rows, Shares, able, probe_of, rows_of

log = logging.getLogger(__name__)

Choice = Literal["auto", "forest", "trees", "base", "blend"]

_SURE = 0.8
"""A shape that cross-validation gives to another class with this probability is a suspect."""
_WEIGHTS = 4
"""Weights of a blend are multiples of one through this."""
_LEVELS: dict[str | None, Literal["L1C", "L2A", "any"]] = {"L1C": "L1C", "L2A": "L2A"}


class FieldsTraining(Config):
    """How a model of own fields is trained."""

    name: str = "fields"
    """Name of the model that comes out."""
    learner: Choice = "auto"
    """`auto` takes what cross-validation says is best, one learner or their blend."""
    folds: int = Field(5, ge=2)
    seed: int = Field(0, ge=0)
    step_days: float = Field(365.25 / 12, gt=0)
    """Length of the steps of the season, days."""
    season_start: str | None = None
    """Month and day from which days count; None for the middle of the time
    between the last image of a season and the first of the next."""


@dataclass(frozen=True)
class CrossValidation:
    """What each learner made of shapes that it had not seen."""

    fold: Numbers
    """Fold of each shape, [U]."""
    block: float
    """Side of the blocks of space, metres; 0 where each shape stands alone."""
    shares: dict[str, Shares]
    """Learner -> probabilities of the rows, each by the model that had not seen its fold, [N, K]."""


def train_fields(data: OwnData, config: FieldsTraining, folder: Path, overwrite: bool = True) -> Path:
    """Cross-validate, learn from everything, and write the model with its card and report.

    Args:
        data: labelled pixels.
        config: how to train.
        folder: gets `<name>.safetensors`, `report.txt`, `report.json`, `report.csv`, `folds.png`, and
            `suspects.gpkg` where cross-validation contradicts labels with confidence.
        overwrite: whether an existing model may be replaced.

    Returns:
        The model file.

    Raises:
        InputError: if there are fewer shapes or blocks than folds.
        OutputExistsError: if the model exists and may not be replaced.
    """
    make_folder(folder)
    inputs = _inputs(data, config)
    steps = _steps(data, inputs, config.step_days)
    rows = gather(data, inputs, steps)
    names = able(rows) if config.learner in ("auto", "blend") else [config.learner]
    checked = cross_validate(rows, data, names, config)
    weights, table_of = choose(rows, checked, config.learner)
    chosen = {name: weight for name, weight in weights.items() if weight > 0}
    report = Report(tuple(one.name for one in data.classes), _matrix(rows, _blend(checked.shares, weights)))
    _write_reports(report, table_of, chosen, checked, data, folder)
    _write_suspects(rows, _blend(checked.shares, weights), data, folder)
    fitted = {name: LEARNERS[name](rows, config.seed) for name in chosen}
    model = FieldsModel(
        FieldsConfig(
            bands=len(data.bands),
            classes=len(data.classes),
            steps=steps,
            learners=tuple(fitted[name].describe(weight) for name, weight in chosen.items()),
        ),
        [one.module for one in fitted.values()],
    )
    file = folder / f"{config.name}.safetensors"
    card = _card(model.config, data, inputs, config, report, table_of, checked)
    save_model(model.eval(), card, file, overwrite)
    return file


def gather(data: OwnData, inputs: Inputs, steps: Steps) -> Rows:
    """The features of all labelled pixels, in the order of the shapes."""
    mean, std = (np.asarray(part, dtype=np.float32) for part in (inputs.mean, inputs.std))
    probe = probe_of(inputs, steps, len(data.classes))
    parts, seen_by = [], []
    for one in data.sets:
        normal = np.where(one.valid[..., None], (one.values - mean) / std, np.float32(0)).astype(np.float32)
        days = days_of(one.dates, inputs)
        parts.append(rows_of(normal, one.valid, days, steps))
        series = (torch.from_numpy(part) for part in (normal, days, one.valid))
        seen_by.append(
            np.zeros((len(normal), 0), np.float32) if probe is None else probe.embed(*series).numpy()
        )
    found, embeddings, labels, units = (
        np.concatenate(part)
        for part in (parts, seen_by, [one.labels for one in data.sets], [one.units for one in data.sets])
    )
    # Pixels that no date shows teach nothing.
    seen = np.isfinite(found).any(axis=1)
    order = np.argsort(units, kind="stable")
    return Rows(found, labels, units, len(data.classes), embeddings, probe).take(order[seen[order]])


def cross_validate(
    rows: Rows, data: OwnData, names: Sequence[str], config: FieldsTraining
) -> CrossValidation:
    """Ask each learner for the shapes of each fold when it has learned from those of the others.

    Raises:
        InputError: if there are fewer shapes or blocks than folds.
    """
    block = block_size(data.labels, data.places, config.folds)
    fold = deal(data.labels, blocks(data.places, block), config.folds, config.seed)
    shares = {name: np.zeros((len(rows), rows.classes), dtype=np.float32) for name in names}
    of_row = fold[rows.units]
    jobs = list(product(names, range(config.folds)))
    for name, number in progress(jobs, "Folds", len(jobs)):
        tested = of_row == number
        if tested.any():
            fitted: Fitted = LEARNERS[name](rows.take(~tested), config.seed)
            shares[name][tested] = fitted.probabilities(rows.take(tested))
    return CrossValidation(fold, block, shares)


def choose(
    rows: Rows, checked: CrossValidation, choice: Choice
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The weights of the learners, and the table that says why.

    A blend gets the weights with the least log loss over the rows that each learner had not seen. `auto`
    takes the best macro F1, and of equals the simplest.

    Returns:
        Learner -> weight; and for each learner and the blend its name, OA and macro F1, with their spread
        over the folds.
    """
    names = [*checked.shares]
    candidates = {name: {name: 1.0} for name in names}
    if len(names) > 1:
        candidates["blend"] = _best_blend(rows, checked.shares)
    lines: list[dict[str, Any]] = []
    for name, weights in candidates.items():
        found = _blend(checked.shares, weights)
        whole = scores(_matrix(rows, found))
        folds = [
            scores(_matrix(rows.take(inside), found[inside]))
            for number in np.unique(checked.fold)
            if (inside := checked.fold[rows.units] == number).any()
        ]
        lines.append(
            {
                "learner": name,
                "weights": weights,
                **{key: whole[key] for key in ("oa", "macro_f1", "miou")},
                **{f"{key}_spread": float(np.std([one[key] for one in folds])) for key in ("oa", "macro_f1")},
            }
        )
    best = max(lines, key=lambda line: float(line["macro_f1"]))["learner"]
    taken = best if choice == "auto" else choice
    return candidates[taken], lines


def _best_blend(rows: Rows, shares: Mapping[str, Shares]) -> dict[str, float]:
    best, least = dict.fromkeys(shares, 1.0), np.inf
    for parts in product(range(_WEIGHTS + 1), repeat=len(shares)):
        if sum(parts) != _WEIGHTS:
            continue
        weights = {name: part / _WEIGHTS for name, part in zip(shares, parts, strict=True)}
        found = _blend(shares, weights)[np.arange(len(rows)), rows.labels]
        loss = -float(np.log(np.maximum(found, 1e-4)).mean())
        if loss < least:
            best, least = weights, loss
    return best


def _blend(shares: Mapping[str, Shares], weights: Mapping[str, float]) -> Shares:
    total: Shares = np.zeros_like(next(iter(shares.values())))
    for name, weight in weights.items():
        total += np.float32(weight) * shares[name]
    return total


def _matrix(rows: Rows, shares: Shares) -> torch.Tensor:
    return confusion(torch.from_numpy(shares.argmax(1)), torch.from_numpy(rows.labels), rows.classes)


def _inputs(data: OwnData, config: FieldsTraining) -> Inputs:
    seen = np.concatenate([one.values[one.valid] for one in data.sets]).astype(np.float64)
    if not len(seen):
        raise InputError("no date shows any labelled pixel")
    std = np.sqrt(np.maximum(seen.var(axis=0), 1e-12))
    return Inputs(
        bands=data.bands,
        level=_LEVELS.get(data.level, "any"),
        mean=tuple(seen.mean(axis=0).tolist()),
        std=tuple(std.tolist()),
        season_start=config.season_start or season_of([one.dates for one in data.sets]),
    )


def season_of(series: Sequence[Sequence[date]]) -> str:
    """Month and day in the middle of the part of the year that the longest series leaves out.

    So a first image some weeks earlier or later in another year begins the same season.
    """
    longest = max(series, key=lambda dates: (dates[-1] - dates[0], dates[0]))
    rest = max(0, 365 - (longest[-1] - longest[0]).days)
    start = longest[0] - timedelta(days=rest // 2)
    # Every year has the day.
    return "02-28" if (start.month, start.day) == (2, 29) else f"{start:%m-%d}"


def _steps(data: OwnData, inputs: Inputs, length: float) -> Steps:
    """The steps from the first to the last that any date falls into."""
    places = [int(day // length) for one in data.sets for day in days_of(one.dates, inputs)]
    return Steps(first=min(places), count=max(places) - min(places) + 1, days=length)


def _card(
    model: FieldsConfig,
    data: OwnData,
    inputs: Inputs,
    config: FieldsTraining,
    report: Report,
    lines: list[dict[str, Any]],
    checked: CrossValidation,
) -> Card:
    return Card(
        domain="sits",
        name=config.name,
        model=model.model_dump(mode="json"),
        classes=data.classes,
        inputs={**inputs.model_dump(mode="json"), "patch": 1},
        data=(
            Source(
                source="own labels",
                licence="that of their owner",
                split={"kind": "fields", "shapes": list(data.keys), "training": config.model_dump()},
            ),
        ),
        metrics={
            "cross-validation": {
                **report.figures(),
                "folds": config.folds,
                "block_metres": checked.block,
                "learners": {line["learner"]: {**line} for line in lines},
                "note": "each figure is of shapes that the learner had not seen; the model learned from all",
            }
        },
        limits={
            "dates": [data.dates[0].isoformat(), data.dates[-1].isoformat()],
            "bounds": [round(side, 3) for side in data.bounds],
            **({"level": data.level} if data.level else {}),
        },
    )


def _write_reports(
    report: Report,
    lines: list[dict[str, Any]],
    chosen: Mapping[str, float],
    checked: CrossValidation,
    data: OwnData,
    folder: Path,
) -> None:
    columns = ("learner", "oa", "spread", "macro_f1", "spread", "miou")
    keys = ("learner", "oa", "oa_spread", "macro_f1", "macro_f1_spread", "miou")
    taken = " + ".join(f"{weight:.2g} {name}" for name, weight in chosen.items())
    text = "\n\n".join(
        (
            f"Cross-validated over {int(checked.fold.max()) + 1} folds of {len(data.keys)} shapes in blocks "
            f"of {checked.block:.0f} m; the model learns from all. Taken: {taken}",
            table(columns, [tuple(line[key] for key in keys) for line in lines]),
            report.text(),
        )
    )
    for name, content in (("txt", text), ("json", report.json()), ("csv", report.csv())):
        with new_file(folder / f"report.{name}", overwrite=True) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")
    draw_folds(data.places, checked.fold, folder / "folds.png", checked.block, overwrite=True)
    for line in report.warnings():
        log.warning("%s", line)
    log.info("%s", text)


def _write_suspects(rows: Rows, shares: Shares, data: OwnData, folder: Path) -> None:
    """Shapes that cross-validation gives to another class with confidence, to be checked in QGIS."""
    file = folder / "suspects.gpkg"
    count = np.bincount(rows.units, minlength=len(data.keys))
    mean = np.zeros((len(data.keys), rows.classes))
    np.add.at(mean, rows.units, shares)
    mean /= np.maximum(count, 1)[:, None]
    found: NDArray[np.int64] = mean.argmax(axis=1)
    places = np.flatnonzero((count > 0) & (found != data.labels) & (mean.max(axis=1) >= _SURE))
    file.unlink(missing_ok=True)
    if not len(places):
        return
    names = [one.name for one in data.classes]
    columns = {
        "label": [names[data.labels[place]] for place in places],
        "found": [names[found[place]] for place in places],
        "probability": mean.max(axis=1)[places].round(3),
    }
    frame = gpd.GeoDataFrame(columns, geometry=list(data.shapes[places]), crs="EPSG:4326")
    with new_file(file, overwrite=True) as temporary:
        frame.to_file(temporary, layer="suspects", engine="pyogrio", index=False)
    log.warning("%s: %d shapes look like another class; check them", file, len(places))
