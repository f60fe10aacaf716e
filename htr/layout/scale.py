"""Whether a page was searched at the right scale, and at which others to try."""

from __future__ import annotations

import cv2
import numpy as np

from htr.layout.ink import PITCH, Ink, writing_height
from htr.layout.trace import Curve, curve_distance

GOOD = 0.8
"""From this fit on no other scale is tried. Of 16 real pages at the right scale 15 have 0.82 to 0.99."""
ENOUGH = 0.7
"""Where the first estimate fits badly, the first other scale with this fit ends the search."""
DOUBT = 0.03
"""By that much the fit of another scale must be better: no more than this tells nothing."""
_SAME = 0.15
"""Scales that differ by less than this share are the same."""
_CORE = 0.3 * PITCH
"""Half the height of the band around a curve in which the ink of its line is, px."""
_LARGEST = 3200
"""Longer side of a page whose lines are `PITCH` apart, px: 100 lines below each other, or very long ones."""
_FINEST, _COARSEST = 0.5, 3.0
"""The right pitch is never further from the first estimate than this."""


def fit(ink: Ink, curves: list[Curve]) -> float:
    """How well curves explain the ink: the share of it that is close to one, less for a wrong distance.

    At a scale that is too coarse every other line has no curve of its own; at one that is too fine, and
    where the curves run between the lines, most ink is beside them.

    Args:
        ink: of the page, [h, w].
        curves: traced in it.

    Returns:
        At most 1, for ink that is all within 0.3 of the pitch of a curve.
    """
    total = float(ink.sum())
    if total <= 0:
        return 0.0
    middle = np.zeros(ink.shape, np.uint8)
    for curve in curves:
        points = np.stack([np.arange(curve.start, curve.end), np.rint(curve.y)], axis=1).astype(np.int32)
        cv2.polylines(middle, [points], False, 1)
    core = cv2.dilate(middle, np.ones((2 * round(_CORE) + 1, 1), np.uint8)) > 0
    distance = curve_distance(curves)
    uneven = 0.0 if distance is None else abs(float(np.log(distance / PITCH)))
    return float(ink[core].sum()) / total - 0.5 * uneven


def other_pitches(ink: Ink, curves: list[Curve]) -> list[float]:
    """Distances of lines that may be the right one, in parts of the one that gave the curves.

    The measured one, then coarser ones, which take little time, then half. None is less than the height of
    the letters nor makes the page larger than pages of writing are: on one that lies on its side, and on
    noise, letters are lines and every speck is a letter.
    """
    height = writing_height(ink)
    if height is None:
        return []
    least = max(height / PITCH, min(max(ink.shape) / _LARGEST, 1.0))
    distance = curve_distance(curves)
    measured = [] if distance is None else [float(np.clip(distance / PITCH, _FINEST, _COARSEST))]
    chosen: list[float] = []
    for factor in [*measured, 1.5, 2.0, 0.5]:
        if factor >= least and all(abs(np.log(factor / other)) > _SAME for other in [1.0, *chosen]):
            chosen.append(factor)
    return chosen
