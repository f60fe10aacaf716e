"""Training of time-series models: loss, judge, batches and the card."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from geomix.checkpoint import Card, Source, save_model
from geomix.config import load_config
from geomix.learn.batches import SampleData
from geomix.learn.epochs import seed_everything
from geomix.learn.loop import fit, restore
from geomix.learn.metrics import confusion
from geomix.learn.task import SegmentationTask
from geomix.parallel.ranks import in_turn, join, once
from sits.data import IGNORE, Batch, Crops, LabelledSeries, Splits, collate, open_splits
from sits.data.augment import augment
from sits.data.batches import Whole
from sits.data.inputs import Inputs
from sits.model import TSViPoM
from sits.task.experiment import SitsConfig
from sits.task.scoring import Metrics, score

log = logging.getLogger(__name__)


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
