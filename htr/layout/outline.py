"""From curves to lines: each gets its ink, its ends, its baseline and its outline."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ends import Strokes, end_strokes
from htr.layout.ink import PITCH, Ink
from htr.layout.trace import Curve
from htr.page import Points

FARTHEST = 0.75 * PITCH
"""Ink farther than this from every curve belongs to no line, px."""
MARGIN = 0.06 * PITCH
"""Between the ink and the outline, px."""
TAIL = 0.8 * PITCH
"""How far from its dense part a line still has ink of its own, px."""
ACROSS = 0.15 * PITCH
"""What reaches that far both above and below the middle of a line is one of its letters, px."""
SPARSE = 0.3
"""Where a line has less than this part of its usual ink, it has not begun or is over."""


@dataclass(frozen=True, eq=False)
class Outlined:
    """A line with its place at the scale of the ink map."""

    curve: Curve
    baseline: Points
    polygon: Points
    ink: float
    """How much ink it holds, px of full ink."""
    thin: float
    """The largest part of the ink in a band as thin as a rule, 0 to 1."""


def outline(ink: Ink, faint: Ink, curves: list[Curve], gap: float) -> list[Outlined]:
    """Give the ink to the curves and draw a line around each.

    Args:
        ink: at the scale of `PITCH`.
        faint: the same down to hairlines, for the first and last letters.
        curves: middles of lines.
        gap: a line is cut where it has no ink for more than this, px.
    """
    owner = assign(ink, curves)
    lines: list[Outlined] = []
    for index, curve in enumerate(curves):
        for part in _runs(ink, owner, index, curve, gap):
            line = outlined(ink, owner, index, part, end_strokes(faint, owner, index, part))
            if line is not None:
                lines.append(line)
    return lines


def assign(ink: Ink, curves: list[Curve]) -> NDArray[np.int32]:
    """The number of the curve that each inked pixel belongs to, -1 for none, [h, w].

    Connected ink goes as a whole to the curve whose core most of it lies in, so that loops above and below
    stay with their letters; what reaches over several lines is cut in the middle between them.
    """
    height, width = ink.shape
    nearest, distance = _nearest(curves, (height, width))
    solid = (ink > 0.3).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid, connectivity=8)
    owner = np.where(solid > 0, nearest, -1)
    rows, columns = np.nonzero(solid)
    label, near = labels[rows, columns], nearest[rows, columns]
    core = np.exp(-0.5 * (distance[rows, columns] / (0.22 * PITCH)) ** 2) * ink[rows, columns]
    best, most, total = _votes(label.astype(np.int64), near, core, count, len(curves))
    share = most / np.maximum(total, 1e-9)
    # A part that lies in the cores of two lines is two letters that touch.
    whole = (share > 0.8) | (stats[:, cv2.CC_STAT_HEIGHT] < 1.1 * PITCH)
    whole &= (total > 0.02 * stats[:, cv2.CC_STAT_AREA]) & (stats[:, cv2.CC_STAT_HEIGHT] < 3.0 * PITCH)
    whole[0] = False
    owner[rows, columns] = np.where(whole[label], best[label], owner[rows, columns])
    # An upright stroke past two lines is the rest of a seam or a border.
    seam = (stats[:, cv2.CC_STAT_HEIGHT] > 2.0 * PITCH) & (stats[:, cv2.CC_STAT_WIDTH] < 0.3 * PITCH)
    owner[rows, columns] = np.where(seam[label], -1, owner[rows, columns])
    across = _across(solid, nearest, curves) & (owner >= 0) & (nearest >= 0)
    return np.where(across, nearest, owner).astype(np.int32)


def _across(solid: NDArray[np.uint8], nearest: NDArray[np.int32], curves: list[Curve]) -> NDArray[np.bool_]:
    """Ink that passes through the middle of the line nearest to it, cut halfway to the next lines, [h, w].

    A letter of one line whose tail touches a long word of the next is such a piece: however much more ink the
    word has, the letter stands in its own line.
    """
    parted = solid.copy()
    # Where one line is as near as the next, connected ink is cut.
    border = (nearest[1:] != nearest[:-1]) & (nearest[1:] >= 0) & (nearest[:-1] >= 0)
    parted[1:][border], parted[:-1][border] = 0, 0
    count, pieces = cv2.connectedComponents(parted, connectivity=8)
    rows, columns = np.nonzero((parted > 0) & (nearest >= 0))
    piece = np.asarray(pieces)[rows, columns].astype(np.int64)
    relative = np.zeros(len(rows))
    owners = nearest[rows, columns]
    order = np.argsort(owners, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        if len(part):
            # All of one line, because its curve is evaluated at many places at once.
            relative[part] = rows[part] - curves[owners[part[0]]].at(columns[part].astype(np.float64))
    highest, lowest = np.zeros(count), np.zeros(count)
    np.minimum.at(highest, piece, relative)
    np.maximum.at(lowest, piece, relative)
    across = np.minimum(-highest, lowest) > ACROSS
    return np.asarray(across[pieces])


def _votes(
    label: NDArray[np.int64],
    near: NDArray[np.int32],
    core: NDArray[np.float64],
    labels: int,
    curves: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """For each connected part the curve with most of its votes, those votes, and all votes, [labels] each."""
    known = near >= 0
    # Pairs that occur are few; a table of all parts by all curves would not fit for a page of noise.
    pairs, place = np.unique(label[known] * curves + near[known], return_inverse=True)
    votes = np.bincount(place, core[known], minlength=len(pairs))
    part = pairs // max(curves, 1)
    order = np.lexsort((votes, part))
    best, most = np.full(labels, -1, np.int64), np.zeros(labels)
    # In rising order: what is written last has most votes.
    best[part[order]], most[part[order]] = pairs[order] % max(curves, 1), votes[order]
    return best, most, np.bincount(part, votes, minlength=labels).astype(np.float64)


def _nearest(curves: list[Curve], size: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The nearest curve above or below each pixel within `FARTHEST`, and how far it is, [h, w] each."""
    height, width = size
    nearest = np.full(size, -1, np.int32)
    distance = np.full(size, FARTHEST, np.float32)
    reach = int(np.ceil(FARTHEST))
    offsets = np.arange(-reach, reach + 1)
    for index, curve in enumerate(curves):
        # A little beyond its ends, where the first and last letters hang over.
        start, end = max(curve.start - PITCH // 2, 0), min(curve.end + PITCH // 2, width)
        columns = np.arange(int(start), int(end))
        middle = curve.at(columns.astype(np.float64))
        rows = np.rint(middle)[:, None].astype(int) + offsets
        away = np.abs(rows - middle[:, None])
        xs = np.broadcast_to(columns[:, None], rows.shape)
        valid = (rows >= 0) & (rows < height)
        rows, xs, away = rows[valid], xs[valid], away[valid]
        closer = away < distance[rows, xs]
        distance[rows[closer], xs[closer]] = away[closer]
        nearest[rows[closer], xs[closer]] = index
    return nearest, distance


def _runs(ink: Ink, owner: NDArray[np.int32], index: int, curve: Curve, gap: float) -> list[Curve]:
    """The curve cut to where its writing begins and ends, and in pieces at long gaps."""
    x0, x1 = max(curve.start - round(2 * PITCH), 0), min(curve.end + round(2 * PITCH), ink.shape[1])
    y0, y1 = _rows(curve, ink.shape[0])
    mine = np.where(owner[y0:y1, x0:x1] == index, ink[y0:y1, x0:x1], 0.0)
    columns = mine.sum(axis=0)
    # Crumbs of ruling and paper beside the writing are sparse beside it.
    window = round(0.75 * PITCH)
    density = np.convolve(columns, np.full(window, 1.0 / window), mode="same")
    inked = density[columns > 0.5]
    if not len(inked):
        return []
    dense = np.flatnonzero((density > SPARSE * np.median(inked)) & (columns > 0.5))
    cuts = np.flatnonzero(np.diff(dense) > gap)
    firsts = dense[np.concatenate([[0], cuts + 1])]
    lasts = dense[np.concatenate([cuts, [len(dense) - 1]])]
    lit = np.flatnonzero(columns > 0.5)
    parts = []
    for a, b in zip(firsts, lasts, strict=True):
        # The point and the quotation mark at the end are sparse too, but near.
        near = lit[(lit > a - TAIL) & (lit < b + TAIL)]
        parts.append(curve.part(x0 + int(near[0]), x0 + int(near[-1]) + 1))
    return parts


def _rows(curve: Curve, height: int) -> tuple[int, int]:
    reach = 2.0 * PITCH
    return max(int(curve.y.min() - reach), 0), min(int(curve.y.max() + reach) + 1, height)


def outlined(
    ink: Ink, owner: NDArray[np.int32], index: int, curve: Curve, strokes: list[Strokes]
) -> Outlined | None:
    """Draw a line around the ink of one curve; None where it has next to none.

    Args:
        ink: at the scale of `PITCH`, [h, w].
        owner: the number of the curve that each inked pixel belongs to, -1 for none, [h, w].
        index: of the curve.
        curve: the middle of the line from its first to its last letter.
        strokes: of its first and last letters, beyond its ends.
    """
    y0, y1 = _rows(curve, ink.shape[0])
    x0, x1 = max(curve.start, 0), min(curve.end, ink.shape[1])
    mine = np.where(owner[y0:y1, x0:x1] == index, ink[y0:y1, x0:x1], 0.0)
    rows, columns = np.nonzero(mine > 0.3)
    if len(rows) < 12 or x1 - x0 < 3:
        return None
    level = curve.y[np.arange(x0, x1) - curve.start]
    relative = rows + y0 - level[columns]
    weight = mine[rows, columns]
    foot = _foot(relative, columns, weight, x1 - x0)
    # What is left of a rule is flat; accents and loops are not.
    upright = cv2.morphologyEx((mine > 0.3).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 1), np.uint8))
    letters = (np.asarray(upright)[rows, columns] > 0) | (np.abs(relative) < 0.4 * PITCH)
    # From here on with the strokes beyond the ends, which say nothing of where the letters stand.
    ys = np.concatenate([rows[letters] + y0, *(stroke[0] for stroke in strokes)])
    xs = np.concatenate([columns[letters] + x0, *(stroke[1] for stroke in strokes)])
    first, last = int(xs.min(initial=x0)), int(xs.max(initial=x1 - 1)) + 1
    whole = curve.part(first, last)
    top, bottom = _edges(ys - whole.y[xs - first], xs - first, last - first)
    baseline = _polyline(first, whole.y + np.pad(foot, (x0 - first, last - x1), mode="edge"))
    polygon = _polygon(first, whole.y, top, bottom)
    return Outlined(whole, baseline, polygon, float(weight.sum()), _thinness(relative, weight))


