"""Training of point-cloud models: the loss, the judge, and a model file with its card."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from geomix.parallel.ranks import join, once
from pointcloud.data import (
    IGNORE,
    LABEL,
    Batch,
    Crops,
    LabelledCloud,
    Splits,
    Whole,
    collate,
    open_splits,
)
from pointcloud.model import PPoMv3
from pointcloud.task.experiment import PointcloudConfig, class_ids
from pointcloud.task.losses import segmentation_loss
from pointcloud.task.scoring import Metrics, score

log = logging.getLogger(__name__)


class PointcloudTask(SegmentationTask):
    """A point-cloud model under training: Lovász and cross-entropy on voxels, judged by mean IoU of points.

    Args:
        model: what is trained.
        config: its experiment.
        weights: weight of each class in the cross-entropy, [K].
    """

    def __init__(self, model: PPoMv3, config: PointcloudConfig, weights: Tensor | None = None) -> None:
        super().__init__(model, config.train, config.model.classes, weights)
        self.lovasz, self.smoothing = config.lovasz, config.smoothing

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy and Lovász over the labelled voxels."""
        logits = self.model(batch.grid_coord, batch.feat, batch.cu_seqlens)
        return segmentation_loss(logits, batch.labels, self.weights, self.lovasz, self.smoothing)

    def weight(self, batch: Batch) -> Tensor:
        """The weights of the labelled voxels, so that the cross-entropy is that of the whole batch.

        The Lovász loss is no mean over voxels: over several processes it is the mean of those of the shares.
        """
        return self.weights[batch.labels[batch.labels != IGNORE]].sum()

    def judge(self, batch: Batch) -> None:
        """Count what the served weights make of every point of whole clouds."""
        found = self.served(batch.grid_coord, batch.feat, batch.cu_seqlens).argmax(1)
        self.matrix += confusion(found[batch.inverse], batch.point_labels, self.classes, ignore=IGNORE)


def train(
    config: PointcloudConfig | str | Path,
    run_dir: str | Path,
    data: str | Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
) -> Path:
    """Train a model and write it with its card.

    Args:
        config: the experiment, the name of one that comes with geomix, or a YAML file.
        run_dir: folder of the run: checkpoints, log and the model file.
        data: folder of the labelled data; synthetic data need none.
        resume: go on with the run in the folder.
        max_minutes: stop in time; the run can be resumed.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The model file, `<run_dir>/<name>.safetensors`; its card holds the scores of validation and test.
    """
    if not isinstance(config, PointcloudConfig):
        config = load_config(config, "pointcloud", PointcloudConfig)
    join(config.train.batch_size, device)
    folder = Path(run_dir)
    splits = open_splits(config.data, None if data is None else Path(data), class_ids(config.classes))
    seed_everything(config.train.seed)
    model = PPoMv3(config.model)
    log.info("%s: %s parameters", config.name, f"{sum(p.numel() for p in model.parameters()):,}")
    task = PointcloudTask(
        model, config, class_weights(splits.train, len(config.classes), config.class_weight)
    )
    fit(task, _batches(config, splits), config.train, folder, resume, max_minutes, device)
    restore(task, folder)
    return once(lambda: _write(task.served.eval(), config, splits, folder))


def _write(model: nn.Module, config: PointcloudConfig, splits: Splits, folder: Path) -> Path:
    """Score the trained model and write it with its card."""
    metrics = {
        name: score(model, clouds, config.inputs)
        for name, clouds in (("val", splits.val), ("test", splits.test))
        if clouds
    }
    file = folder / f"{config.name}.safetensors"
    save_model(model, make_card(config, metrics), file, overwrite=True)
    return file


def make_card(config: PointcloudConfig, metrics: dict[str, Metrics]) -> Card:
    """The card of a trained model; its data entry lets `evaluate` divide the data again."""
    division = config.data.model_dump(mode="json")
    sources = config.sources or (Source(source=config.data.kind, licence="unknown"),)
    return Card(
        domain="pointcloud",
        name=config.name,
        model=config.model.model_dump(mode="json"),
        classes=config.classes,
        inputs=config.inputs.model_dump(mode="json"),
        data=tuple(one.model_copy(update={"split": division}) for one in sources),
        metrics=_finite(metrics),
        limits=config.limits,
    )


def _finite(value: Any) -> Any:
    """The same figures with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


_MOST_COUNTED = 200


def class_weights(clouds: Sequence[LabelledCloud], classes: int, power: float) -> Tensor:
    """Weights of the classes in the loss: 1 / frequency to some power, 1 on average over the points.

    Args:
        clouds: the training clouds; of many, a sample spread over all of them is counted.
        classes: number of classes K.
        power: 0 for all alike, 1 for every class the same share of the loss.
    """
    if power == 0:
        return torch.ones(classes)
    counts = np.zeros(classes)
    for one in clouds[:: max(1, len(clouds) // _MOST_COUNTED)]:
        labels = np.asarray(one.read().fields[LABEL])
        counts += np.bincount(labels[labels != IGNORE], minlength=classes)
    weights = np.where(counts > 0, np.maximum(counts, 1) ** -power, 0)
    weights *= counts.sum() / max(float((weights * counts).sum()), 1e-12)
    return torch.tensor(weights, dtype=torch.float32)


def _batches(config: PointcloudConfig, splits: Splits) -> SampleData:
    crops = Crops(splits.train, config.inputs, config.crop, config.augment, config.train.seed)
    steps = config.train.epoch_steps or math.ceil(len(splits.train) / config.train.batch_size)
    return SampleData(
        crops,
        Whole(splits.val, config.inputs),
        collate,
        per_epoch=steps * config.train.batch_size,
        batch_size=config.train.batch_size,
        workers=config.train.workers,
    )
