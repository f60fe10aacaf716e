"""The experiment: what a YAML file of configs/pointcloud says, and what point clouds add to training."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, TypeAdapter, model_validator
from torch import nn

from geomix.checkpoint import Card, ClassInfo, card_of
from geomix.errors import InputError
from geomix.learn.batches import SampleData
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, Metrics, division
from geomix.learn.splits import Splits
from geomix.learn.start import take_weights
from geomix.learn.task import class_weights
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
from pointcloud.model import ModelConfig, PPoMv3
from pointcloud.task.scoring import score
from pointcloud.task.training import PointcloudTask


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
    """Training and scoring of point-cloud models."""

    domain = "pointcloud"
    kind = PointcloudConfig

    def open(self, data: Any, folder: Path, start: nn.Module | None) -> Splits[LabelledCloud]:
        """Find the labelled clouds below the folder `data`; they are read when they are needed."""
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
        **options: Any,
    ) -> Metrics:
        """Predict each cloud whole and count every labelled point.

        Args:
            model: in eval mode, with its card.
            splits: the labelled clouds.
            split: which of them.
            augmented: average over eight turned and mirrored views of each cloud.
            memory: most memory that a prediction may use, as bytes or text like `4GB`.
            options: none besides.
        """
        inputs, seen = read_inputs(card_of(model).inputs), views() if augmented else None
        return score(model, splits.of(split), inputs, seen, memory)


def class_ids(classes: Sequence[ClassInfo]) -> tuple[int, ...]:
    """The ids of classes, in the order of the model's outputs."""
    return tuple(one.id for one in classes)
