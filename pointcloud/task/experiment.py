"""The experiment: what a YAML file of configs/pointcloud says, and what point clouds add to training."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, TypeAdapter, model_validator
from torch import nn

from geomix.checkpoint import Card, ClassInfo, bundled_models, card_of
from geomix.errors import InputError
from geomix.files import new_file
from geomix.learn.batches import SampleData
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, Metrics, division
from geomix.learn.splits import Splits
from geomix.learn.start import FRESH, take_weights
from geomix.learn.task import class_weights
from geomix.report import table
from pointcloud.data import (
    CropConfig,
    Crops,
    DataConfig,
    Inputs,
    LabelledCloud,
    Whole,
    collate,
    count_classes,
    open_splits,
    read_inputs,
)
from pointcloud.data.augment import Augment, views
from pointcloud.data.schemes import class_map
from pointcloud.data.sources import FileData, SyntheticData, reopen_tiles
from pointcloud.data.tiles import Found, TilesData, draw_parts, find_tiles
from pointcloud.model import ModelConfig, PPoMv3
from pointcloud.task.scoring import report_of, score
from pointcloud.task.training import PointcloudTask

log = logging.getLogger(__name__)


class PointcloudConfig(ExperimentConfig):
    """Model, data and training of one experiment."""

    model: ModelConfig
    inputs: Inputs
    classes: tuple[ClassInfo, ...]
    """Classes in the order of the model's outputs; `id` is the code in the labels and in the output."""
    data: DataConfig
    crop: CropConfig = CropConfig()
    augment: Augment = Augment()
    class_weight: float = Field(default=0.5, ge=0, le=1)
    """Classes weigh 1 / frequency to this power in the cross-entropy: 0 for as they come, 1 for all alike."""
    lovasz: float = Field(default=1.0, ge=0)
    """Weight of the Lovász loss beside the cross-entropy."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing of the cross-entropy."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model.in_channels != self.inputs.channels:
            raise ValueError(
                f"model.in_channels is {self.model.in_channels}, "
                f"but the features of inputs have {self.inputs.channels} channels"
            )
        if self.model.classes != len(self.classes):
            raise ValueError(f"model.classes is {self.model.classes}, but classes lists {len(self.classes)}")
        return self


class PointcloudExperiment(Experiment[PointcloudConfig, Splits[LabelledCloud]]):
    """Training and scoring of point-cloud models.

    Args:
        config: the configuration, the name of one, or a YAML file.
        tiles: any folder of classified tiles to learn from instead of the data of the configuration.
        classes: name of the scheme of these tiles, or a table from, to, name, color.
        train: patterns of the tiles to learn from.
        val: patterns of the tiles that choose the epoch; without patterns, blocks of space divide all.
        start: the model to start from, if not the bundled one of the name of the configuration; `none` for
            fresh weights.
    """

    domain = "pointcloud"
    kind = PointcloudConfig

    def __init__(
        self,
        config: PointcloudConfig | str | Path,
        tiles: str | Path | None = None,
        *,
        classes: str | Path | None = None,
        train: Sequence[str] = (),
        val: Sequence[str] = (),
        start: str | None = None,
    ) -> None:
        super().__init__(config)
        self.found: Found | None = None
        if tiles is not None and isinstance(self.config.data, FileData | SyntheticData):
            seed = self.config.train.seed
            self.found = find_tiles(Path(tiles), class_map(classes), train, val, seed)
            self.config = on_tiles(self.config, self.found, Path(tiles).resolve().name, start)
        elif classes is not None or train or val:
            raise InputError("--classes, --train and --val are for a folder of tiles: name it with --data")

    def open(self, data: Any, folder: Path, start: nn.Module | None) -> Splits[LabelledCloud]:
        """Find the labelled clouds below the folder `data`; they are read when they are needed."""
        if self.found is not None:
            rows = [(name, points) for name, points in self.found.counts.items()]
            log.info("%s", table(("class", "points"), rows))
            draw_parts(self.found, folder / "parts.png")
        return open_splits(self.config.data, data and Path(data), class_ids(self.config.classes))

    def build(self, splits: Splits[LabelledCloud], start: nn.Module | None) -> PPoMv3:
        """Make the model; with a model to start from, classes of the same name keep their weights."""
        model = PPoMv3(self.config.model)
        if start is not None:
            ours = [one.name for one in self.config.classes]
            theirs = [one.name for one in card_of(start).classes or ()]
            take_weights(model, start, ours, theirs, by_class={"head.weight": 0, "head.bias": 0})
        return model

    def task(self, model: nn.Module, splits: Splits[LabelledCloud]) -> PointcloudTask:
        """Join the model to the segmentation loss, with weights of the classes from the training clouds."""
        config, weights = self.config, None
        if config.class_weight:
            counts = count_classes(splits.train, len(config.classes))
            weights = class_weights(counts, config.class_weight)
        return PointcloudTask(model, config.train, weights, config.lovasz, config.smoothing)  # type: ignore[arg-type]

    def batches(self, splits: Splits[LabelledCloud]) -> SampleData:
        """Draw random parts of the training clouds, and whole validation clouds."""
        config = self.config
        steps = config.train.epoch_steps or math.ceil(len(splits.train) / config.train.batch_size)
        return SampleData(
            Crops(splits.train, config.inputs, config.crop, config.augment, config.train.seed),
            Whole(splits.val, config.inputs),
            collate,
            per_epoch=steps * config.train.batch_size,
            batch_size=config.train.batch_size,
            workers=config.train.workers,
        )

    def describe(self, splits: Splits[LabelledCloud]) -> dict[str, Any]:
        """The classes and the preprocessing, for the card."""
        return {"classes": self.config.classes, "inputs": self.config.inputs.model_dump(mode="json")}

    @classmethod
    def reopen(cls, card: Card, data: Any, scratch: Path) -> Splits[LabelledCloud]:
        """Find the labelled clouds and divide them as the card of a model says."""
        if card.classes is None:
            raise InputError(f"{card.name}: its card names no classes")
        config = TypeAdapter[Any](DataConfig).validate_python(division(card))
        if data is not None and isinstance(config, FileData | TilesData):
            return reopen_tiles(config, Path(data), class_ids(card.classes))
        return open_splits(config, data and Path(data), class_ids(card.classes))

    @classmethod
    def score(
        cls,
        model: nn.Module,
        splits: Splits[LabelledCloud],
        split: str,
        *,
        augmented: bool = False,
        memory: str | int | None = None,
        csv: Path | None = None,
        **options: Any,
    ) -> Metrics:
        """Predict each cloud whole and count every labelled point.

        Args:
            model: in eval mode, with its card.
            splits: the labelled clouds.
            split: which of them.
            augmented: average over eight turned and mirrored views of each cloud.
            memory: most memory that a prediction may use, as bytes or text like `4GB`.
            csv: file that gets a line per class: its figures and its row of the confusion matrix.
            options: none besides.
        """
        card, clouds = card_of(model), splits.of(split)
        learned = sorted({one.name for one in clouds} & {one.name for one in splits.train})
        if split in ("train", "all") and learned:
            log.warning("took part in the training, so their scores flatter: %s", ", ".join(learned))
        names = [one.name for one in card.classes or ()]
        seen = views() if augmented else None
        figures = score(model, clouds, read_inputs(card.inputs), seen, memory, names)
        if csv is not None:
            with new_file(csv, overwrite=True) as temporary:
                temporary.write_text(report_of(figures).csv(), encoding="utf-8")
        return figures

    @classmethod
    def text(cls, metrics: Metrics) -> str:
        """The figures of all points, of each class and of each file, and the confusion matrix."""
        rows = [(name, *own.values()) for name, own in metrics["files"].items()]
        files = table(("file", "oa", "miou", "points"), rows) if len(rows) > 1 else ""
        return "\n\n".join(filter(None, [report_of(metrics).text(), files]))


_STARTED = {"train.learning_rate": 1e-3, "train.epochs": 20, "train.val_every": 5}
"""What differs from a training from nothing where trained weights are the start."""


def on_tiles(config: PointcloudConfig, found: Found, folder: str, start: str | None) -> PointcloudConfig:
    """The experiment on a folder of tiles, with its data, classes, origin and limits in those of `config`.

    Args:
        config: model, inputs, augmentation and training.
        found: what the folder holds.
        folder: its name, for the card.
        start: the model to start from; None for the bundled one of the name of the configuration, if any.
    """
    bundled = dict(bundled_models("pointcloud"))
    start = start or config.start or (config.name if config.name in bundled else None)
    low, high = found.density
    return config.changed(
        {
            "start": start,
            "data": found.data.model_dump(),
            "classes": [one.model_dump() for one in found.classes],
            "model.classes": len(found.classes),
            "sources": [{"source": f"tiles in {folder}", "licence": "unknown"}],
            "limits": {"density": [round(low / 2, 1), round(2 * high, 1)]},
            **(_STARTED if start not in (None, FRESH) else {}),
        }
    )


def class_ids(classes: Sequence[ClassInfo]) -> tuple[int, ...]:
    """The ids of classes, in the order of the model's outputs."""
    return tuple(one.id for one in classes)
