"""What a training run is made of, as a YAML file of configs/pointcloud says it."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from geomix.checkpoint import ClassInfo, Source
from geomix.config import Config
from geomix.learn.config import TrainConfig
from pointcloud.data import CropConfig, DataConfig, Inputs
from pointcloud.data.augment import Augment
from pointcloud.model import ModelConfig


class PointcloudConfig(Config):
    """Model, data and training of one experiment."""

    name: str
    """Name of the model that comes out."""
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
    train: TrainConfig
    sources: tuple[Source, ...] = ()
    """Origin and licence of the data, for the card."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Sensor, region and the like outside which the model is not to be trusted, for the card."""

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


def class_ids(classes: Sequence[ClassInfo]) -> tuple[int, ...]:
    """The ids of classes, in the order of the model's outputs."""
    return tuple(one.id for one in classes)
