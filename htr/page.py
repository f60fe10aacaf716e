"""A handwritten page as every room of this package passes it on: lines in reading order, in page pixels.

Coordinates are float pixels of the upright page image, x to the right and y down, [n, 2] as (x, y).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Direction = Literal["ltr", "rtl"]


def as_points(points: Iterable[Sequence[float]] | NDArray[np.floating] | None) -> Points:
    """Points as a float array [n, 2]; nothing gives [0, 2]."""
    if points is None:
        return np.empty((0, 2))
    array = np.asarray(points if isinstance(points, np.ndarray) else list(points), dtype=np.float64)
    return array.reshape(-1, 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Line:
    """One line of writing: where it is and, once read, what it says."""

    id: str
    """Unique on the page; lines keep the name that an XML file gave them."""
    baseline: Points = field(default_factory=lambda: as_points(None))
    """What the letters stand on, from the start of the image row to its end, [n, 2]; may be empty."""
    polygon: Points = field(default_factory=lambda: as_points(None))
    """The outline of the ink, [m, 2]; may be empty."""
    is_band: bool = False
    """Whether the polygon is only a band around the baseline, since the file gave none."""
    text: str | None = None
    """In logical order, NFC; None where the line has not been read."""
    confidence: float | None = None
    """Geometric mean of the confidences of the characters, 0 to 1."""
    char_confidences: tuple[float, ...] = ()
    """For each character of `text` the highest probability in its run of the network's output, 0 to 1."""
    char_boxes: Points = field(default_factory=lambda: np.empty((0, 4)))
    """For each character of `text` its approximate place as x0, y0, x1, y1, [len(text), 4], or [0, 4]."""
    region: str | None = None
    """The id of the region that holds the line."""
    direction: Direction | None = None
    """The base direction of the text, where a file or an option gave it."""
    kind: str | None = None
    """What a file or a detector calls the line, such as `heading`."""
    is_aside: bool = False
    """Whether the line is read but no part of the text of its page, as a printed letterhead is."""
    error: str | None = None
    """Why the line could not be read; its slot stays, so that no other line moves."""

    def bounds(self) -> tuple[float, float, float, float] | None:
        """The box x0, y0, x1, y1 around polygon and baseline; None for a line without a place."""
        return _bounds([self.polygon if len(self.polygon) else self.baseline])

    def is_degenerate(self) -> bool:
        """Whether the line covers no area and no length, so that nothing can be cut out of the image."""
        return _extent(self.baseline) < 2.0 and (len(self.polygon) < 3 or min(_sides(self.polygon)) < 2.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Region:
    """A part of the page that holds lines, such as a column or a margin note."""

    id: str
    polygon: Points = field(default_factory=lambda: as_points(None))
    kind: str | None = None
    direction: Direction | None = None


@dataclass(frozen=True)
class Origin:
    """The XML file that a page was read from; writing the same format again changes only what is ours."""

    format: Literal["page", "alto"]
    xml: bytes
    path: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Page:
    """A page: its size, its regions and its lines in reading order."""

    width: int
    height: int
    size_known: bool = True
    """Whether the size is that of an image, or only the extent of lines whose file gives none."""
    lines: tuple[Line, ...] = ()
    orientation: int = 0
    """By how many degrees the page had to be turned clockwise to be read: 0, 90, 180 or -90."""
    is_sideways: bool = False
    """Whether its lines, as found, seem to run from top to bottom."""
    is_found: bool = False
    """Whether its lines were found in the image, and not given by somebody."""
    dropped: tuple[Line, ...] = ()
    """What was found and not taken for writing; `error` says why."""
    regions: tuple[Region, ...] = ()
    source: str = ""
    """The name of the image file."""
    frame: int = 0
    """Which page of the image file, from 0."""
    direction: Direction | None = None
    """The base direction of the whole page, where a file or an option gave it."""
    origin: Origin | None = None

    @property
    def text(self) -> str:
        """One line of text per line of the page, without those aside; an unread line gives an empty one."""
        return "\n".join(line.text or "" for line in self.lines if not line.is_aside)

    def direction_of(self, line: Line) -> Direction | None:
        """The base direction of a line: its own, else its region's, else the page's."""
        regions = {region.id: region.direction for region in self.regions}
        return line.direction or regions.get(line.region or "") or self.direction

    def scaled(self, x: float, y: float, width: int, height: int) -> Page:
        """The same page with all coordinates multiplied, as an image of another size shows it."""
        factor = np.array([x, y])
        lines, dropped = (
            tuple(
                replace(
                    line,
                    baseline=line.baseline * factor,
                    polygon=line.polygon * factor,
                    char_boxes=line.char_boxes * np.tile(factor, 2),
                )
                for line in part
            )
            for part in (self.lines, self.dropped)
        )
        regions = tuple(replace(region, polygon=region.polygon * factor) for region in self.regions)
        return replace(self, lines=lines, dropped=dropped, regions=regions, width=width, height=height)


def clip_points(points: Points, width: int, height: int) -> Points:
    """Points moved onto the page, as the schemas of PAGE and ALTO demand."""
    return np.clip(points, 0.0, [max(width - 1, 0), max(height - 1, 0)])


def bounds_of(lines: Iterable[Line]) -> tuple[float, float, float, float] | None:
    """The box x0, y0, x1, y1 around all lines; None where none of them has a place."""
    return _bounds([line.polygon if len(line.polygon) else line.baseline for line in lines])


def box_polygon(x0: float, y0: float, x1: float, y1: float) -> Points:
    """The four corners of a box, clockwise from the top left, [4, 2]."""
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], dtype=np.float64)


def parse_points(text: str) -> Points:
    """The points of a PAGE or ALTO attribute, whether written `x,y x,y` or `x y x y`.

    A number without a partner is dropped.
    """
    numbers = [float(number) for number in re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", text)]
    return np.array(numbers[: len(numbers) // 2 * 2], dtype=np.float64).reshape(-1, 2)


def _bounds(parts: Sequence[Points]) -> tuple[float, float, float, float] | None:
    points = [part for part in parts if len(part)]
    if not points:
        return None
    stacked = np.concatenate(points)
    x0, y0 = stacked.min(axis=0)
    x1, y1 = stacked.max(axis=0)
    return float(x0), float(y0), float(x1), float(y1)


def _sides(points: Points) -> tuple[float, float]:
    """Width and height of the box around points."""
    width, height = points.max(axis=0) - points.min(axis=0)
    return float(width), float(height)


def _extent(points: Points) -> float:
    """The longer side of the box around points."""
    return max(_sides(points)) if len(points) else 0.0
