"""What a training run is made of, as a YAML file of configs/sits says it."""

from typing import Any

from pydantic import Field, model_validator

from geomix.checkpoint import ClassInfo, Source
from geomix.config import Config
from geomix.learn.config import TrainConfig
from sits.data import DataConfig
from sits.data.augment import Augment
from sits.data.inputs import Inputs
from sits.model import ModelConfig


class SitsConfig(Config):
    """Model, data and training of one experiment."""

    name: str
    """Name of the model that comes out."""
    model: ModelConfig
    inputs: Inputs
    classes: tuple[ClassInfo, ...]
    """Classes in the order of the model's outputs; `id` is the code in the labels and in the map."""
    data: DataConfig
    crop: int = Field(24, gt=0)
    """Side of the training crops, pixels."""
    balanced: float = Field(0.0, ge=0, le=1)
    """Share of the crops that are laid around a pixel of a class drawn regardless of its frequency."""
    class_weight: float = Field(0.0, ge=0, le=1)
    """Classes weigh 1 / frequency to this power in the loss: 0 for as they come, 1 for all alike."""
    augment: Augment = Augment()
    train: TrainConfig
    sources: tuple[Source, ...] = ()
    """Origin and licence of the data, for the card."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Sensor, season, region and the like outside which the model is not to be trusted, for the card."""

    @model_validator(mode="after")
    def _check(self) -> "SitsConfig":
        if self.model.bands != len(self.inputs.bands):
            raise ValueError(
                f"model.bands is {self.model.bands}, but inputs.bands names {len(self.inputs.bands)}"
            )
        if self.model.classes != len(self.classes):
            raise ValueError(f"model.classes is {self.model.classes}, but classes lists {len(self.classes)}")
        if self.model.day_code == "table" and self.inputs.days != "year":
            raise ValueError("a table of days needs `inputs.days: year`")
        if self.model.tile is not None and self.crop % self.model.tile:
            raise ValueError(f"crop must be a multiple of model.tile {self.model.tile}, got {self.crop}")
        return self
