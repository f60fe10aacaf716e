"""The settings of a training: `configs/htr/<name>.yaml`."""

from typing import Any

from pydantic import Field

from geomix.checkpoint import Source
from geomix.config import Config
from geomix.learn.config import TrainConfig
from htr.data.inputs import Inputs
from htr.model.network import ModelConfig


class DataConfig(Config):
    """How lines are drawn for training."""

    weights: dict[str, float] = Field({})
    """How often a line of a set is seen in an epoch; 1 for sets that are not named."""
    stretch: float = Field(1.25, ge=1)
    """Largest factor by which a line becomes wider or narrower."""
    augment: bool = True
    """Whether slant, pen, tone and paper change at random."""
    page_lines: int = Field(1, ge=1)
    """Neighbouring lines that are unrolled to one page in training; 1 for single lines. Sets have no weights
    then."""
    select_share: float = Field(0.04, gt=0, lt=1)
    """Share of the training pages that choose the checkpoint and are not learned."""
    fill: float = Field(0.8, gt=0, le=1)
    """Labels that need more than this share of a line's tokens are left out: CTC cannot learn them."""
    synthetic: int = Field(120, ge=20)
    """Lines drawn with a font where no data are given."""


class HtrConfig(Config):
    """Everything that a training needs."""

    name: str
    """Of the model file."""
    model: ModelConfig
    """Its `classes` are set by the characters of the training lines."""
    contrast: bool = True
    """Whether paper and ink of each line are stretched to 0 and 1."""
    level: bool = True
    """Whether writing is made level, of one size and even first."""
    data: DataConfig = DataConfig()
    train: TrainConfig
    """`batch_size` counts lines of 640 px at a height of 48; a batch of short lines holds more of them."""
    shards: int = Field(1, ge=1)
    """Parts in which threads compute each batch, with one thread each: for a CPU with many idle cores."""
    sources: dict[str, Source] = Field({})
    """Origin and licence of each set, for the card."""
    limits: dict[str, Any] = Field({})
    """Language, hands and the like outside which predictions are worse, for the card."""

    @property
    def inputs(self) -> Inputs:
        """The preprocessing of a line."""
        return Inputs(height=self.model.height, contrast=self.contrast, level=self.level)
