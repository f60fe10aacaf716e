"""Training and evaluation of time-series models."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from geomix.checkpoint import Card, Source, card_of, save_model
from geomix.config import load_config
from geomix.errors import InputError
from geomix.learn.batches import SampleData
from geomix.learn.epochs import seed_everything
from geomix.learn.loop import fit, restore
from geomix.learn.metrics import confusion, scores
from geomix.learn.task import SegmentationTask
from geomix.parallel.ranks import in_turn, join, once
from geomix.progress import progress
from sits.augment import augment
from sits.data import (
    IGNORE,
    Batch,
    Crops,
    DataConfig,
    LabelledSeries,
    Sample,
    Splits,
    collate,
    open_splits,
)
from sits.data.crops import Whole
from sits.experiment import SitsConfig
from sits.inputs import Inputs
from sits.model import TSViPoM

log = logging.getLogger(__name__)

_PIXELS_AT_ONCE = 4096

Split = Literal["train", "val", "test", "all"]
Metrics = dict[str, Any]


class SitsTask(SegmentationTask):
    """A time-series model under training: cross entropy over labelled pixels, judged by mean IoU."""

    def __init__(self, model: TSViPoM, config: SitsConfig, weights: Tensor | None = None) -> None:
        super().__init__(model, config.train, config.model.classes, weights)

    def loss(self, batch: Batch) -> Tensor:
        """Cross entropy of the labelled pixels, each weighted by its class."""
        logits = self.model(batch.values, batch.days, batch.valid).float()
        weights = self._pixel_weights(batch)
        losses = nn.functional.cross_entropy(logits, batch.labels.clamp(min=0), reduction="none")
        return (losses * weights).sum() / weights.sum().clamp(min=1e-6)

    def weight(self, batch: Batch) -> Tensor:
        """The weights of the labelled pixels."""
        return self._pixel_weights(batch).sum()

    def _pixel_weights(self, batch: Batch) -> Tensor:
        labelled = (batch.labels != IGNORE) & batch.valid.any(1)
        return self.weights[batch.labels.clamp(min=0)] * labelled

    def judge(self, batch: Batch) -> None:
        """Count what the served weights make of whole series."""
        found = self.served(batch.values, batch.days, batch.valid).argmax(1)
        self.matrix += confusion(found, batch.labels, self.classes, ignore=IGNORE)


def train(
    config: SitsConfig | str | Path,
    run_dir: str | Path,
    data: str | Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
) -> Path:
    """Train a model and write it with its card.

    Args:
        config: the experiment, the name of one that comes with geomix, or a YAML file.
        run_dir: folder of the run: checkpoints, log, synthetic data and the model file.
        data: folder or file of the labelled data; synthetic data need none.
        resume: go on with the run in the folder.
        max_minutes: stop in time; the run can be resumed.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The model file, `<run_dir>/<name>.safetensors`; its card holds the scores of validation and test.
    """
    if not isinstance(config, SitsConfig):
        config = load_config(config, "sits", SitsConfig)
    join(config.train.batch_size, device)
    folder = Path(run_dir)
    place = None if data is None else Path(data)
    with in_turn():
        # Synthetic data are written.
        splits = open_splits(config.data, place, config.inputs, config.classes, folder)
    inputs = splits.normalised(config.inputs)
    seed_everything(config.train.seed)
    model = TSViPoM(config.model)
    log.info("%s: %s parameters", config.name, f"{sum(p.numel() for p in model.parameters()):,}")
    task = SitsTask(model, config, class_weights(splits.train, len(config.classes), config.class_weight))
    fit(task, _batches(config, splits, inputs), config.train, folder, resume, max_minutes, device)
    restore(task, folder)
    return once(lambda: _write(task.served.eval(), config, splits, inputs, folder))


def _write(model: nn.Module, config: SitsConfig, splits: Splits, inputs: Inputs, folder: Path) -> Path:
    """Score the trained model and write it with its card."""
    metrics = {
        name: score(model, series, inputs)
        for name, series in (("val", splits.val), ("test", splits.test))
        if series
    }
    file = folder / f"{config.name}.safetensors"
    save_model(model, make_card(config, inputs, metrics, seen=splits.train), file, overwrite=True)
    return file


def evaluate(
    model: nn.Module,
    data: str | Path | None = None,
    split: Split = "test",
    by_month: bool = False,
) -> Metrics:
    """Score a model on labelled data, divided as its card says.

    Args:
        model: from `load_model`.
        data: folder or file of the data; may be left out for synthetic data, which are made again.
        split: which part.
        by_month: also score what is known at the end of each month, under `by_month`.

    Returns:
        Metric -> value, with the keys of the card's metrics.

    Raises:
        InputError: if the card does not say how its data are divided, or the split is empty.
    """
    card = card_of(model)
    described = next((one.split for one in card.data if isinstance(one.split, dict)), None)
    if described is None or card.classes is None:
        raise InputError(f"{card.name}: its card does not say how its data are divided")
    config = TypeAdapter[Any](DataConfig).validate_python(described)
    inputs = Inputs.of_card(card.inputs)
    with tempfile.TemporaryDirectory() as scratch:
        place = None if data is None else Path(data)
        splits = open_splits(config, place, inputs, card.classes, Path(scratch))
        found = score(model, splits.of(split), inputs)
        if by_month:
            found["by_month"] = score_by_month(model, splits.of(split), inputs)
    return found


def score(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs, until: date | None = None
) -> Metrics:
    """Pool the confusion of all labelled pixels of some series and turn it into scores.

    Args:
        model: logits from values, days and validity.
        series: what is judged, whole, as prediction sees it.
        inputs: the preprocessing.
        until: last date that the model may see.

    Returns:
        The figures of `metrics.scores`, `support`, the judged pixels of each class, and `pixels`, all
        of them. A pixel that no date shows gets no class and does not count.

    Raises:
        InputError: if there is no series.
    """
    total = count(model, series, inputs, until)
    return {**scores(total), "support": total.sum(1).tolist(), "pixels": int(total.sum())}


def count(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs, until: date | None = None
) -> Tensor:
    """The confusion matrix of `score`, [K, K]; the truth is in the rows."""
    if not series:
        raise InputError("there is nothing to score")
    device = next(model.parameters()).device
    matrices = []
    model.eval()
    groups = list(_alike(series))
    for group in progress(groups, "Scoring", len(groups)):
        batch = collate([_until(one.sample(one.whole, inputs), one.dates, until) for one in group])
        with torch.inference_mode():
            logits = model(batch.values.to(device), batch.days.to(device), batch.valid.to(device)).cpu()
        labels = torch.where(batch.valid.any(1), batch.labels, IGNORE)
        matrices.append(confusion(logits.argmax(1), labels, logits.shape[1], ignore=IGNORE))
    return torch.stack(matrices).sum(0)


def _alike(series: Sequence[LabelledSeries]) -> Iterator[list[LabelledSeries]]:
    """Series of one size together, as many as have the pixels of one large patch: parcels are tiny."""
    for shape, group in groupby(series, key=lambda one: one.labels.shape):
        members, size = list(group), max(1, _PIXELS_AT_ONCE // (shape[0] * shape[1]))
        yield from (members[start : start + size] for start in range(0, len(members), size))


def _until(sample: Sample, dates: Sequence[date], last: date | None) -> Sample:
    """Hide the dates after `last`."""
    if last is None:
        return sample
    known = np.array([day <= last for day in dates])
    return sample._replace(valid=sample.valid & known[:, None, None])


def score_by_month(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs
) -> dict[str, dict[str, float]]:
    """Scores from what is known at the end of each month: how early in the season can the model judge?

    Returns:
        `YYYY-MM` -> `oa`, `miou` and `macro_f1`, from the first month with a date to the last.
    """
    first = min(one.dates[0] for one in series)
    last = max(one.dates[-1] for one in series)
    found = {}
    for month_end in month_ends(first, last):
        figures = score(model, series, inputs, until=month_end)
        found[f"{month_end:%Y-%m}"] = {name: figures[name] for name in ("oa", "miou", "macro_f1")}
    return found


def make_card(
    config: SitsConfig, inputs: Inputs, metrics: dict[str, Metrics], seen: Sequence[LabelledSeries]
) -> Card:
    """The card of a model trained on `seen`; its data entry lets `evaluate` divide the data again."""
    dates = [min(one.dates[0] for one in seen), max(one.dates[-1] for one in seen)]
    division = config.data.model_dump(mode="json")
    sources = config.sources or (Source(source=config.data.kind, licence="unknown"),)
    return Card(
        domain="sits",
        name=config.name,
        model=config.model.model_dump(mode="json"),
        classes=config.classes,
        inputs={**inputs.model_dump(mode="json"), "patch": config.model.patch},
        data=tuple(one.model_copy(update={"split": division}) for one in sources),
        metrics=metrics,
        limits={"dates": [day.isoformat() for day in dates], **config.limits},
    )


def class_weights(series: Sequence[LabelledSeries], classes: int, power: float) -> Tensor:
    """Weights of the classes in the loss: 1 / frequency to some power, 1 on average over the pixels."""
    counts = np.zeros(classes)
    for one in series:
        labels = one.labels[one.part.slices]
        counts += np.bincount(labels[labels != IGNORE], minlength=classes)
    weights = np.where(counts > 0, np.maximum(counts, 1) ** -power, 0)
    weights *= counts.sum() / max(float((weights * counts).sum()), 1e-12)
    return torch.tensor(weights, dtype=torch.float32)


def _batches(config: SitsConfig, splits: Splits, inputs: Inputs) -> SampleData:
    crops = Crops(
        splits.train,
        inputs,
        config.crop,
        config.train.seed,
        partial(augment, changes=config.augment),
        config.balanced,
    )
    steps = config.train.epoch_steps or _steps_for_all(splits.train, config)
    return SampleData(
        crops,
        Whole(splits.val, inputs),
        collate,
        per_epoch=steps * config.train.batch_size,
        batch_size=config.train.batch_size,
        workers=config.train.workers,
    )


def _steps_for_all(series: Sequence[LabelledSeries], config: SitsConfig) -> int:
    """Batches whose crops have the area of all training pixels."""
    area = sum(one.part.height * one.part.width for one in series)
    return max(1, round(area / config.crop**2 / config.train.batch_size))


def month_ends(first: date, last: date) -> list[date]:
    """The last day of each month from that of `first` to that of `last`."""
    ends, month = [], first.replace(day=1)
    while month <= last:
        following = (month + timedelta(days=32)).replace(day=1)
        ends.append(following - timedelta(days=1))
        month = following
    return ends
