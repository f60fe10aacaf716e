"""Places that a PAGE or ALTO file leaves out, from those that it gives."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from htr.page import Line, Page, Points, Region, as_points, box_polygon

log = logging.getLogger(__name__)

ABOVE = 0.75
"""The part of a line's height that lies above the baseline."""


def complete(page: Page, name: str) -> Page:
    """Give every line a baseline and a polygon, and every region an outline, as far as they follow.

    A line without a polygon gets a band around its baseline, as high as the distance of the lines allows,
    until `outline_from_ink` draws its outline in the image. One without a baseline gets a line along the
    lower edge of its polygon. One with neither gets an `error` and keeps its slot. `name` is what the
    warnings call the file.
    """
    pitch = pitch_of_lines(page.lines) or max(page.height, 1) / 40.0
    lines = tuple(_complete_line(line, pitch, name) for line in page.lines)
    bands = [line.id for line in lines if line.is_band]
    if bands:
        log.info("%s: %d lines have no polygon (%s ...); their ink gives it", name, len(bands), bands[0])
    regions = tuple(_complete_region(region, lines) for region in page.regions)
    return replace(page, lines=lines, regions=regions)


def pitch_of_lines(lines: Iterable[Line]) -> float | None:
    """The usual distance from one line to the next, px; None where no two lines lie above each other."""
    spans = [
        (
            float(line.baseline[:, 0].min()),
            float(line.baseline[:, 0].max()),
            float(line.baseline[:, 1].mean()),
        )
        for line in lines
        if len(line.baseline) >= 2
    ]
    distances = []
    for x0, x1, y in spans:
        below = [
            v - y
            for u0, u1, v in spans
            if v > y + 4 and min(x1, u1) - max(x0, u0) > 0.3 * min(x1 - x0, u1 - u0)
        ]
        if below:
            distances.append(min(below))
    return float(np.median(distances)) if distances else None


def band(baseline: Points, above: float, below: float) -> Points:
    """The outline of a band along a baseline, `above` and `below` it in px, [2n, 2]."""
    direction = np.gradient(baseline, axis=0) if len(baseline) > 1 else np.array([[1.0, 0.0]])
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    unit = np.where(length > 0, direction / np.maximum(length, 1e-9), [1.0, 0.0])
    up = np.stack([unit[:, 1], -unit[:, 0]], axis=1)
    return np.concatenate([baseline + above * up, (baseline - below * up)[::-1]])


def lower_edge(polygon: Points) -> Points:
    """A baseline for a polygon: its lower edge, raised by a quarter of its height, [5, 2].

    A polygon that is higher than twice its width is taken as a line from top to bottom.
    """
    x0, y0 = polygon.min(axis=0)
    x1, y1 = polygon.max(axis=0)
    if y1 - y0 > 2 * (x1 - x0):
        x = x0 + (1 - ABOVE) * (x1 - x0)
        return np.array([[x, y0], [x, y1]])
    columns = np.linspace(x0, x1, 5)
    # A little inside, where the outline has an upper and a lower edge.
    inside = np.clip(columns, x0 + 0.02 * (x1 - x0), x1 - 0.02 * (x1 - x0))
    edges = np.array([_edges(polygon, x) for x in inside])
    height = float(np.median(edges[:, 1] - edges[:, 0]))
    # Descenders pull single columns down: a straight line through all of them does not follow.
    slope, offset = np.polyfit(inside, edges[:, 1], 1)
    return np.stack([columns, slope * columns + offset - (1 - ABOVE) * height], axis=1)


def _complete_line(line: Line, pitch: float, name: str) -> Line:
    if line.is_degenerate():
        log.warning("%s: line %s covers no part of the page; its text stays empty", name, line.id)
        return replace(line, error=line.error or "the line covers no part of the page")
    if _area(line.polygon) < 1.0:
        line = replace(line, polygon=band(line.baseline, ABOVE * pitch, (1 - ABOVE) * pitch), is_band=True)
    if len(line.baseline) < 2 or np.ptp(line.baseline, axis=0).max() < 2.0:
        line = replace(line, baseline=lower_edge(line.polygon))
    return line


def _complete_region(region: Region, lines: Iterable[Line]) -> Region:
    if _area(region.polygon) >= 1.0:
        return region
    parts = [line.polygon for line in lines if line.region == region.id and len(line.polygon)]
    if not parts:
        return replace(region, polygon=as_points(None))
    points = np.concatenate(parts)
    return replace(region, polygon=box_polygon(*points.min(axis=0), *points.max(axis=0)))


def _area(polygon: Points) -> float:
    """The area inside an outline, px^2."""
    if len(polygon) < 3:
        return 0.0
    x, y = polygon.T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _edges(polygon: Points, x: float) -> tuple[float, float]:
    """The highest and lowest point of an outline at one x."""
    start, end = polygon, np.roll(polygon, -1, axis=0)
    crosses = (np.minimum(start[:, 0], end[:, 0]) <= x) & (np.maximum(start[:, 0], end[:, 0]) >= x)
    start, end = start[crosses], end[crosses]
    run = end[:, 0] - start[:, 0]
    part = np.where(run != 0, (x - start[:, 0]) / np.where(run != 0, run, 1.0), 0.0)
    y = np.concatenate([start[:, 1] + part * (end[:, 1] - start[:, 1]), end[run == 0, 1]])
    return float(y.min()), float(y.max())
