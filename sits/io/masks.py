"""Clouds and what else hides the ground: the mask layers of products, and those of the user.

Sources: ESA, Sentinel-2 scene classification; USGS, Landsat Collection 2 QA_PIXEL; NASA, HLS v2 Fmask;
Sentinel Hub, CLM and CLP of s2cloudless.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from sits.grid import Grid, Window
from sits.io.raster import FilePool, RasterBand, RasterFile, Warp, grid_of, open_raster
from sits.radiometry import Radiometry
from sits.series import Mask, Source, TimeSeries, Values


@dataclass(frozen=True)
class Rule:
    """Which numbers of a mask layer mean that nothing is to be seen."""

    name: str
    values: tuple[int, ...] = ()
    bits: tuple[int, ...] = ()
    """Places of bits, from 0; one that is set is enough."""
    least: int | None = None
    """The smallest number, of a layer of probabilities."""

    def hidden(self, numbers: NDArray[np.generic]) -> Mask:
        """Where nothing is to be seen, in the shape of the numbers."""
        found = np.isin(numbers, self.values)
        if np.issubdtype(numbers.dtype, np.floating):
            found |= np.isnan(numbers)
        if self.bits:
            whole = np.nan_to_num(numbers.astype(np.float64)).astype(np.int64)
            found |= (whole & sum(1 << bit for bit in self.bits)) != 0
        if self.least is not None:
            found |= numbers >= np.array(self.least, dtype=numbers.dtype)
        return np.asarray(found)

    def __str__(self) -> str:
        parts = [*map(str, self.values), *(f"bit{bit}" for bit in self.bits)]
        return f"{self.name}={','.join(parts)}" if self.least is None else f"{self.name}>={self.least}"


RULES = {
    # No data, saturated, cloud shadow, clouds of medium and high probability, cirrus; snow stays.
    "SCL": Rule("SCL", values=(0, 1, 3, 8, 9, 10)),
    # Fill, dilated cloud, cirrus, cloud, cloud shadow.
    "QA_PIXEL": Rule("QA_PIXEL", bits=(0, 1, 2, 3, 4)),
    # Cloud, adjacent to cloud, cloud shadow; 255, fill, has these bits too.
    "FMASK": Rule("FMASK", bits=(1, 2, 3)),
    "CLM": Rule("CLM", values=(1, 255)),
    # 40 per cent of 255, the threshold of s2cloudless.
    "CLP": Rule("CLP", least=102),
}
"""The layers that are understood, by name."""

_SUSPECT = re.compile(r"CLOUD|QA60|CLDPRB|S2CLOUDLESS|(?:^|_)QA(?:_|$)|BQA|STATE_1KM|PIXEL_?QA")


@dataclass(frozen=True)
class MaskFile:
    """A mask layer of one acquisition in a raster file."""

    file: RasterFile
    rule: Rule

    def hidden(self, window: Window, pool: FilePool) -> Mask:
        """Where nothing is to be seen, [h, w]."""
        return self.rule.hidden(self.file.read(["mask"], window, pool)[0])


def layer_in(text: str) -> str | None:
    """The key of `RULES` that a band, variable, asset or file is called by, in whatever case."""
    words = re.sub(r"[^A-Z0-9]+", "_", text.upper())
    return next((name for name in RULES if re.search(rf"(?:^|_){name}(?:_\d+M)?(?:_|$)", words)), None)


def looks_like_mask(text: str) -> bool:
    """Whether a layer is probably a mask, though none that is understood."""
    words = re.sub(r"[^A-Z0-9]+", "_", text.upper())
    return layer_in(text) is None and _SUSPECT.search(words) is not None


def rule_for(text: str, choice: str) -> Rule | None:
    """The rule of a layer of that name, by the user's choice; None where it is no mask, or none is wanted.

    Args:
        text: what the layer is called.
        choice: `auto`, `none`, a file, or `layer=values`.
    """
    told = parse_rule(choice)
    if told is not None:
        words = re.sub(r"[^A-Z0-9]+", "_", text.upper())
        return told if re.search(rf"(?:^|_){re.escape(told.name)}(?:_|$)", words) else None
    found = layer_in(text)
    return RULES[found] if choice == "auto" and found is not None else None


def parse_rule(choice: str) -> Rule | None:
    """The rule in `SCL=3,8,9` or `QA60=bit10,bit11`; None where the choice is another.

    Raises:
        InputError: if a value is neither a whole number nor a bit.
    """
    name, sign, listed = choice.partition("=")
    if not sign or Path(choice).exists():
        return None
    values: list[int] = []
    bits: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"\s*(bit)?(\d+)\s*", part, re.IGNORECASE)
        if match is None:
            raise InputError(f"--mask {choice!r}: {part!r} is no value; write SCL=3,8,9 or QA60=bit10,bit11")
        (bits if match[1] else values).append(int(match[2]))
    return Rule(re.sub(r"[^A-Z0-9]+", "_", name.strip().upper()), tuple(values), tuple(bits))


def mask_file(path: Path, index: int, own: Grid, target: Grid, rule: Rule) -> MaskFile:
    """A band of a raster as a mask on the grid of a series, by nearest neighbour where it lies on another."""
    moved = target.difference(own) is not None
    bands = {"mask": RasterBand(index, Radiometry(1.0))}
    return MaskFile(RasterFile(str(path), bands, Warp(target, "nearest") if moved else None), rule)


def user_mask(choice: str, grid: Grid) -> MaskFile | None:
    """The raster that `--mask FILE` names, which hides what is not 0, on the grid of a series.

    Raises:
        InputError: if the choice is neither a word that is known, nor a layer with its values, nor a file.
    """
    if choice in ("auto", "none") or parse_rule(choice) is not None:
        return None
    if not Path(choice).is_file():
        raise InputError(f"--mask {choice!r} must be auto, none, a raster, or a layer such as SCL=3,8,9,10")
    with open_raster(choice) as dataset:
        own = grid_of(dataset)
    return mask_file(Path(choice), 1, own, grid, Rule("mask", least=1))


@dataclass
class MaskedSource:
    """A source of which a raster of the user hides the same pixels on all dates."""

    source: Source
    mask: MaskFile
    grid: Grid
    dilate: int
    pool: FilePool = field(default_factory=FilePool)

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Reflectance [T, C, h, w] and where there are data that the mask does not hide [T, h, w]."""
        values, valid = self.source.read(steps, bands, window)
        valid = valid & ~self.masked(0, window)
        return np.where(valid[:, None], values, np.float32(0)), valid

    def masked(self, step: int, window: Window) -> Mask:
        """Where the mask hides the ground, on every date, [h, w]."""
        return hidden_by([self.mask], self.grid, window, self.pool, self.dilate)


