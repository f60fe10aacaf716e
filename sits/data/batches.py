"""Crops of labelled series, stacked into batches that depend on seed, epoch and place alone."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from geomix.errors import InputError
from sits.data.inputs import Inputs
from sits.data.labelled import IGNORE, LabelledSeries, Sample
from sits.grid import Window

Change = Callable[[Sample, np.random.Generator], Sample]

_TRIES = 20


class Batch(NamedTuple):
    """Samples of one size, stacked; series with fewer dates are filled up with invalid ones."""

    values: Tensor
    """Normalised bands, float32, [B, T, C, h, w]."""
    valid: Tensor
    """Bool, [B, T, h, w]."""
    days: Tensor
    """Int64, [B, T]; the last day is repeated over the filling, so that days never fall."""
    labels: Tensor
    """Int64, [B, h, w]."""
    names: tuple[str, ...]


def collate(samples: Sequence[Sample]) -> Batch:
    """Stack samples of one height and width."""
    dates = max(len(sample.days) for sample in samples)
    values, valid, days = [], [], []
    for sample in samples:
        more = dates - len(sample.days)
        values.append(np.pad(sample.values, ((0, more), (0, 0), (0, 0), (0, 0))))
        valid.append(np.pad(sample.valid, ((0, more), (0, 0), (0, 0))))
        days.append(np.pad(sample.days, (0, more), mode="edge"))
    return Batch(
        torch.from_numpy(np.stack(values)),
        torch.from_numpy(np.stack(valid)),
        torch.from_numpy(np.stack(days)),
        torch.from_numpy(np.stack([sample.labels for sample in samples])),
        tuple(sample.name for sample in samples),
    )


class Crops(Dataset[Sample]):
    """Random square crops; crop number i is the same whenever it is asked for.

    Crops may start at any pixel, so every pixel of a patch is used; series are drawn by their area, and a
    crop without any label is drawn anew.
    """

    def __init__(
        self,
        series: Sequence[LabelledSeries],
        inputs: Inputs,
        size: int,
        seed: int,
        change: Change | None = None,
        balanced: float = 0.0,
    ) -> None:
        """Draw crops.

        Args:
            series: what they are cut from.
            inputs: how they are prepared.
            size: their side, pixels.
            seed: with the number of a crop it decides where it lies and how it is changed.
            change: a random change to each crop.
            balanced: share of the crops that are laid around a pixel of a class drawn regardless of its size.

        Raises:
            InputError: if a series is smaller than a crop, or nothing is labelled.
        """
        if not series:
            raise InputError("there is no series to train on")
        for one in series:
            if min(one.part.height, one.part.width) < size:
                raise InputError(
                    f"{one.name}: {one.part.height} x {one.part.width} pixels are too few for crops of {size}"
                )
        self.series, self.inputs, self.size, self.seed = list(series), inputs, size, seed
        self.change, self.balanced = change, balanced
        areas = np.array([one.part.height * one.part.width for one in series], dtype=np.float64)
        self._shares = areas / areas.sum()
        self._classes = np.unique(np.concatenate([np.unique(one.labels[one.part.slices]) for one in series]))
        self._classes = self._classes[self._classes != IGNORE]
        if not len(self._classes):
            raise InputError("the training data hold no labelled pixel")

    def __getitem__(self, number: int) -> Sample:
        rng = np.random.default_rng([self.seed, number])
        one = self.series[0]
        window = Window(one.part.row, one.part.col, self.size, self.size)
        for _ in range(_TRIES):
            one = self.series[int(rng.choice(len(self.series), p=self._shares))]
            window = self._draw(one, rng)
            if (one.labels[window.slices] != IGNORE).any():
                break
        sample = one.sample(window, self.inputs)
        return sample if self.change is None else self.change(sample, rng)

    def _draw(self, one: LabelledSeries, rng: np.random.Generator) -> Window:
        """A window anywhere, or around a pixel of a class that is drawn regardless of its frequency."""
        part, size = one.part, self.size
        row = int(rng.integers(part.row, part.row + part.height - size + 1))
        col = int(rng.integers(part.col, part.col + part.width - size + 1))
        if rng.random() < self.balanced:
            found = np.argwhere(one.labels[part.slices] == rng.choice(self._classes))
            if len(found):
                y, x = found[int(rng.integers(len(found)))] - rng.integers(0, size, 2)
                row = part.row + int(np.clip(y, 0, part.height - size))
                col = part.col + int(np.clip(x, 0, part.width - size))
        return Window(row, col, size, size)


class Whole(Dataset[Sample]):
    """Whole series, as prediction sees them."""

    def __init__(self, series: Sequence[LabelledSeries], inputs: Inputs) -> None:
        self.series, self.inputs = list(series), inputs

    def __getitem__(self, number: int) -> Sample:
        return self.series[number].sample(self.series[number].whole, self.inputs)

    def __len__(self) -> int:
        return len(self.series)
