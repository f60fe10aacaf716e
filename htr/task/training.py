"""The loss of a line recogniser, what judges it, and the batches that it learns from."""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import lightning.pytorch as pl
import torch
from torch import Tensor

from geomix.learn.config import TrainConfig
from geomix.learn.metrics import EditDistance
from geomix.learn.task import Task
from geomix.parallel.ranks import Nothing, gather, here, own
from htr.charset import Charset
from htr.data.batches import (
    Batch,
    TrainingLines,
    TrainingPages,
    collate,
    padded_batches,
    runs_of_pages,
    unrolled,
)
from htr.data.inputs import Sample
from htr.data.sources import DataConfig
from htr.data.unroll import STRIDE
from htr.model import ctc
from htr.model.network import LineRecogniser
from htr.model.shards import Shards

log = logging.getLogger(__name__)

LINE_WIDTH = 640
"""What counts as one line when a batch is filled, px at a height of 48."""


class HtrTask(Task):
    """A line recogniser under training, chosen by its character error rate on the selection pages.

    Args:
        model: what is trained.
        config: how.
        charset: the classes of the characters.
        shards: parts of each batch; of several processes each computes its share in one.
    """

    goal = "cer"
    model: LineRecogniser

    def __init__(self, model: LineRecogniser, config: TrainConfig, charset: Charset, shards: int = 1) -> None:
        super().__init__(model, config)
        self.charset = charset
        self._read: list[tuple[str, str]] = []
        # Convolutions on a CPU are a quarter faster in this layout.
        self.model.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parts = shards if here().world == 1 else 1
        self._shards = Shards(self.model, shards) if self._parts > 1 else None

    def loss(self, batch: Batch) -> Tensor:
        """CTC over the characters, a mean over the lines."""
        parts = batch.split(self._parts)
        if self._shards is None or len(parts) == 1:
            return batch_loss(self.model, batch)
        lines = [len(part.labels) / len(batch.labels) for part in parts]
        return self._shards.loss(batch_loss, parts, lines)

    def weight(self, batch: Batch) -> float:
        """The number of lines."""
        return len(batch.labels)

    def describe(self, batch: Batch) -> str:
        """The first lines of the batch."""
        return ", ".join(batch.names[:3])

    def judge(self, batch: Batch) -> None:
        """Read a validation batch by the best path."""
        served: LineRecogniser = self.served  # type: ignore[assignment]
        self._read += zip(batch.texts, greedy_texts(served, batch, self.charset), strict=True)

    def scores(self) -> dict[str, float]:
        """`cer` and `wer` on the selection pages, which the processes read together."""
        distance = EditDistance()
        for truth, text in chain.from_iterable(gather(self._read)):
            distance.add(truth, text)
        self._read = []
        scores = distance.scores()
        return {"cer": float(scores["cer"]), "wer": float(scores["wer"])}

    def transfer_batch_to_device(
        self, batch: Batch | Nothing, device: torch.device, dataloader_idx: int
    ) -> Batch | Nothing:
        """Bring a batch to the device; Lightning does not know the type."""
        return batch.to(device)


def batch_loss(model: LineRecogniser, batch: Batch) -> Tensor:
    """CTC loss of a model on a batch, a scalar."""
    logits = model.lines(batch.images, batch.slots)
    return ctc.loss(logits, batch.slots.tokens, batch.labels)


def greedy_texts(model: LineRecogniser, batch: Batch, charset: Charset) -> Iterator[str]:
    """Read each line of a batch by the best path."""
    with torch.inference_mode():
        logits = model.read(batch.images, batch.slots)
    probabilities = logits.float().softmax(-1).cpu().numpy()
    for start, end in pairwise(batch.slots.offsets().tolist()):
        yield charset.decode([symbol.number for symbol in ctc.best_path(probabilities[start:end])])


class LineData(pl.LightningDataModule):
    """The batches of a training.

    Args:
        learned: lines at the model's height, ink high on 0.
        select: the lines that choose the epoch, likewise.
        charset: the characters to learn.
        settings: how lines are drawn.
        columns: pixel columns a batch holds, about.
    """

    def __init__(
        self,
        learned: Sequence[Sample],
        select: Sequence[Sample],
        charset: Charset,
        settings: DataConfig,
        columns: int,
    ) -> None:
        super().__init__()
        self.learned, self.select = learned, select
        self.charset, self.settings, self.columns = charset, settings, columns

    def train_dataloader(self) -> TrainingLines | TrainingPages:
        """Batches of augmented lines of equal width, or of unrolled pages."""
        settings = self.settings
        if settings.page_lines > 1:
            return TrainingPages(
                self.learned,
                self.charset,
                lines=settings.page_lines,
                columns=self.columns,
                stretch=settings.stretch,
                changes=settings.augment,
            )
        return TrainingLines(
            self.learned,
            self.charset,
            columns=self.columns,
            weights=settings.weights,
            stretch=settings.stretch,
            changes=settings.augment,
        )

    def val_dataloader(self) -> "SelectionLines":
        """Batches of the selection lines, or this process's share of them, read as the model was trained."""
        lines = self.settings.page_lines
        if lines == 1:
            groups = own(list(padded_batches(self.select)))
            return SelectionLines([collate(group, self.charset) for group in groups])
        runs = own(runs_of_pages(self.select, lines))
        pages = [unrolled([run], [[line.image for line in run]], self.charset) for run in runs]
        return SelectionLines(pages)


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
