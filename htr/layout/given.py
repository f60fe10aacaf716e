"""Outlines for lines of which only the baseline is known, from the ink that stands on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from htr.io.derive import pitch_of_lines
from htr.io.images import Grey
from htr.layout.ends import end_strokes
from htr.layout.ink import PITCH, ink_map_at
from htr.layout.outline import assign, outlined
from htr.layout.trace import Curve
from htr.page import Line, Points

MIDDLE = 0.25 * PITCH
"""The middle of small letters lies that high above the baseline, px."""
STEEPEST = 0.4
"""Steeper baselines, of this slope or more, keep the band around them: the ink is not searched along them."""


def outline_from_ink(grey: Grey, lines: Sequence[Line]) -> list[Line]:
    """Draw the outline of each line that has only a band around its baseline.

    Args:
        grey: the page, dark ink on light paper, [H, W].
        lines: in pixels of `grey`; those with an outline of their own keep it, but hold their ink.

    Returns:
        The lines in their order. One with no ink on its baseline keeps its band.
    """
    pitch = pitch_of_lines(lines)
    known = [number for number, line in enumerate(lines) if _is_level(line.baseline)]
    if pitch is None or not any(lines[number].is_band for number in known):
        return list(lines)
    found = ink_map_at(grey, PITCH / pitch)
    curves = [_curve(lines[number].baseline, found.scale) for number in known]
    owner = assign(found.ink, curves)
    result = list(lines)
    for index, number in enumerate(known):
        if not lines[number].is_band:
            continue
        curve = curves[index]
        drawn = outlined(found.ink, owner, index, curve, end_strokes(found.faint, owner, index, curve))
        if drawn is not None:
            polygon = (drawn.polygon + 0.5) / found.scale - 0.5
            result[number] = replace(lines[number], polygon=polygon, is_band=False)
    return result


def _is_level(baseline: Points) -> bool:
    """Whether a baseline runs from left to right and is not steep."""
    if len(baseline) < 2:
        return False
    run = baseline[-1] - baseline[0]
    return bool(run[0] > 0 and abs(run[1]) < STEEPEST * run[0] and (np.diff(baseline[:, 0]) >= 0).all())


def _curve(baseline: Points, scale: float) -> Curve:
    """The middle of the small letters on a baseline in page pixels, at the scale of the ink."""
    x, y = ((baseline + 0.5) * scale - 0.5).T
    start = max(int(np.floor(x[0])), 0)
    columns = np.arange(start, max(int(np.ceil(x[-1])), start + 2))
    return Curve(start, np.interp(columns, x, y) - MIDDLE)
