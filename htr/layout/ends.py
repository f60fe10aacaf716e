"""First and last letters whole: hairlines and flourishes that hang together with a line but are faint."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ink import PITCH, Ink
from htr.layout.trace import Curve

Strokes = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns of pixels."""

REACH = 1.25 * PITCH
"""What goes on farther than this beyond the letters of a line is a rule or other writing, px."""
INNER = 0.75 * PITCH
"""As much of a line is its first or last letter, px."""
FAINT = 0.3
"""As much ink is a stroke."""
CLEAN = 0.5
"""Where strokes beside a line that are nobody's are more than this part of its own, the paper is ruled."""


def end_strokes(faint: Ink, owner: NDArray[np.int32], index: int, curve: Curve) -> list[Strokes]:
    """The strokes beyond the left and the right end of a line that hang together with its letters.

    Args:
        faint: the ink down to hairlines, [h, w].
        owner: the number of the line that each inked pixel belongs to, -1 for none, [h, w].
        index: of the line.
        curve: its middle, cut to where its letters begin and end.
    """
    # The right end is the left one of the page in a mirror.
    width = faint.shape[1]
    mirrored = Curve(width - curve.end, curve.y[::-1])
    rows, columns = _before(faint[:, ::-1], owner[:, ::-1], index, mirrored)
    return [_before(faint, owner, index, curve), (rows, width - 1 - columns)]


def _before(faint: Ink, owner: NDArray[np.int32], index: int, curve: Curve) -> Strokes:
    """The strokes to the left of the first letters that hang together with them."""
    height, width = faint.shape
    x0, x1 = max(curve.start - round(REACH), 0), min(curve.start + round(INNER), curve.end, width)
    y0, y1 = max(int(curve.y[0] - REACH), 0), min(int(curve.y[0] + REACH) + 1, height)
    start = curve.start - x0
    if start <= 0 or x1 <= x0 or y1 <= y0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    near = owner[y0:y1, x0:x1]
    others = _grown((near >= 0) & (near != index))
    stroke = ((faint[y0:y1, x0:x1] > FAINT) & ~others) | (near == index)
    # A hairline is broken where it is thinnest.
    closed = cv2.morphologyEx(stroke.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8)) > 0
    joined = closed & (~others | (near == index))
    count, labels = cv2.connectedComponents(joined.astype(np.uint8), connectivity=8)
    mine, theirs = (np.zeros(count, np.bool_) for _ in range(2))
    mine[labels[:, start:][near[:, start:] == index]] = True
    theirs[labels[_grown(others)]] = True
    # What leaves the window is longer or higher than a letter; at the edge of the page nothing can.
    if x0 > 0:
        mine[labels[:, :2]] = False
    mine[labels[[0, -1]]] = False
    mine[0] = False
    beyond = stroke & (np.arange(x1 - x0) < start)
    own, rest = beyond & mine[labels], beyond & ~(mine | theirs)[labels]
    if np.count_nonzero(rest) > CLEAN * np.count_nonzero(own):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows, columns = np.nonzero(own)
    return rows + y0, columns + x0


def _grown(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """With the pixels around it: strokes have faint borders."""
    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0)
