"""Accuracy on two small real data sets, several splits and seeds, beside a random forest and a TSViT.

The data sets are one scene with a land-cover register and some hundred parcels with declared crops. They are
so small that one split says little: each method is run on every split and seed, and the spread is told.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geomix.config import load_config
from geomix.encoder import parameters
from geomix.learn.metrics import confusion, scores
from geomix.learn.study import kept, train_once
from sits.data import IGNORE, LabelledSeries, SitsSplits, open_splits
from sits.predict import Scorer
from sits.task import SitsConfig, SitsExperiment, count, month_ends

log = logging.getLogger(__name__)

Study = Literal["eolearn", "parcels"]
SIDES = ("top", "bottom", "left", "right")
ENOUGH = 100
"""Classes with fewer test pixels than this do not enter the mean IoU of the scene: one field decides them."""

METHODS = ("TSViPoM", "TSViT", "random forest")

MIXERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pom": ("temporal", {"name": "pom"}),
    "attention": ("temporal", {"name": "attention", "heads": 4}),
    "poly_attention": ("temporal", {"name": "poly_attention", "heads": 4, "degree": 3}),
    "tree_attention": ("temporal", {"name": "tree_attention", "heads": 4}),
    "concentration": ("spatial", {"name": "concentration"}),
}
"""Mixers that can be studied like methods: the encoder that each one is put into; the rest stays as it is."""


@dataclass(frozen=True)
class Result:
    """What one method made of one split with one seed."""

    method: str
    split: str
    seed: int
    matrix: list[list[int]]
    """Confusion of the test part, truth in rows."""
    by_month: dict[str, list[list[int]]] | None = None
    """The same from the dates up to the end of each month."""
    parameters: int | None = None


@dataclass(frozen=True)
class Line:
    """One line of a table: means over seeds, and splits where they are pooled."""

    split: str
    method: str
    runs: int
    oa: float
    oa_spread: float
    other: float
    other_spread: float


def study(
    name: Study, data: str | Path, work: str | Path, seeds: int = 3, methods: Sequence[str] = METHODS
) -> list[Result]:
    """Run all methods on all splits and seeds; what is in the work folder already is not run again.

    Args:
        name: `eolearn`, the scene, or `parcels`.
        data: folder of the data.
        work: folder for results and runs in progress.
        seeds: how many seeds, from 0.
        methods: which of `METHODS`.
    """
    base = load_config(name, "sits", SitsConfig)
    results = []
    for split, config in _splits(base):
        for seed in range(seeds):
            for method in methods:
                place = Path(work) / name / f"{method.replace(' ', '-')}-{split}-{seed}"
                run = partial(_run, config, method, split, seed, Path(data), place)
                results.append(Result(**kept(place, lambda run=run: asdict(run()))))  # type: ignore[misc]
                log.info("%s, %s, seed %d: %s", split, method, seed, _words(results[-1]))
    return results


def tsvit_of(config: SitsConfig) -> SitsConfig:
    """The same experiment with attention in place of PoM and about the same number of parameters.

    PoM has 6 dim^2 weights and attention 4 dim^2, so the MLPs become one dim wider. Attention has no local
    window: its spatial context is a tile of the size of a training crop.
    """
    model = config.model
    changes: dict[str, Any] = {}
    for name, stage in (("temporal", model.temporal), ("spatial", model.spatial)):
        changes[f"model.{name}.mixer"] = {"name": "attention", "heads": 4}
        changes[f"model.{name}.mlp_ratio"] = stage.mlp_ratio + 1
    if model.spatial.depth:
        changes |= _in_tiles(config) | {"model.place_code": "sincos"}
    return config.changed(changes)


def mixer_of(config: SitsConfig, name: str) -> SitsConfig:
    """The same experiment with one of `MIXERS` in one of the encoders.

    Concentration knows one size of grid: the image is cut into tiles of the size of a training crop.
    """
    stage, mixer = MIXERS[name]
    changes: dict[str, Any] = {}
    if name == "concentration":
        side = config.crop // config.model.patch
        mixer = mixer | {"shape": [side, side]}
        changes = _in_tiles(config)
    return config.changed({**changes, f"model.{stage}.mixer": mixer})


def _in_tiles(config: SitsConfig) -> dict[str, Any]:
    """What cuts images into tiles of the size of a training crop."""
    return {"model.window": None, "model.window_metres": None, "model.tile": config.crop}


def table(name: Study, results: Sequence[Result]) -> list[Line]:
    """Means and spreads: OA and mean IoU of each split and of all, or OA and macro F1 of the parcels."""
    methods = list(dict.fromkeys(one.method for one in results))
    if name == "parcels":
        return [_line("5 folds", method, _pooled(results, method), parcels=True) for method in methods]
    splits = list(dict.fromkeys(one.split for one in results))
    lines = []
    for split in [*splits, "all"]:
        for method in methods:
            matrices = [
                torch.tensor(one.matrix)
                for one in results
                if one.method == method and split in (one.split, "all")
            ]
            lines.append(_line(split, method, matrices, parcels=False))
    return lines


def months(results: Sequence[Result]) -> list[tuple[str, str, float, float]]:
    """Month, method, OA and macro F1 of the parcels from what is known at its end, means over seeds."""
    lines = []
    for month in results[0].by_month or {}:
        for method in dict.fromkeys(one.method for one in results):
            found = [scores(matrix) for matrix in _pooled(results, method, month)]
            oa, f1 = (float(np.mean([one[key] for one in found])) for key in ("oa", "macro_f1"))
            lines.append((month, method, oa, f1))
    return lines


def _splits(base: SitsConfig) -> Iterator[tuple[str, SitsConfig]]:
    if base.data.kind == "scene":
        for side in SIDES:
            yield side, base.changed({"data.held_out": side})
    elif base.data.kind == "parcels":
        for fold in range(base.data.folds):
            yield f"fold{fold + 1}", base.changed({"data.test_fold": fold})


def _run(config: SitsConfig, method: str, split: str, seed: int, data: Path, place: Path) -> Result:
    if config.data.kind == "parcels":
        # Each seed deals the parcels out anew.
        config = config.changed({"data.seed": seed})
    splits = open_splits(config.data, data, config.inputs, config.classes)
    if method == "random forest":
        return _forest(config, splits, split, seed)
    if method == "TSViT":
        config = tsvit_of(config)
    elif method in MIXERS:
        config = mixer_of(config, method)
    scorer = Scorer(train_once(SitsExperiment, config, data, seed, place))
    curve = None
    if config.data.kind == "parcels":
        curve = {f"{end:%Y-%m}": count(scorer, splits.test, end).tolist() for end in month_ends(splits.test)}
    matrix = count(scorer, splits.test).tolist()
    return Result(method, split, seed, matrix, curve, parameters(scorer.model))


def _forest(config: SitsConfig, splits: SitsSplits, split: str, seed: int) -> Result:
    """A forest of 300 trees on the bands of all dates of a pixel, or on the monthly means of a parcel."""
    if config.data.kind != "parcels":
        matrix = _grow(splits, len(config.classes), seed, all_dates)
        return Result("random forest", split, seed, matrix.tolist())
    ends = month_ends(splits.test)
    curve = {
        f"{end:%Y-%m}": _grow(splits, len(config.classes), seed, partial(monthly, ends=ends, last=end))
        for end in ends
    }
    found = {month: matrix.tolist() for month, matrix in curve.items()}
    return Result("random forest", split, seed, found[max(found)], found)


def _grow(
    splits: SitsSplits, classes: int, seed: int, features: Callable[[LabelledSeries], NDArray[np.float32]]
) -> Tensor:
    from sklearn.ensemble import RandomForestClassifier

    def gather(series: Sequence[LabelledSeries]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        labels = np.concatenate([one.labels.ravel() for one in series])
        rows = np.concatenate([features(one) for one in series])
        return rows[labels != IGNORE], labels[labels != IGNORE]

    forest = RandomForestClassifier(n_estimators=300, random_state=seed)
    forest.fit(*gather(splits.train))
    rows, labels = gather(splits.test)
    return confusion(torch.from_numpy(forest.predict(rows)), torch.from_numpy(labels), classes)


def all_dates(series: LabelledSeries) -> NDArray[np.float32]:
    """Reflectance of all bands of all dates of each pixel, NaN where not valid, [pixels, T * C]."""
    values, valid = series.series.read(series.whole)
    known = np.where(valid[:, None], values, np.float32(np.nan))
    return known.reshape(-1, values.shape[-2] * values.shape[-1]).T


def monthly(series: LabelledSeries, ends: Sequence[date], last: date) -> NDArray[np.float32]:
    """Mean of each band in each month up to `last`, NaN where nothing is known, [pixels, months * C]."""
    values, valid = series.series.read(series.whole)
    months = []
    for end in (end for end in ends if end <= last):
        inside = np.array([(day.year, day.month) == (end.year, end.month) for day in series.dates])
        seen = valid & inside[:, None, None]
        number = seen.sum(0)
        total = (values * seen[:, None]).sum(0)
        mean = np.where(number > 0, total / np.maximum(number, 1), np.nan)
        months.append(mean.reshape(len(mean), -1).T.astype(np.float32))
    return np.concatenate(months, axis=1)


def _pooled(results: Sequence[Result], method: str, month: str | None = None) -> list[Tensor]:
    """One confusion a seed, over all folds."""
    matrices = []
    for seed in sorted({one.seed for one in results}):
        chosen = [one for one in results if one.method == method and one.seed == seed]
        parts = [one.matrix if month is None else (one.by_month or {})[month] for one in chosen]
        matrices.append(torch.tensor(parts).sum(0))
    return matrices


def _line(split: str, method: str, matrices: Sequence[Tensor], parcels: bool) -> Line:
    oa = [scores(matrix)["oa"] for matrix in matrices]
    other = [scores(matrix)["macro_f1"] if parcels else iou_of_large(matrix) for matrix in matrices]
    spread = [float(np.std(values)) for values in (oa, other)]
    return Line(split, method, len(matrices), float(np.mean(oa)), spread[0], float(np.mean(other)), spread[1])


def iou_of_large(matrix: Tensor) -> float:
    """Mean IoU of the classes with at least `ENOUGH` test pixels."""
    iou = torch.tensor(scores(matrix)["iou"])
    return float(iou[matrix.sum(1) >= ENOUGH].mean())


def _words(result: Result) -> str:
    found = scores(torch.tensor(result.matrix))
    return f"OA {found['oa']:.3f}, macro F1 {found['macro_f1']:.3f}"
