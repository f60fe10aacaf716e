"""Reading order: columns found by cutting the page, then lines from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from htr.io.derive import pitch_of_lines
from htr.page import Direction, Line, Region, bounds_of, box_polygon

_WHOLE_COLUMN = 2
"""A column next to another needs this many lines, or it is part of a row."""


@dataclass(frozen=True, eq=False)
class _Boxes:
    """Lines as level boxes x0, y0, x1, y1 and heights of baselines, with the slant of the page removed."""

    sides: NDArray[np.float64]
    """[n, 4]."""
    level: NDArray[np.float64]
    """[n]."""
    pitch: float

    def of(self, chosen: NDArray[np.int64]) -> _Boxes:
        return _Boxes(self.sides[chosen], self.level[chosen], self.pitch)


def reading_order(
    lines: Sequence[Line], direction: Direction | None = None
) -> tuple[list[Line], list[Region]]:
    """Sort lines as they are read and put each column into a region of its own.

    The page is cut along the widest lane that no line crosses, left before right (right before left for
    `rtl`); where no lane reaches from top to bottom, headings and feet above and below columns are split off
    first. In a column lines go from top to bottom however far they are indented, pieces of one row along it.

    Args:
        lines: in any order; those without a place come last.
        direction: of the writing.
    """
    placed = [line for line in lines if line.bounds() is not None]
    lost = [line for line in lines if line.bounds() is None]
    if not placed:
        return list(lines), []
    boxes = _level_boxes(placed)
    ordered: list[Line] = []
    regions: list[Region] = []
    for number, column in enumerate(_columns(boxes, np.arange(len(placed)), direction == "rtl")):
        key = f"region_{number + 1:04d}"
        part = [replace(placed[index], region=key) for index in column]
        bounds = bounds_of(part)
        regions.append(Region(id=key, polygon=box_polygon(*bounds) if bounds else np.empty((0, 2))))
        ordered += part
    return ordered + lost, regions


def _level_boxes(lines: Sequence[Line]) -> _Boxes:
    slopes = []
    for line in lines:
        run = line.baseline[-1] - line.baseline[0] if len(line.baseline) > 1 else np.zeros(2)
        if abs(run[0]) > abs(run[1]):
            slopes.append(run[1] / run[0])
    slope = float(np.median(slopes)) if slopes else 0.0
    length = float(np.hypot(1.0, slope))
    turn = np.array([[1.0, slope], [-slope, 1.0]]) / length
    sides, level = [], []
    for line in lines:
        outline = (line.polygon if len(line.polygon) else line.baseline) @ turn.T
        base = (line.baseline if len(line.baseline) else line.polygon) @ turn.T
        sides.append(np.concatenate([outline.min(axis=0), outline.max(axis=0)]))
        level.append(float(base[:, 1].mean()))
    heights = [side[3] - side[1] for side in sides]
    pitch = pitch_of_lines(lines) or 1.2 * float(np.median(heights))
    return _Boxes(np.array(sides), np.array(level), max(pitch, 1.0))


def _columns(boxes: _Boxes, chosen: NDArray[np.int64], from_right: bool) -> list[list[int]]:
    """Lines by column, in reading order."""
    part = boxes.of(chosen)
    halves = _split_by_lane(part)
    parts = _split_by_band(part) if halves is None else list(halves[::-1] if from_right else halves)
    if not parts:
        return [_rows(boxes, chosen, from_right)]
    return [column for half in parts for column in _columns(boxes, chosen[half], from_right)]


def _split_by_lane(boxes: _Boxes) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Left and right of the widest white lane from top to bottom; None where lines cross every x."""
    left, right = boxes.sides[:, 0], boxes.sides[:, 2]
    # Letters hang over a little: a lane may be that much narrower than nothing.
    slack = 0.3 * boxes.pitch
    order = np.argsort(left)
    reach = np.maximum.accumulate(right[order])
    widths = left[order][1:] - reach[:-1]
    for cut in np.argsort(-widths):
        if widths[cut] < -slack:
            return None
        halves = np.sort(order[: cut + 1]), np.sort(order[cut + 1 :])
        if _are_columns(boxes, *halves):
            return halves
    return None


def _are_columns(boxes: _Boxes, left: NDArray[np.int64], right: NDArray[np.int64]) -> bool:
    """Whether two groups stand beside each other as columns rather than as ends of the same rows."""
    if min(len(left), len(right)) < _WHOLE_COLUMN:
        return False
    top = max(boxes.level[left].min(), boxes.level[right].min())
    bottom = min(boxes.level[left].max(), boxes.level[right].max())
    shorter = min(np.ptp(boxes.level[left]), np.ptp(boxes.level[right]))
    return bool(bottom - top > 0.3 * shorter and bottom - top > 0.5 * boxes.pitch)


def _split_by_band(boxes: _Boxes) -> list[NDArray[np.int64]]:
    """What is above, in, and below the largest band of rows that falls into columns; nothing if none does."""
    order = np.argsort(boxes.level)
    width = boxes.sides[:, 2] - boxes.sides[:, 0]
    is_wide = width[order] > 0.55 * (boxes.sides[:, 2].max() - boxes.sides[:, 0].min())
    # Only a line over several columns can end a band, and rows beside each other stay together.
    steps = np.diff(boxes.level[order]) >= 0.4 * boxes.pitch
    edges = [k for k in range(1, len(order)) if steps[k - 1] and (is_wide[k - 1] or is_wide[k])]
    edges = [0, *edges, len(order)]
    bands = [(a, b) for a in edges for b in edges if b - a >= 2 * _WHOLE_COLUMN and b - a < len(order)]
    for a, b in sorted(bands, key=lambda band: band[0] - band[1]):
        if _split_by_lane(boxes.of(np.sort(order[a:b]))) is not None:
            return [np.sort(part) for part in (order[:a], order[a:b], order[b:]) if len(part)]
    return []


def _rows(boxes: _Boxes, chosen: NDArray[np.int64], from_right: bool) -> list[int]:
    """The lines of a column from top to bottom, pieces of one row along the writing."""
    remaining = [int(index) for index in chosen[np.argsort(boxes.level[chosen], kind="stable")]]
    ordered: list[int] = []
    while remaining:
        first = remaining[0]
        row = [first]
        for other in remaining[1:]:
            beside = all(_beside(boxes, other, member) for member in row)
            if beside and abs(boxes.level[other] - boxes.level[first]) < 0.4 * boxes.pitch:
                row.append(other)
        row.sort(key=lambda index: boxes.sides[index, 0], reverse=from_right)
        ordered += row
        remaining = [index for index in remaining if index not in row]
    return ordered


def _beside(boxes: _Boxes, a: int, b: int) -> bool:
    """Whether two lines do not overlap along x."""
    overlap = min(boxes.sides[a, 2], boxes.sides[b, 2]) - max(boxes.sides[a, 0], boxes.sides[b, 0])
    return bool(overlap < 0.3 * boxes.pitch)
