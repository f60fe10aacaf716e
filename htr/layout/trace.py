"""From the ridge field to one curve a line: ridges traced, collinear pieces merged, columns kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ink import PITCH
from htr.layout.ridges import Ridges

LOW, HIGH = 0.09, 0.20
"""A ridge goes on while its response is above LOW, and is a line if it reaches HIGH somewhere."""
_OVERLAP, _HIGHEST_STEP = 0.75 * PITCH, 0.8 * PITCH
SHORTEST = 0.6 * PITCH
"""A shorter ridge is a speck, px."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The middle of a line of writing, one y for each x of a run of columns."""

    start: int
    y: NDArray[np.float64]
    """From column `start` on, px, [n]."""

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.start + len(self.y)

    def at(self, x: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """The curve at any x, straight on beyond its ends with the slope of its last pitch."""
        reach = min(len(self.y) - 1, round(1.5 * PITCH))
        columns = self.start + np.arange(len(self.y))
        inside = np.interp(x, columns, self.y)
        if reach == 0:
            return np.asarray(inside)
        left, right = (self.y[reach] - self.y[0]) / reach, (self.y[-1] - self.y[-1 - reach]) / reach
        before, after = np.minimum(np.subtract(x, self.start), 0), np.maximum(np.subtract(x, self.end - 1), 0)
        return np.asarray(inside + before * np.clip(left, -0.3, 0.3) + after * np.clip(right, -0.3, 0.3))

    def part(self, start: int, end: int) -> Curve:
        """The columns from `start` to before `end`, cut or prolonged."""
        return Curve(start, self.at(np.arange(start, end, dtype=np.float64)))


def trace(ridges: Ridges, walls: NDArray[np.bool_]) -> list[Curve]:
    """One curve a piece of a line; `walls` are pixels that no line crosses, [h, w]."""
    peaks = _peaks(ridges)
    peaks[walls] = 0
    # Neighbouring columns of one ridge differ by less than two rows at the slopes that are sought.
    thick = cv2.dilate(peaks, np.ones((3, 2), np.uint8))
    thick[walls] = 0
    count, labels = cv2.connectedComponents(thick, connectivity=8)
    rows, columns = np.nonzero(peaks)
    owners = labels[rows, columns]
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(1, count + 1))
    curves = []
    for first, last in pairwise(starts):
        part = order[first:last]
        curve = _curve(rows[part], columns[part], ridges.response)
        if curve is not None:
            curves.append(curve)
    return curves


def merge(curves: list[Curve], walls: NDArray[np.bool_], reach: float) -> list[Curve]:
    """Join pieces that continue each other across gaps of up to `reach` px.

    The nearest pairs first, so that a piece between two others is not jumped over.
    """
    pieces = dict(enumerate(sorted(curves, key=lambda curve: curve.start)))
    while True:
        pairs = [
            (cost, i, j)
            for i, j in _neighbours(pieces, reach)
            if (cost := _gap_cost(pieces[i], pieces[j], walls)) is not None
        ]
        if not pairs:
            return list(pieces.values())
        used: set[int] = set()
        for _, i, j in sorted(pairs):
            if i not in used and j not in used:
                pieces[i] = _joined(pieces[i], pieces[j])
                del pieces[j]
                used |= {i, j}


def _neighbours(pieces: dict[int, Curve], reach: float) -> list[tuple[int, int]]:
    """Pairs of which the second may go on where the first ends: only these are looked at closely."""
    keys = list(pieces)
    starts = np.array([pieces[key].start for key in keys])
    ends = np.array([pieces[key].end for key in keys])
    first = np.array([pieces[key].y[0] for key in keys])
    last = np.array([pieces[key].y[-1] for key in keys])
    gap = starts[None, :] - ends[:, None]
    near = (gap <= reach) & (gap >= -_OVERLAP) & (np.abs(first[None, :] - last[:, None]) <= _HIGHEST_STEP)
    near &= (starts[None, :] > starts[:, None]) & (ends[None, :] > ends[:, None])
    return [(keys[i], keys[j]) for i, j in np.argwhere(near)]


def absorb(curves: list[Curve]) -> list[Curve]:
    """Drop short curves that run close along a longer one: loops and accents, whose ink is that line's."""
    kept: list[Curve] = []
    for curve in sorted(curves, key=lambda curve: -len(curve.y)):
        if not any(_runs_along(curve, longer) for longer in kept):
            kept.append(curve)
    return kept


