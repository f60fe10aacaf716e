"""Windows of an xarray object: its numbers decoded, masked, and fused where several are of one day."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geomix.errors import FormatError
from sits.grid import Window
from sits.io.masks import Rule, grow
from sits.io.scenes import undeclared_met, zeros
from sits.radiometry import Radiometry
from sits.series import Mask, Values

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CubeBand:
    """Where one band lies in the object, and what its numbers mean."""

    variable: Hashable
    place: int | None
    """Its place along the band dimension; None where it is a variable of its own."""
    radiometry: Radiometry
    unsigned: bool = False
    """Whether signed numbers are meant as unsigned ones (`_Unsigned`)."""


@dataclass(frozen=True)
class CubeMask:
    """Where a mask layer lies in the object, and which of its numbers hide the ground."""

    variable: Hashable
    place: int | None
    rule: Rule


@dataclass
class CubeSource:
    """Reads windows of an xarray object; same-day steps are fused, first valid pixel first."""

    data: xr.Dataset
    dims: tuple[Hashable, Hashable, Hashable]
    """The names of time, y and x."""
    band_dim: Hashable | None
    bands: Mapping[str, CubeBand]
    steps: tuple[tuple[int, ...], ...]
    """The places along the time dimension of each acquisition."""
    offsets: tuple[float, ...]
    """What is added to the digital numbers of each place along the time dimension."""
    name: str = "series"
    masks: tuple[CubeMask, ...] = ()
    """What hides the ground."""
    dilate: int = 0
    """Pixels by which the masked areas grow."""
    _told: set[str] = field(default_factory=set)

    @property
    def lazy(self) -> bool:
        """Whether dask holds the numbers, so that nothing is read before it is asked for."""
        return any(self.data[one.variable].chunks for one in self.bands.values())

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Reflectance [T, C, h, w] and where there are data [T, h, w]."""
        places = [place for step in steps for place in self.steps[step]]
        values, valid = self._read(places, bands, window)
        if len(places) == len(steps):
            return values, valid
        fused = np.zeros((len(steps), *values.shape[1:]), dtype=np.float32)
        known = np.zeros((len(steps), *valid.shape[1:]), dtype=bool)
        start = 0
        for target, step in enumerate(steps):
            for source in range(start, start + len(self.steps[step])):
                new = valid[source] & ~known[target]
                fused[target] = np.where(new, values[source], fused[target])
                known[target] |= valid[source]
            start += len(self.steps[step])
        return fused, known

    def _read(self, places: list[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        shape = (len(places), len(bands), window.height, window.width)
        values = np.zeros(shape, dtype=np.float32)
        valid = np.ones((shape[0], *shape[2:]), dtype=bool)
        empty = np.ones_like(valid)
        met: set[str] = set()
        for variable in dict.fromkeys(self.bands[band].variable for band in bands):
            wanted = [band for band in bands if self.bands[band].variable == variable]
            block = self._numbers(variable, places, [self.bands[band].place for band in wanted], window)
            for position, band in enumerate(wanted):
                radiometry = self.bands[band].radiometry
                numbers = block[:, position]
                if self.bands[band].unsigned and np.issubdtype(numbers.dtype, np.signedinteger):
                    numbers = numbers.view(f"u{numbers.dtype.itemsize}")
                channel = bands.index(band)
                for offset in {self.offsets[place] for place in places}:
                    rows = [row for row, place in enumerate(places) if self.offsets[place] == offset]
                    shifted = replace(radiometry, offset=radiometry.offset + offset)
                    values[rows, channel], known = shifted.decode(numbers[rows])
                    valid[rows] &= known
                empty &= zeros(numbers, radiometry.nodata, len(bands))
                met |= undeclared_met(numbers, radiometry.nodata, radiometry.missing_numbers(numbers.dtype))
        if empty.any():
            met.add("0 in all bands")
            valid &= ~empty
        if self.masks:
            valid &= ~self._hidden(places, window)
        for number in sorted(met - self._told):
            self._told.add(number)
            log.warning(
                "%s: no nodata value is declared; %s is taken for missing (say otherwise with --nodata)",
                self.name,
                number,
            )
        return values, valid

    def masked(self, step: int, window: Window) -> Mask:
        """Where masks hide the ground in all images of a date, [h, w]."""
        return np.asarray(self._hidden(list(self.steps[step]), window).all(axis=0))

    def _hidden(self, places: list[int], window: Window) -> Mask:
        """Where masks hide the ground, [T, h, w]."""
        _, y, x = self.dims
        outer = window.pad(self.dilate, (self.data.sizes[y], self.data.sizes[x]))
        found = np.zeros((len(places), outer.height, outer.width), dtype=bool)
        for mask in self.masks:
            found |= mask.rule.hidden(self._numbers(mask.variable, places, [mask.place], outer)[:, 0])
        rows, cols = window.within(outer)
        return grow(found, self.dilate)[:, rows, cols]

    def _numbers(
        self, variable: Hashable, places: list[int], channels: list[int | None], window: Window
    ) -> NDArray[Any]:
        """The numbers as they stand, [T, C, h, w]."""
        time, y, x = self.dims
        rows, cols = window.slices
        part = self.data[variable].isel({time: _slice_or_list(places), y: rows, x: cols})
        if self.band_dim is not None and self.band_dim in part.dims:
            part = part.isel({self.band_dim: _slice_or_list([c for c in channels if c is not None])})
            part = part.transpose(time, self.band_dim, y, x)
            return np.ascontiguousarray(load(part, self.name))
        return np.ascontiguousarray(load(part.transpose(time, y, x), self.name))[:, None]


def _slice_or_list(places: list[int]) -> slice | list[int]:
    """A slice where the places run without a gap: files read it in one go."""
    if places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return places


def load(part: xr.DataArray, name: str) -> NDArray[Any]:
    """The numbers of a part of an object as they stand.

    Raises:
        FormatError: if its file is damaged.
    """
    try:
        return np.asarray(part.values)
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise FormatError(f"{name}: is damaged or truncated ({reason[:120]}); get the file again") from error
