"""Line detection without any trained part: ink, ridges, gutters, curves, outlines, reading order."""

from __future__ import annotations

import logging

import numpy as np

from htr.io.images import Grey
from htr.layout.gutters import gutters
from htr.layout.ink import PITCH, InkMap, ink_map
from htr.layout.outline import Outlined, outline
from htr.layout.ridges import ridges
from htr.layout.trace import merge, trace
from htr.page import Line

log = logging.getLogger(__name__)

REACH = 2.6 * PITCH
"""Pieces of a line with a wider gap between them are two lines, px."""


def detect_lines(grey: Grey, merge_pieces: bool = True) -> list[Line]:
    """Find the lines of a page with dark writing on light paper, from top to bottom as found.

    Args:
        grey: the page, [H, W].
        merge_pieces: join collinear pieces; otherwise each run of words stays a line of its own.

    Returns:
        Lines in pixels of `grey`; none for an empty page.
    """
    found = ink_map(grey)
    if found is None:
        return []
    field = ridges(found.ink)
    walls = gutters(found.ink, field.slope)
    curves = trace(field, walls)
    if merge_pieces:
        curves = merge(curves, walls, REACH)
    lines = [line for line in outline(found.ink, curves, REACH) if _is_writing(line)]
    return [_line(line, index, found) for index, line in enumerate(lines)]


def _is_writing(line: Outlined) -> bool:
    """No speck, no stroke of a frame, no remainder of a rule."""
    width, height = np.ptp(line.polygon, axis=0)
    if line.ink < 0.06 * PITCH * PITCH or width < 0.3 * PITCH:
        return False
    # The rest of a ruled line is long and nearly without height.
    return bool(line.height > 0.12 * PITCH and line.ink > 0.02 * width * PITCH)


def _line(line: Outlined, index: int, found: InkMap) -> Line:
    # Centres of pixels: the middle of the first is at half a pixel at every scale.
    baseline, polygon = ((points + 0.5) / found.scale - 0.5 for points in (line.baseline, line.polygon))
    return Line(id=f"line_{index + 1:04d}", baseline=baseline, polygon=polygon)
