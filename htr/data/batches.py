"""Batches of lines: padded ones that keep every line as it is, and training ones that need no padding."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import cv2
import numpy as np
import torch
from torch import Tensor

from geomix.parallel.ranks import NOTHING, Nothing, own
from htr.charset import Charset
from htr.data.augment import augment
from htr.data.inputs import Image, Sample
from htr.data.unroll import Slots, unroll


@dataclass(frozen=True, eq=False)
class Batch:
    """Lines side by side."""

    images: Tensor
    """float32 [B, height, W], paper 0, ink up to 1; 0 where there is no line."""
    slots: Slots
    """Where the lines are: one a row, or the lines of a page side by side."""
    labels: list[list[int]]
    """The classes of each line."""
    names: list[str]
    """The id of each line."""
    texts: list[str]

    @property
    def widths(self) -> Tensor:
        """The width of each line, px, int64 [lines]."""
        return self.slots.width

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        return Batch(self.images.to(device), self.slots.to(device), self.labels, self.names, self.texts)

    def split(self, parts: int) -> "list[Batch]":
        """Deal the rows out into at most `parts` batches."""
        return [self._deal(first, parts) for first in range(min(parts, len(self.images)))]

    def _deal(self, first: int, parts: int) -> "Batch":
        mine = self.slots.row % parts == first
        slots = Slots(self.slots.row[mine] // parts, self.slots.start[mine], self.slots.width[mine])
        lines = mine.nonzero().flatten().tolist()
        return Batch(
            self.images[first::parts],
            slots,
            [self.labels[line] for line in lines],
            [self.names[line] for line in lines],
            [self.texts[line] for line in lines],
        )


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
    return batch_of(images, Slots.one_a_row(widths), samples, charset)


def batch_of(images: Tensor, slots: Slots, samples: Sequence[Sample], charset: Charset) -> Batch:
    """Put the labels of the lines beside their images; characters that the charset lacks are left out."""
    texts = [sample.text for sample in samples]
    labels = [charset.encode_known(text) for text in texts]
    return Batch(images, slots, labels, [sample.id for sample in samples], texts)


def unrolled(pages: Sequence[Sequence[Sample]], images: Sequence[Sequence[Image]], charset: Charset) -> Batch:
    """Make a batch of pages, the lines of each side by side.

    Args:
        pages: the lines of each page in reading order.
        images: their images, which may have been changed, uint8 [height, w].
        charset: the classes of the characters.
    """
    rows = [[torch.from_numpy(image).float() / 255 for image in page] for page in images]
    stack, slots = unroll(rows)
    return batch_of(stack, slots, [sample for page in pages for sample in page], charset)


def runs_of_pages(samples: Sequence[Sample], lines: int) -> list[list[Sample]]:
    """Cut each page into runs of at most so many neighbouring lines, in their order."""
    pages: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        pages.setdefault((sample.source, sample.page), []).append(sample)
    return [page[first : first + lines] for page in pages.values() for first in range(0, len(page), lines)]


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
    Of several processes each takes its share of the lines of every batch, which may be none.
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

    def __iter__(self) -> Iterator[Batch | Nothing]:
        seed = int(torch.randint(2**62, ()))
        for number, (width, lines) in enumerate(self.plan(np.random.default_rng(seed))):
            mine = own(list(zip(lines, _streams(seed, number), strict=False)))
            yield self.make(width, mine) if mine else NOTHING

    def make(self, width: int, lines: Sequence[tuple[int, np.random.Generator]]) -> Batch:
        """Draw one batch of some lines, each with its own random numbers."""
        samples = [self.samples[line] for line, _ in lines]
        images = [
            augment(sample.image, width, rng)
            if self.changes
            else np.asarray(cv2.resize(sample.image, (width, sample.image.shape[0])), dtype=np.uint8)
            for sample, (_, rng) in zip(samples, lines, strict=True)
        ]
        pixels, widths = pad(images)
        return batch_of(pixels, Slots.one_a_row(widths), samples, self.charset)


class TrainingPages:
    """Epochs of augmented batches of unrolled pages, for a model whose lines see each other.

    All lines of a page share one stretch, as one hand wrote them. Of several processes each takes its share
    of the pages of every batch: one of fewer pages than processes leaves some idle.

    Args:
        samples: lines at the model's height, ink high, those of a page in reading order.
        charset: the classes of the characters.
        lines: how many neighbouring lines form a page at most.
        columns: pixel columns a batch holds, about.
        stretch: the largest factor by which a page becomes wider or narrower.
        changes: whether the images are changed at random.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        charset: Charset,
        *,
        lines: int = 16,
        columns: int = 10_240,
        stretch: float = 1.25,
        changes: bool = True,
    ) -> None:
        self.pages = runs_of_pages(samples, lines)
        self.charset = charset
        self.columns = columns
        self.stretch = stretch
        self.changes = changes

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self._groups())

    def _groups(self) -> list[list[list[Sample]]]:
        """Pages of like width together, so that little of a batch is empty."""
        groups: list[list[list[Sample]]] = []
        for page in sorted(self.pages, key=_width):
            if not groups or (len(groups[-1]) + 1) * _width(page) > self.columns:
                groups.append([])
            groups[-1].append(page)
        return groups

    def __iter__(self) -> Iterator[Batch | Nothing]:
        seed = int(torch.randint(2**62, ()))
        groups = self._groups()
        order = np.random.default_rng(seed).permutation(len(groups))
        for number, index in enumerate(order):
            mine = own(list(zip(groups[index], _streams(seed, number), strict=False)))
            pages = [page for page, _ in mine]
            images = [self._change(page, rng) for page, rng in mine]
            yield unrolled(pages, images, self.charset) if mine else NOTHING

    def _change(self, page: Sequence[Sample], rng: np.random.Generator) -> list[Image]:
        if not self.changes:
            return [sample.image for sample in page]
        factor = float(np.exp(rng.uniform(-1, 1) * np.log(self.stretch)))
        return [augment(line.image, max(8, round(line.image.shape[1] * factor)), rng) for line in page]


def _streams(seed: int, number: int) -> Iterator[np.random.Generator]:
    """Random numbers for each item of a batch, whoever draws it and whatever else it draws."""
    # From 1: trailing zeros would give the numbers that drew the order.
    return (np.random.default_rng([seed, number, place]) for place in count(1))


def _width(page: Sequence[Sample]) -> int:
    return sum(sample.image.shape[1] for sample in page)
