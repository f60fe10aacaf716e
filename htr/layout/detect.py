"""Line detection without any trained part: ink, ridges, gutters, curves, outlines, reading order."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from htr.io.images import Grey
from htr.layout.gutters import gutters
from htr.layout.headings import split_headings
from htr.layout.ink import PITCH, Ink, InkMap, ink_map, ink_map_at
from htr.layout.outline import Outlined, outline
from htr.layout.ridges import ridges
from htr.layout.sideways import SIDEWAYS, uprightness
from htr.layout.trace import Curve, absorb, curve_distance, merge, trace
from htr.page import Line

log = logging.getLogger(__name__)

REACH = 2.6 * PITCH
"""Pieces of a line with a wider gap between them are two lines, px."""
APART = 1.0 * PITCH
"""Where pieces are not joined, a wider gap parts them, px."""


def detect_lines(grey: Grey, merge_pieces: bool = True, name: str = "the page") -> list[Line]:
    """Find the lines of a page with dark writing on light paper, from top to bottom as found.

    Args:
        grey: the page, [H, W].
        merge_pieces: join collinear pieces; otherwise each run of words stays a line of its own.
        name: of the page, for a warning.

    Returns:
        Lines in pixels of `grey`; none for an empty page.
    """
    found = ink_map(grey)
    if found is None:
        return []
    if uprightness(found.ink) < SIDEWAYS:
        log.warning("%s: its lines seem to run from top to bottom; turn it by 90 degrees and try again", name)
    usual, headings = split_headings(found)
    curves = _curves(usual.ink, merge_pieces)
    distance = curve_distance(curves)
    if distance is not None and abs(np.log(distance / PITCH)) > 0.15:
        # The first estimate took letters for lines or the reverse: once more at the scale of what was found.
        found = ink_map_at(grey, found.scale * PITCH / distance)
        usual, headings = split_headings(found)
        curves = _curves(usual.ink, merge_pieces)
    lines = _lines(usual, curves, merge_pieces)
    if headings is not None:
        lines += _lines(headings, _curves(headings.ink, merge_pieces), merge_pieces)
    return [replace(line, id=f"line_{number + 1:04d}") for number, line in enumerate(lines)]


def _lines(found: InkMap, curves: list[Curve], merge_pieces: bool) -> list[Line]:
    gap = REACH if merge_pieces else APART
    lines = outline(found.ink, found.faint, curves, gap)
    return [_line(line, found) for line in lines if _is_writing(line, found.ink.shape)]


def _curves(ink: Ink, merge_pieces: bool) -> list[Curve]:
    field = ridges(ink)
    walls = gutters(ink, field.slope)
    curves = trace(field, walls)
    return absorb(merge(curves, walls, REACH)) if merge_pieces else curves


def _is_writing(line: Outlined, size: tuple[int, int]) -> bool:
    """No speck, no remainder of a frame or a rule."""
    (x0, y0), (x1, y1) = line.polygon.min(axis=0), line.polygon.max(axis=0)
    width = x1 - x0
    if line.ink < 0.06 * PITCH * PITCH or width < 0.3 * PITCH:
        return False
    margin = 0.25 * PITCH
    if width < 3.0 * PITCH and (x0 < margin or y0 < margin or x1 > size[1] - margin or y1 > size[0] - margin):
        return False
    # The rest of a ruled line or the edge of the sheet.
    return bool(line.thin < 0.6 and line.ink > 0.02 * width * PITCH)


def _line(line: Outlined, found: InkMap) -> Line:
    # Centres of pixels: the middle of the first is at half a pixel at every scale.
    baseline, polygon = ((points + 0.5) / found.scale - 0.5 for points in (line.baseline, line.polygon))
    return Line(id="line", baseline=baseline, polygon=polygon)
