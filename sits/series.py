"""An image time series: where, when and which bands, read window by window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from sits.bands import require_bands
from sits.grid import Grid, Window

Values = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Source(Protocol):
    """Whatever can read a window of some dates: files, an xarray object, an array."""

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Reflectance [T, C, h, w] of those steps and bands, and where all bands have data [T, h, w]."""


@dataclass(frozen=True)
class Acquisition:
    """One date of a series and how its numbers were read."""

    date: date
    names: tuple[str, ...] = ()
    """The files or items that show this date."""
    offset: str = "none"
    """What was added to its digital numbers, and why."""


@dataclass(frozen=True)
class TimeSeries:
    """A satellite image time series that is read by windows, never as a whole.

    Dates rise strictly; scenes of one day are one acquisition.
    """

    grid: Grid
    acquisitions: tuple[Acquisition, ...]
    bands: tuple[str, ...]
    source: Source = field(repr=False)
    name: str = "series"
    """What messages call it."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Decisions on how to read it: scale, nodata and what else was found or guessed."""
    steps: tuple[int, ...] | None = None
    """Which acquisitions of the source these are; None for all, in order."""

    def __post_init__(self) -> None:
        if not self.acquisitions:
            raise InputError(f"{self.name}: has no dates")
        dates = self.dates
        for earlier, later in pairwise(dates):
            if earlier >= later:
                raise InputError(f"{self.name}: dates must rise, got {later} after {earlier}")

    @property
    def dates(self) -> tuple[date, ...]:
        """The date of each acquisition, rising."""
        return tuple(acquisition.date for acquisition in self.acquisitions)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Dates, bands, rows, columns."""
        return len(self.acquisitions), len(self.bands), *self.grid.shape

    def read(self, window: Window | None = None) -> tuple[Values, Mask]:
        """Read a window of all dates, or the whole grid.

        Returns:
            values: reflectance, about 0 to 1, float32 [T, C, h, w], bands in the order of `bands`;
                0 where there are no data.
            valid: where all of these bands have data, bool [T, h, w].
        """
        steps = range(len(self.acquisitions)) if self.steps is None else self.steps
        return self.source.read(tuple(steps), self.bands, window or self.grid.whole)

    def select(self, bands: Sequence[str]) -> "TimeSeries":
        """The series with these bands, in this order.

        Raises:
            InputError: if one is missing.
        """
        require_bands(bands, self.bands, self.name)
        return replace(self, bands=tuple(bands))

    def between(self, first: date | None = None, last: date | None = None) -> "TimeSeries":
        """The acquisitions from `first` to `last`, both included.

        Raises:
            InputError: if none is left.
        """
        keep = [
            index
            for index, day in enumerate(self.dates)
            if (first is None or day >= first) and (last is None or day <= last)
        ]
        if not keep:
            raise InputError(
                f"{self.name}: has no date from {first or 'the start'} to {last or 'the end'}; "
                f"its dates run from {self.dates[0]} to {self.dates[-1]}"
            )
        steps = self.steps or tuple(range(len(self.acquisitions)))
        return replace(
            self,
            acquisitions=tuple(self.acquisitions[index] for index in keep),
            steps=tuple(steps[index] for index in keep),
        )

    @classmethod
    def from_arrays(
        cls,
        values: NDArray[np.floating],
        dates: Sequence[date],
        bands: Sequence[str],
        grid: Grid,
        valid: Mask | None = None,
        name: str = "series",
    ) -> "TimeSeries":
        """A series that lies in memory.

        Args:
            values: reflectance [T, C, H, W]; what is not finite has no data.
            dates: one for each step, in any order.
            bands: one name for each channel.
            grid: where the pixels lie.
            valid: where there are data, [T, H, W]; None for wherever the values are finite.
            name: what messages call the series.

        Raises:
            InputError: if the shapes do not fit together or a date comes twice.
        """
        expected = (len(dates), len(bands), *grid.shape)
        if values.shape != expected:
            raise InputError(f"{name}: values must be [T, C, H, W] = {expected}, got {values.shape}")
        if valid is None:
            valid = np.ones((len(dates), *grid.shape), dtype=bool)
        if valid.shape != (len(dates), *grid.shape):
            raise InputError(
                f"{name}: valid must be [T, H, W] = {(len(dates), *grid.shape)}, got {valid.shape}"
            )
        order = sorted(range(len(dates)), key=lambda index: dates[index])
        return cls(
            grid=grid,
            acquisitions=tuple(Acquisition(dates[index]) for index in order),
            bands=tuple(bands),
            source=ArraySource(values, valid, tuple(bands)),
            name=name,
            steps=tuple(order),
        )


@dataclass(frozen=True)
class ArraySource:
    """Reflectance that lies in memory."""

    values: NDArray[np.floating]
    valid: Mask
    bands: tuple[str, ...]

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Cut the window out of the array."""
        rows, cols = window.slices
        channels = [self.bands.index(band) for band in bands]
        part = self.values[:, :, rows, cols][list(steps)][:, channels].astype(np.float32)
        valid = self.valid[:, rows, cols][list(steps)] & np.isfinite(part).all(axis=1)
        return np.where(valid[:, None], part, np.float32(0)), valid