def _thinness(relative: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """The largest share of the ink within an eighth of a pitch of rows."""
    rows = np.rint(relative).astype(int)
    profile = np.bincount(rows - rows.min(), weight)
    band = np.convolve(profile, np.ones(round(PITCH / 8)), mode="full")
    return float(band.max() / max(profile.sum(), 1e-9))


def _foot(
    relative: NDArray[np.float64], columns: NDArray[np.int64], weight: NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """How far below the curve the letters stand, for each column, px, [width].

    In windows of a few letters: the row below the middle at which the ink falls off fastest.
    """
    window = 3.0 * PITCH
    centres = np.arange(0, max(width - 0.5 * window, 1), 0.5 * window) + min(0.5 * window, width / 2)
    rows = np.arange(-round(PITCH), round(PITCH) + 1)
    whole = _fall(relative, weight, rows, prior=0.25 * PITCH, spread=0.2 * PITCH)
    feet = []
    for centre in centres:
        inside = np.abs(columns - centre) <= 0.5 * window
        feet.append(
            _fall(relative[inside], weight[inside], rows, prior=whole, spread=0.1 * PITCH)
            if np.count_nonzero(inside) > 20
            else whole
        )
    smooth = np.array([np.median(feet[max(i - 1, 0) : i + 2]) for i in range(len(feet))])
    return np.asarray(np.interp(np.arange(width), centres[: len(smooth)], smooth))


def _fall(
    relative: NDArray[np.float64],
    weight: NDArray[np.float64],
    rows: NDArray[np.int64],
    prior: float,
    spread: float,
) -> float:
    """The row of the steepest fall of the ink, near a place where it is expected."""
    profile = np.bincount(
        np.clip(np.rint(relative).astype(int) - int(rows[0]), 0, len(rows) - 1), weight, minlength=len(rows)
    )
    sigma = 0.06 * PITCH
    bell = np.exp(-0.5 * (np.arange(-6, 7) / sigma) ** 2)
    smooth = np.convolve(profile, bell / bell.sum(), mode="same")
    fall = np.maximum(-np.gradient(smooth), 0.0) * np.exp(-0.5 * ((rows - prior) / spread) ** 2)
    return float(rows[fall.argmax()]) if fall.max() > 0 else prior


def _polyline(x0: int, y: NDArray[np.float64]) -> Points:
    """A curve as few points: a straight line where that is enough."""
    x = np.arange(len(y), dtype=np.float64)
    points = np.stack([x + x0, y], axis=1)
    straight = np.polyval(np.polyfit(x, y, 1), x) if len(y) > 2 else y
    if np.abs(straight - y).max() < 0.06 * PITCH:
        return np.array([[x0, straight[0]], [x0 + len(y) - 1.0, straight[-1]]])
    kept = cv2.approxPolyDP(points.astype(np.float32).reshape(-1, 1, 2), 0.05 * PITCH, False)
    return np.asarray(kept.reshape(-1, 2), np.float64)


def _edges(
    relative: NDArray[np.float64], columns: NDArray[np.int64], width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The highest and lowest ink in each window of half a pitch, relative to the curve, [windows] each."""
    step = 0.5 * PITCH
    windows = max(round(width / step), 1)
    place = np.minimum((columns * windows) // width, windows - 1)
    top, bottom = np.full(windows, -0.3 * PITCH), np.full(windows, 0.3 * PITCH)
    np.minimum.at(top, place, relative)
    np.maximum.at(bottom, place, relative)
    return top, bottom


def _polygon(
    x0: int, level: NDArray[np.float64], top: NDArray[np.float64], bottom: NDArray[np.float64]
) -> Points:
    """The outline around the ink with a margin, simplified, [m, 2]."""
    margin = MARGIN
    width, windows = len(level), len(top)
    # Each window reaches into its neighbours, so that the outline cuts no loop.
    high = np.minimum(top, np.minimum(np.append(top[1:], top[-1]), np.append(top[0], top[:-1])))
    low = np.maximum(bottom, np.maximum(np.append(bottom[1:], bottom[-1]), np.append(bottom[0], bottom[:-1])))
    high, low = (high + top) / 2 - margin, (low + bottom) / 2 + margin
    high, low = np.minimum(high, top - 1), np.maximum(low, bottom + 1)
    centres = (np.arange(windows) + 0.5) * width / windows
    x = np.concatenate([[0.0], centres, [width - 1.0]])
    y = np.interp(x, np.arange(width), level)
    ends = np.concatenate([[-margin], np.zeros(windows), [margin]])
    upper = np.stack([x + x0 + ends, y + np.concatenate([[high[0]], high, [high[-1]]])], axis=1)
    lower = np.stack([x + x0 + ends, y + np.concatenate([[low[0]], low, [low[-1]]])], axis=1)
    ring = np.concatenate([upper, lower[::-1]]).astype(np.float32).reshape(-1, 1, 2)
    return np.asarray(cv2.approxPolyDP(ring, 0.04 * PITCH, True).reshape(-1, 2), np.float64)
