"""Gutters: white lanes between columns or facing pages, which no line of writing crosses."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ink import PITCH, Ink

CELL = 4
"""Side of the squares in which emptiness is looked at, px."""
NARROWEST = 0.6 * PITCH
"""A narrower lane is a gap between words, px."""
SHORTEST = 7.0 * PITCH
"""A shorter lane is a chance alignment of such gaps, px."""


def gutters(ink: Ink, slope: NDArray[np.float32]) -> NDArray[np.bool_]:
    """The middle of each lane that is empty over many lines and has writing on both sides, [h, w].

    Args:
        ink: at the scale of `PITCH`.
        slope: rise of y with x of the writing; lanes are sought at right angles to it, [h, w].
    """
    angle = float(np.median(slope))
    height, width = ink.shape
    # Sheared so that lanes at right angles to the writing stand upright.
    shear = np.array([[1.0, angle, 0.0 if angle > 0 else -angle * height], [0.0, 1.0, 0.0]])
    wide = width + int(abs(angle) * height) + 1
    upright = cv2.warpAffine(ink, shear, (wide, height), flags=cv2.INTER_LINEAR)
    cells = cv2.resize(upright, (-(-wide // CELL), -(-height // CELL)), interpolation=cv2.INTER_AREA)
    lanes = _lanes(cells > 0.04)
    walls = cv2.resize(lanes.astype(np.uint8), (wide, height), interpolation=cv2.INTER_NEAREST)
    back = cv2.invertAffineTransform(shear)
    return np.asarray(cv2.warpAffine(walls, back, (width, height), flags=cv2.INTER_NEAREST) > 0)


def _lanes(occupied: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Cells in the middle of lanes, [rows, columns]."""
    lane = max(round(NARROWEST / CELL), 1)
    free = cv2.erode((~occupied).astype(np.uint8), np.ones((1, lane), np.uint8), borderValue=1)
    length = round(SHORTEST / CELL)
    tall = cv2.morphologyEx(free, cv2.MORPH_OPEN, np.ones((length, 1), np.uint8)) > 0
    # A margin has writing on one side only, so each row of a lane must see some on both, at a stone's throw.
    reach = round(5.0 * PITCH / CELL)
    count = np.cumsum(np.pad(occupied.astype(np.int32), ((0, 0), (1, 0))), axis=1)
    columns = np.arange(occupied.shape[1])
    left = count[:, columns] - count[:, np.maximum(columns - reach, 0)]
    right = count[:, np.minimum(columns + reach, occupied.shape[1])] - count[:, columns]
    sees = ((left > 0) & (right > 0)).astype(np.float32)
    # Between lines there is no writing on any side: share over a window of two lines.
    window = round(2.0 * PITCH / CELL)
    near = cv2.dilate(sees, np.ones((window, 1), np.uint8))
    lanes = cv2.morphologyEx(
        (tall & (near > 0)).astype(np.uint8), cv2.MORPH_OPEN, np.ones((length, 1), np.uint8)
    )
    found = np.zeros_like(tall)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(lanes, connectivity=4)
    for index in range(1, len(stats)):
        x, y, width, height = stats[index][:4]
        part = labels[y : y + height, x : x + width] == index
        share = part.sum(axis=0)
        best = np.flatnonzero(share == share.max())
        column = int(best[len(best) // 2])
        found[y + np.flatnonzero(part[:, column]), x + column] = True
    return found
