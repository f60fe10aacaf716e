"""Training a line recogniser: its settings, its loss and its scores."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from pydantic import Field
from torch import Tensor

from geomix.config import Config
from geomix.errors import InputError
from geomix.metrics import EditDistance
from geomix.task import Task
from geomix.train import TrainConfig
from htr import ctc, data
from htr.batches import Batch, TrainingLines, collate, padded_batches
from htr.charset import Charset
from htr.data import Inputs, Sample
from htr.model import LineRecogniser, ModelConfig
from htr.shards import Shards
from htr.stem import STRIDE

log = logging.getLogger(__name__)

LINE_WIDTH = 640
"""What counts as one line when a batch is filled, px at a height of 48."""


class DataConfig(Config):
    """How lines are drawn for training."""

    weights: dict[str, float] = Field({})
    """How often a line of a set is seen in an epoch; 1 for sets that are not named."""
    stretch: float = Field(1.25, ge=1)
    """Largest factor by which a line becomes wider or narrower."""
    augment: bool = True
    """Whether slant, pen, tone and paper change at random."""
    select_share: float = Field(0.04, gt=0, lt=1)
    """Share of the training pages that choose the checkpoint and are not learned."""
    fill: float = Field(0.8, gt=0, le=1)
    """Labels that need more than this share of a line's tokens are left out: CTC cannot learn them."""


class HtrConfig(Config):
    """Everything that a training needs: `configs/htr/<name>.yaml`."""

    model: ModelConfig
    """Its `classes` are set by the characters of the training lines."""
    contrast: bool = True
    """Whether paper and ink of each line are stretched to 0 and 1."""
    data: DataConfig = DataConfig()
    train: TrainConfig
    """`batch_size` counts lines of 640 px; a batch of short lines holds more of them."""
    shards: int = Field(1, ge=1)
    """Parts in which threads compute each batch. On a busy CPU two parts with one thread each are faster than
    operators with two threads."""

    @property
    def inputs(self) -> Inputs:
        """The preprocessing of a line."""
        return Inputs(height=self.model.height, contrast=self.contrast)


class HtrTask(Task):
    """A line recogniser under training, chosen by its character error rate on the selection pages."""

    goal = "cer"
    model: LineRecogniser

    def __init__(self, model: LineRecogniser, config: TrainConfig, charset: Charset, shards: int = 1) -> None:
        super().__init__(model, config)
        self.charset = charset
        self._distance = EditDistance()
        # Convolutions on a CPU are a quarter faster in this layout.
        self.model.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._shards = Shards(self.model, shards) if shards > 1 else None
        self._parts = shards

    def loss(self, batch: Batch) -> Tensor:
        """CTC over the characters, a mean over the lines."""
        parts = batch.split(self._parts)
        if self._shards is None or len(parts) == 1:
            return batch_loss(self.model, batch)
        lines = [len(part.labels) / len(batch.labels) for part in parts]
        return self._shards.loss(batch_loss, parts, lines)

    def describe(self, batch: Batch) -> str:
        """The first lines of the batch."""
        return ", ".join(batch.names[:3])

    def judge(self, batch: Batch) -> None:
        """Read a validation batch by the best path and count the errors."""
        for text, truth in zip(greedy_texts(self.served, batch, self.charset), batch.texts, strict=True):
            self._distance.add(truth, text)

    def scores(self) -> dict[str, float]:
        """`cer` and `wer` on the selection pages."""
        scores = self._distance.scores()
        self._distance = EditDistance()
        return {"cer": float(scores["cer"]), "wer": float(scores["wer"])}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Bring a batch to the device; Lightning does not know the type."""
        return batch.to(device)


def batch_loss(model: torch.nn.Module, batch: Batch) -> Tensor:
    """CTC loss of a model on a batch, a scalar."""
    logits = model(batch.images, batch.widths)
    return ctc.loss(logits, -(-batch.widths // STRIDE), batch.labels)


def greedy_texts(model: torch.nn.Module, batch: Batch, charset: Charset) -> Iterator[str]:
    """Read each line of a batch by the best path."""
    with torch.inference_mode():
        logits = model(batch.images, batch.widths)
    probabilities = logits.float().softmax(-1).cpu().numpy()
    counts = (-(-batch.widths // STRIDE)).tolist()
    for line, count in zip(probabilities, counts, strict=True):
        yield charset.decode([symbol.number for symbol in ctc.best_path(line[:count])])


class LineData(pl.LightningDataModule):
    """The lines of tars, split by page into training, selection and validation.

    Args:
        samples: all lines, as read.
        config: the settings.
        charset: the characters to learn; those of the training lines if not given.

    Raises:
        InputError: if there is no line to train on.
    """

    def __init__(self, samples: Sequence[Sample], config: HtrConfig, charset: Charset | None = None) -> None:
        super().__init__()
        self.config = config
        lines = data.ready(samples, config.inputs)
        self.select = data.selection_pages(lines, config.data.select_share)
        self.train_lines = fitting(data.take(lines, "train", self.select), config.data.fill)
        if not self.train_lines:
            raise InputError("there is no line to train on; is the split of all lines val?")
        self.select_lines = data.take(lines, "select", self.select)
        self.charset = charset or Charset.from_texts(sample.text for sample in self.train_lines)

    def train_dataloader(self) -> TrainingLines:
        """Batches of augmented lines of equal width."""
        settings = self.config.data
        return TrainingLines(
            self.train_lines,
            self.charset,
            columns=self.config.train.batch_size * LINE_WIDTH * self.config.model.height // 48,
            weights=settings.weights,
            stretch=settings.stretch,
            changes=settings.augment,
        )

    def val_dataloader(self) -> "SelectionLines":
        """Batches of the selection lines."""
        return SelectionLines([collate(group, self.charset) for group in padded_batches(self.select_lines)])


class SelectionLines:
    """The batches on which the checkpoint is chosen; a plain list would mean one loader a batch."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)


def fitting(samples: Sequence[Sample], fill: float) -> list[Sample]:
    """Keep the lines whose label fits its tokens, and say which do not.

    Args:
        samples: lines at the model's height.
        fill: the largest share of a line's tokens that its label may need.
    """
    kept: list[Sample] = []
    dropped: list[Sample] = []
    for sample in samples:
        tokens = -(-sample.image.shape[1] // STRIDE)
        (kept if ctc.tokens_needed(sample.text) <= fill * tokens else dropped).append(sample)
    if dropped:
        names = ", ".join(sample.id for sample in dropped[:5]) + (", ..." if len(dropped) > 5 else "")
        log.warning("left out %d lines whose text is too long for their width: %s", len(dropped), names)
    return kept


def read_samples(paths: Sequence[str | Path]) -> list[Sample]:
    """Read the lines of several tars."""
    return [sample for path in paths for sample in data.read_tar(path)]


def build_task(config: HtrConfig, charset: Charset) -> HtrTask:
    """Make a fresh model for a charset, ready to be trained."""
    shape = config.model.model_copy(update={"classes": len(charset)})
    torch.manual_seed(config.train.seed)
    return HtrTask(LineRecogniser(shape), config.train, charset, config.shards)


def model_dict(model: LineRecogniser) -> dict[str, Any]:
    """The configuration of a model as its card holds it."""
    return model.config.model_dump(mode="json")
