"""The settings of a training: those of the loop, and those that the experiments of all domains share."""

from typing import Any, Literal

from pydantic import Field

from geomix.checkpoint import Source
from geomix.config import Config


class TrainConfig(Config):
    """How a model is trained."""

    epochs: int = Field(ge=1)
    """Passes over the training data; each ends with a checkpoint, and with validation if it is due."""
    epoch_steps: int | None = Field(None, ge=1)
    """Batches per epoch; all of the training data if not given. Shorter epochs save more often."""
    batch_size: int = Field(ge=1)
    """Samples per batch. Several processes share them, so the number of processes changes no result."""
    accumulate: int = Field(1, ge=1)
    """Batches whose gradients are summed before a step."""
    learning_rate: float = Field(gt=0)
    """The peak, reached after the warm-up."""
    weight_decay: float = Field(0.05, ge=0)
    """Weight decay of AdamW, for weight matrices only."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of all steps over which the learning rate rises."""
    clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; no limit if null."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay per step of the running average of the weights; no average if null."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16 where that is safe and stores the weights in float32."""
    seed: int = Field(0, ge=0)
    """Seed of the initial weights, the order of samples, augmentation and dropout."""
    workers: int = Field(0, ge=0)
    """Processes that load data in parallel to the training."""
    val_every: int = Field(1, ge=1)
    """Epochs between validations."""
    tensorboard: bool = False
    """Whether the figures of each epoch are also written for TensorBoard, which must be installed."""


class ExperimentConfig(Config):
    """Model, data and training of one experiment: `configs/<domain>/<name>.yaml`.

    A domain adds its own fields and says what `data` are.
    """

    name: str
    """Name of the model that comes out."""
    start: str | None = None
    """The model whose weights the training starts from: a bundled name or a .safetensors file; null for fresh
    weights."""
    data: Config
    """Which labelled data there are and how they are divided."""
    train: TrainConfig
    """The settings of the loop."""
    sources: tuple[Source, ...] | dict[str, Source] = ()
    """Origin and licence of the data, for the card; by name of the data set where the data name theirs."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Sensor, season, region, language and the like outside which the model is not to be trusted."""
