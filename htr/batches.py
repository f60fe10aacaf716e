"""Batches of lines: padded ones that keep every line as it is, and training ones that need no padding."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from htr.augment import augment
from htr.charset import Charset
from htr.data import Image, Sample


@dataclass(frozen=True, eq=False)
class Batch:
    """Lines side by side."""

    images: Tensor
    """float32 [B, height, W], paper 0, ink up to 1; 0 behind the end of a line."""
    widths: Tensor
    """The width of each line, px, int64 [B]."""
    labels: list[list[int]]
    """The classes of each line."""
    names: list[str]
    """The id of each line."""
    texts: list[str]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        return Batch(self.images.to(device), self.widths.to(device), self.labels, self.names, self.texts)

    def split(self, parts: int) -> "list[Batch]":
        """Deal the lines out into at most `parts` batches."""
        deals = [slice(first, None, parts) for first in range(min(parts, len(self.labels)))]
        return [
            Batch(self.images[deal], self.widths[deal], self.labels[deal], self.names[deal], self.texts[deal])
            for deal in deals
        ]


def pad(images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """Put images of one height side by side, each at the left of its row.

    Args:
        images: uint8 [height, width], ink high on 0.

    Returns:
        float32 [B, height, widest] in 0..1, and the widths, int64 [B].
    """
    widths = torch.tensor([image.shape[1] for image in images])
    stack = np.zeros((len(images), images[0].shape[0], int(widths.max())), dtype=np.uint8)
    for row, image in zip(stack, images, strict=True):
        row[:, : image.shape[1]] = image
    return torch.from_numpy(stack).float() / 255, widths


def padded_batches(samples: Sequence[Sample], columns: int = 16_384) -> Iterator[list[Sample]]:
    """Group lines of like width, the widest first, so that a batch holds at most `columns` pixel columns.

    A line wider than `columns` forms a batch alone.
    """
    group: list[Sample] = []
    for sample in sorted(samples, key=lambda sample: -sample.image.shape[1]):
        if group and (len(group) + 1) * group[0].image.shape[1] > columns:
            yield group
            group = []
        group.append(sample)
    if group:
        yield group


def collate(samples: Sequence[Sample], charset: Charset) -> Batch:
    """Make a batch of lines as they are."""
    images, widths = pad([sample.image for sample in samples])
    texts = [sample.text for sample in samples]
    labels = [charset.encode_known(text) for text in texts]
    return Batch(images, widths, labels, [sample.id for sample in samples], texts)


class TrainingLines:
    """Epochs of augmented batches in which all lines have the same width.

    Each line draws a stretch; lines are sorted by the stretched width and cut into batches; the last few
    pixels are settled by stretching to the width of the batch. No column is padding, nothing needs a mask.

    Args:
        samples: lines at the model's height, ink high.
        charset: the classes of the characters.
        columns: pixel columns a batch holds, about; 10,240 are 16 lines of 640 px.
        weights: how often a line of a set is seen in an epoch, 1 where a set is not named.
        stretch: the largest factor by which a line becomes wider or narrower.
        changes: whether the images are changed at random.

    Each iteration draws its order and its changes from torch's random numbers, so that they follow the seed.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        charset: Charset,
        *,
        columns: int = 10_240,
        weights: Mapping[str, float] | None = None,
        stretch: float = 1.25,
        changes: bool = True,
    ) -> None:
        self.samples = list(samples)
        self.charset = charset
        self.columns = columns
        self.weights = dict(weights or {})
        self.stretch = stretch
        self.changes = changes

    def __len__(self) -> int:
        """About how many batches an epoch has; the drawn stretches decide."""
        return len(self.plan(np.random.default_rng(0)))

    def plan(self, rng: np.random.Generator) -> list[tuple[int, list[int]]]:
        """Draw the batches of an epoch: the width in px and the lines of each."""
        shares = np.array([self.weights.get(sample.source, 1.0) for sample in self.samples])
        counts = np.floor(shares).astype(np.int64) + (rng.random(len(shares)) < shares % 1)
        chosen = np.repeat(np.arange(len(shares)), counts)
        limit = np.log(self.stretch) if self.changes else 0.0
        factors = np.exp(rng.uniform(-limit, limit, len(chosen)))
        widths = np.array([self.samples[line].image.shape[1] for line in chosen]) * factors
        batches: list[tuple[int, list[int]]] = []
        group: list[int] = []
        total = 0.0
        for line in np.argsort(widths, kind="stable"):
            if group and total + widths[line] > self.columns:
                batches.append(self._batch(group, total))
                group, total = [], 0.0
            group.append(int(line))
            total += float(widths[line])
        if group:
            batches.append(self._batch(group, total))
        batches = [(width, [int(chosen[line]) for line in lines]) for width, lines in batches]
        return [batches[index] for index in rng.permutation(len(batches))]

    @staticmethod
    def _batch(group: list[int], total: float) -> tuple[int, list[int]]:
        return max(8, round(total / len(group) / 4) * 4), list(group)

    def __iter__(self) -> Iterator[Batch]:
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        for width, lines in self.plan(rng):
            yield self.make(width, lines, rng)

    def make(self, width: int, lines: Sequence[int], rng: np.random.Generator) -> Batch:
        """Draw one batch."""
        samples = [self.samples[line] for line in lines]
        images = [
            augment(sample.image, width, rng)
            if self.changes
            else np.asarray(cv2.resize(sample.image, (width, sample.image.shape[0])), dtype=np.uint8)
            for sample in samples
        ]
        pixels, widths = pad(images)
        labels = [self.charset.encode_known(sample.text) for sample in samples]
        return Batch(
            pixels, widths, labels, [sample.id for sample in samples], [sample.text for sample in samples]
        )
