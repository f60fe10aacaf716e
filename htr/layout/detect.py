"""Line detection without any trained part: ink, ridges, gutters, curves, outlines, reading order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from htr.io.images import Grey
from htr.layout.flat import is_flat, one_a_row
from htr.layout.gutters import gutters
from htr.layout.headings import split_headings
from htr.layout.ink import PITCH, Ink, InkMap, ink_map, ink_map_at
from htr.layout.outline import Outlined, outline
from htr.layout.ridges import ridges
from htr.layout.scale import DOUBT, ENOUGH, GOOD, fit, other_pitches
from htr.layout.sideways import SIDEWAYS, uprightness
from htr.layout.trace import Curve, absorb, merge, trace
from htr.page import Line, box_polygon

REACH = 2.6 * PITCH
"""Pieces of a line with a wider gap between them are two lines, px."""
SPECK = "a speck"
EDGE = "a short piece at the edge of the image"
RULE = "a rule or the edge of a sheet"
FAINT = "too faint"
PICTURE = "a seal, a stamp or a drawing"
THINNEST = 0.75
"""What has more than this part of its ink in a band as thin as a rule is no writing."""
APART = 1.0 * PITCH
"""Where pieces are not joined, a wider gap parts them, px."""


@dataclass(frozen=True, eq=False)
class Found:
    """What is on a page, in its pixels."""

    lines: list[Line]
    """Lines of writing, from top to bottom as found."""
    dropped: list[Line]
    """What is as clear and was not taken for writing; `error` says why."""
    is_sideways: bool = False
    """Whether lines seem to run from top to bottom."""


def detect_lines(grey: Grey, merge_pieces: bool = True) -> Found:
    """Find the lines of a page with dark writing on light paper, from top to bottom as found.

    Args:
        grey: the page, [H, W].
        merge_pieces: join collinear pieces; otherwise each run of words stays a line of its own.

    Returns:
        Lines in pixels of `grey`; none for an empty page.
    """
    found = ink_map(grey)
    if found is None:
        return Found([], [])
    best = _at_best_scale(grey, found, merge_pieces)
    lines, dropped = best.lines, [*best.dropped, *_pictures(best.usual)]
    if best.headings is not None:
        more, less = _lines(best.headings, _curves(best.headings.ink, merge_pieces), merge_pieces)
        lines, dropped = lines + more, dropped + less
    if merge_pieces and is_flat(*grey.shape):
        lines = one_a_row(lines)
    return Found(
        [replace(line, id=f"line_{number + 1:04d}") for number, line in enumerate(lines)],
        [replace(line, id=f"dropped_{number + 1:04d}") for number, line in enumerate(dropped)],
        uprightness(best.usual.ink) < SIDEWAYS,
    )


@dataclass(frozen=True, eq=False)
class _Searched:
    """What was found at one scale."""

    usual: InkMap
    headings: InkMap | None
    curves: list[Curve]
    lines: list[Line]
    dropped: list[Line]
    fit: float
    """As `fit` of `htr.layout.scale` has it; 0 where no curve is a line of writing."""


def _at_best_scale(grey: Grey, found: InkMap, merge_pieces: bool) -> _Searched:
    """The search at the scale that explains the ink best: the first estimate, unless that fits badly.

    The estimate may take every other line for all of them, or letters for lines.
    """
    first = _searched(found, merge_pieces)
    if first.fit >= GOOD:
        return first
    best, enough = first, ENOUGH
    factors = other_pitches(first.usual.ink, first.curves)
    if not first.lines and first.curves:
        # Whole paragraphs may have passed for lines.
        factors, enough = [*factors, 0.25], GOOD
    for factor in factors:
        other = _searched(ink_map_at(grey, found.scale / factor), merge_pieces)
        if other.fit > max(best.fit, first.fit + DOUBT):
            best = other
        if best is not first and best.fit >= enough:
            break
    return best


def _searched(found: InkMap, merge_pieces: bool) -> _Searched:
    usual, headings = split_headings(found)
    curves = _curves(usual.ink, merge_pieces)
    lines, dropped = _lines(usual, curves, merge_pieces)
    return _Searched(usual, headings, curves, lines, dropped, fit(usual.ink, curves) if lines else 0.0)


def _lines(found: InkMap, curves: list[Curve], merge_pieces: bool) -> tuple[list[Line], list[Line]]:
    """Lines of writing, and what is as clear but is none."""
    gap = REACH if merge_pieces else APART
    kept: list[Line] = []
    dropped: list[Line] = []
    for line in outline(found.ink, found.faint, curves, gap):
        reason = _no_writing(line, found.ink.shape)
        if reason is None:
            kept.append(_line(line, found))
        elif reason != SPECK:
            dropped.append(replace(_line(line, found), error=reason))
    return kept, dropped


def _pictures(found: InkMap) -> list[Line]:
    boxes = (found.pictures + 0.5) / found.scale - 0.5
    return [Line(id="picture", polygon=box_polygon(*box), error=PICTURE) for box in boxes]


def _curves(ink: Ink, merge_pieces: bool) -> list[Curve]:
    field = ridges(ink)
    walls = gutters(ink, field.slope)
    curves = trace(field, walls)
    return absorb(merge(curves, walls, REACH)) if merge_pieces else curves


def _no_writing(line: Outlined, size: tuple[int, int]) -> str | None:
    """Why a line is none: a speck, or a remainder of a frame or a rule; None for writing."""
    (x0, y0), (x1, y1) = line.polygon.min(axis=0), line.polygon.max(axis=0)
    width = x1 - x0
    if line.ink < 0.06 * PITCH * PITCH or width < 0.3 * PITCH:
        return SPECK
    margin = 0.25 * PITCH
    if width < 3.0 * PITCH and (x0 < margin or y0 < margin or x1 > size[1] - margin or y1 > size[0] - margin):
        return EDGE
    if line.thin >= THINNEST:
        return RULE
    return FAINT if line.ink <= 0.02 * width * PITCH else None


def _line(line: Outlined, found: InkMap) -> Line:
    # Centres of pixels: the middle of the first is at half a pixel at every scale.
    baseline, polygon = ((points + 0.5) / found.scale - 0.5 for points in (line.baseline, line.polygon))
    return Line(id="line", baseline=baseline, polygon=polygon)
