"""Writing much larger than that of the page, such as headings: sought apart, at a scale of its own."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ink import PITCH, Ink, InkMap

_THICKER = 1.7
"""Strokes of a heading are that much thicker than those of the page."""
_FEWEST = 3
"""A heading has this many high letters beside each other; fewer are blots and initials."""
_WIDEST = 1.5
"""Between two letters of a heading is at most that much of its height."""
_HEIGHT = 0.5 * PITCH
"""Median height of the high letters where a heading is sought, px: no stroke of theirs is a line then."""


def split_headings(found: InkMap) -> tuple[InkMap, InkMap | None]:
    """The writing of the page without its headings, and these at the scale at which they look like lines.

    Args:
        found: the ink of a page at the scale of its usual writing.

    Returns:
        The ink without headings, and that of headings alone; None where there are none.
    """
    solid = (found.ink > 0.35).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid, connectivity=8)
    if count < _FEWEST + 1:
        return found, None
    thickness = _thickness(solid, np.asarray(labels), count)
    width, height, area = (stats[:, key] for key in (cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT, cv2.CC_STAT_AREA))
    writing = (area > 20) & (height < 8 * PITCH)
    writing[0] = False
    if not writing.any():
        return found, None
    order = np.argsort(thickness[writing])
    # By the room that writing takes, not by its ink, of which bold letters have most.
    weight = np.cumsum(width[writing][order])
    usual = float(thickness[writing][order][np.searchsorted(weight, weight[-1] / 2)])
    thick = writing & (thickness > _THICKER * usual) & (height > 0.25 * PITCH) & (width < 8 * PITCH)
    # High and thick, but open as letters are: a blot is filled.
    letters = thick & (height > 1.1 * PITCH) & (area < 0.8 * width * height)
    rows = _rows(np.asarray(stats), letters)
    if not rows:
        return found, None
    chosen = np.zeros(count, np.bool_)
    middle = stats[:, cv2.CC_STAT_TOP] + height / 2
    for top, bottom in rows:
        level = (middle > top) & (middle < bottom)
        # With thin letters, points and accents, or these would be found as lines of their own.
        chosen |= level & (thick | (writing & _inside(np.asarray(stats), thick & level, bottom - top)))
    mask = chosen[labels]
    size = float(np.median(height[letters & chosen]))
    # A stroke has faint borders.
    faint = np.where(cv2.dilate(mask.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0, 0, found.faint)
    usual_ink = np.where(mask, 0, found.ink).astype(np.float32)
    rest = replace(found, ink=usual_ink, faint=faint.astype(np.float32))
    return rest, _shrunk(found, mask, size)


def _thickness(solid: NDArray[np.uint8], labels: NDArray[np.int32], count: int) -> NDArray[np.float64]:
    """Twice the mean distance from the middle of a stroke to its edge, for each connected part, px."""
    depth = cv2.distanceTransform(solid, cv2.DIST_L2, 3)
    ridge = (depth >= cv2.dilate(depth, np.ones((3, 3), np.uint8))) & (solid > 0)
    number = np.bincount(labels[ridge], minlength=count)
    return np.asarray(2 * np.bincount(labels[ridge], depth[ridge], minlength=count) / np.maximum(number, 1))


def _rows(stats: NDArray[np.int32], letters: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Top and bottom of each row of high letters that has enough of them."""
    tops = stats[letters, cv2.CC_STAT_TOP].astype(np.float64)
    bottoms = tops + stats[letters, cv2.CC_STAT_HEIGHT]
    rows = []
    left = np.ones(len(tops), np.bool_)
    while left.any():
        first = np.flatnonzero(left)[0]
        share = np.minimum(bottoms, bottoms[first]) - np.maximum(tops, tops[first])
        same = left & (share > 0.5 * np.minimum(bottoms - tops, bottoms[first] - tops[first]))
        if np.count_nonzero(same) >= _FEWEST:
            rows.append((float(tops[same].min()), float(bottoms[same].max())))
        left &= ~same
    return rows


def _inside(stats: NDArray[np.int32], thick: NDArray[np.bool_], size: float) -> NDArray[np.bool_]:
    """Which parts lie in a run of thick letters along x, for a heading `size` px high."""
    left = stats[:, cv2.CC_STAT_LEFT]
    right = left + stats[:, cv2.CC_STAT_WIDTH]
    found = np.zeros(len(stats), np.bool_)
    order = np.flatnonzero(thick)[np.argsort(left[thick])]
    reach = np.maximum.accumulate(right[order])
    gaps = left[order][1:] - reach[:-1]
    for run in np.split(order, np.flatnonzero(gaps > _WIDEST * size) + 1):
        # The first and last letters may be broken too, so a little beyond them.
        found |= (left >= left[run].min() - 0.3 * size) & (right <= right[run].max() + 0.3 * size)
    return found


def _shrunk(found: InkMap, mask: NDArray[np.bool_], size: float) -> InkMap:
    """The masked ink at the scale at which letters `size` high are those of usual writing."""
    factor = min(_HEIGHT / size, 1.0)
    ink = np.where(mask, found.ink, 0).astype(np.float32)
    shape = (max(round(ink.shape[1] * factor), 1), max(round(ink.shape[0] * factor), 1))
    small: Ink = np.asarray(cv2.resize(ink, shape, interpolation=cv2.INTER_AREA), np.float32)
    return InkMap(small, found.scale * factor, small)