def curve_distance(curves: list[Curve]) -> float | None:
    """The usual distance from a curve to the next below, px; None for fewer than five that have one."""
    distances = []
    middles = np.array([curve.y.mean() for curve in curves])
    for a in curves:
        near = np.flatnonzero(np.abs(middles - a.y.mean()) < 6 * PITCH)
        below = [
            float(np.median(b.at(x) - a.at(x)))
            for b in (curves[index] for index in near)
            if b is not a and len(x := _shared(a, b)) >= 0.4 * min(len(a.y), len(b.y))
        ]
        below = [distance for distance in below if distance > 0]
        if below and len(a.y) > 3 * PITCH:
            distances.append(min(below))
    return float(np.median(distances)) if len(distances) >= 5 else None


def _shared(a: Curve, b: Curve) -> NDArray[np.float64]:
    return np.arange(max(a.start, b.start), min(a.end, b.end), dtype=np.float64)


def _runs_along(curve: Curve, longer: Curve) -> bool:
    x = _shared(curve, longer)
    if len(x) < 0.7 * len(curve.y):
        return False
    return bool(np.abs(curve.at(x) - longer.at(x)).mean() < 0.45 * PITCH)


def _peaks(ridges: Ridges) -> NDArray[np.uint8]:
    """Rows where the response is highest in its column and high enough for a line to go on, 0 or 1."""
    response = ridges.response
    above, below = np.roll(response, 1, axis=0), np.roll(response, -1, axis=0)
    return ((response > LOW) & (response >= above) & (response > below)).astype(np.uint8)


def _curve(
    rows: NDArray[np.int64], columns: NDArray[np.int64], response: NDArray[np.float32]
) -> Curve | None:
    start, end = int(columns.min()), int(columns.max()) + 1
    if end - start < SHORTEST or float(np.percentile(response[rows, columns], 75)) < HIGH:
        return None
    weight = np.bincount(columns - start, response[rows, columns])
    total = np.bincount(columns - start, rows * response[rows, columns])
    known = np.flatnonzero(weight)
    y = np.interp(np.arange(end - start), known, total[known] / weight[known])
    return Curve(start, _smooth(y, round(0.6 * PITCH)))


def _smooth(y: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    reach = min(reach, len(y) // 2)
    if reach < 1:
        return y
    padded = np.concatenate([2 * y[0] - y[reach:0:-1], y, 2 * y[-1] - y[-2 : -reach - 2 : -1]])
    return np.convolve(padded, np.full(2 * reach + 1, 1.0 / (2 * reach + 1)), mode="valid")


def _gap_cost(a: Curve, b: Curve, walls: NDArray[np.bool_]) -> float | None:
    """How far `b` is from going on where `a` ends; None where it does not."""
    gap = b.start - a.end
    x = (a.end + b.start) / 2.0
    # Each is prolonged to the middle, so that both ends have a say.
    offset = abs(float(a.at(x) - b.at(x)))
    direct = abs(float(a.y[-1] - b.y[0]))
    # Initials and the last loops of a line often sit higher or lower than the rest.
    limit = (0.5 if min(len(a.y), len(b.y)) < 1.5 * PITCH and gap < PITCH else 0.33) * PITCH
    if min(offset, direct) > limit or max(offset, direct) > _HIGHEST_STEP:
        return None
    steps = np.linspace(0, 1, max(abs(gap), 2))
    xs = np.clip(np.rint(a.end - 1 + steps * (b.start - a.end + 1)).astype(int), 0, walls.shape[1] - 1)
    ys = np.clip(np.rint(a.y[-1] + steps * (b.y[0] - a.y[-1])).astype(int), 0, walls.shape[0] - 1)
    if walls[ys, xs].any():
        return None
    return max(gap, 0) / PITCH + 2.0 * offset / PITCH


def _joined(a: Curve, b: Curve) -> Curve:
    columns = np.concatenate([np.arange(a.start, a.end), np.arange(b.start, b.end)])
    heights = np.concatenate([a.y, b.y])
    order = np.argsort(columns, kind="stable")
    y = np.interp(np.arange(a.start, b.end), columns[order], heights[order])
    return Curve(a.start, _smooth(y, round(0.4 * PITCH)))