def with_user_mask(series: TimeSeries, choice: str, dilate: int) -> TimeSeries:
    """The series with what `--mask FILE` hides taken out; as it is for every other choice."""
    mask = user_mask(choice, series.grid)
    if mask is None:
        return series
    source = MaskedSource(series.source, mask, series.grid, dilate)
    return replace(series, source=source, notes={**series.notes, "mask": Path(choice).name})


def hidden_by(masks: Sequence[MaskFile], grid: Grid, window: Window, pool: FilePool, dilate: int) -> Mask:
    """Where any of the masks hides the ground or comes within `dilate` pixels of it, [h, w]."""
    outer = window.pad(dilate, grid.shape)
    found = np.zeros((outer.height, outer.width), dtype=bool)
    for mask in masks:
        found |= mask.hidden(outer, pool)
    rows, cols = window.within(outer)
    return grow(found, dilate)[rows, cols]


def grow(hidden: Mask, pixels: int) -> Mask:
    """Masks [..., h, w] whose areas reach `pixels` further, along rows and columns and across."""
    found = hidden
    for axis in (-2, -1):
        length, before = hidden.shape[axis], found
        for step in range(1, min(pixels, length - 1) + 1):
            near = [np.take(before, range(*span), axis) for span in ((step, length), (0, length - step))]
            blank = np.zeros_like(np.take(before, range(step), axis))
            found = found | np.concatenate([near[0], blank], axis) | np.concatenate([blank, near[1]], axis)
    return found
