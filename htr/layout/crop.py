"""One line of a page as an upright grey strip, and the way back from the strip to the page."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from htr.io.derive import band, lower_edge
from htr.io.images import Grey
from htr.page import Line, Points

log = logging.getLogger(__name__)

HEIGHT = 64
"""Height at which lines are cut out, px."""
_MAX_SIDE = 30_000
"""OpenCV indexes its images with 16 bits."""


@dataclass(frozen=True, eq=False)
class Crop:
    """A line cut out, turned upright and scaled."""

    pixels: Grey
    """Dark ink on light paper, what lies outside the polygon filled with paper, [height, w]."""
    scale: float
    """Pixels of the crop for one pixel of the page."""
    origin: Points
    """The page place of the top left corner before bending, [2]."""
    along: Points
    """Unit vector of the writing direction in the page, [2]."""
    bend: NDArray[np.float64]
    """How far the baseline leaves the straight line, page px, for each whole page px along it, [n]."""

    def to_page(self, points: Points) -> Points:
        """Places in the crop (x, y) as places in the page, both in px, [n, 2]."""
        u, v = (points / self.scale).T
        v = v + np.interp(u, np.arange(len(self.bend)), self.bend)
        down = np.array([-self.along[1], self.along[0]])
        return np.asarray(self.origin + u[:, None] * self.along + v[:, None] * down)

    def boxes_to_page(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Boxes in the crop (x0, y0, x1, y1) as the boxes around them in the page, [n, 4]."""
        corners = np.stack(
            [self.to_page(boxes[:, pair]) for pair in ([0, 1], [2, 1], [2, 3], [0, 3])], axis=1
        )
        return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def crop(image: Grey, line: Line, height: int) -> Grey:
    """Cut a line out of the page: upright along its baseline, aspect ratio kept, neighbours painted over.

    Args:
        image: the page, dark ink on light paper, [H, W].
        line: with baseline or polygon in pixels of `image`.
        height: of the result.

    Returns:
        uint8 [height, w].

    Raises:
        InputError: if the line covers no part of the image.
    """
    return cut(image, line, height).pixels


def cut(image: Grey, line: Line, height: int) -> Crop:
    """As `crop`, with what leads from places in the crop back to the page."""
    line = _with_both(line)
    baseline = orient(line.baseline, line.polygon)
    along = _direction(baseline)
    down = np.array([-along[1], along[0]])
    # In the line's own frame: u along the writing, v down from the first point.
    frame = np.stack([along, down])
    polygon = (line.polygon - baseline[0]) @ frame.T
    base = (baseline - baseline[0]) @ frame.T
    start, end = float(polygon[:, 0].min()), float(polygon[:, 0].max())
    length = round(end - start)
    top, bottom = _vertical_range(polygon, base)
    bend = _bend(base, start, length, bottom - top)
    rows = max(round(bottom - top), 1)
    if length < 2 or rows < 2 or length > _MAX_SIDE or rows > _MAX_SIDE:
        raise InputError(
            f"line {line.id}: covers {length} x {rows} pixels along its baseline, which is no line"
        )
    origin = baseline[0] + start * along + top * down
    if not _touches(line.polygon, image):
        raise InputError(
            f"line {line.id}: lies outside the image of {image.shape[1]} x {image.shape[0]} pixels"
        )
    strip, inside = _straighten(image, line.polygon, origin, along, bend, (rows, length))
    scale = height / rows
    size = (max(round(length * scale), 1), height)
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    small = np.asarray(cv2.resize(strip, size, interpolation=method), np.uint8)
    mask = np.asarray(cv2.resize(inside, size, interpolation=method), np.uint8)
    return Crop(_fill_outside(small, mask), scale, origin, along, bend)


def orient(baseline: Points, polygon: Points) -> Points:
    """The baseline in writing direction: against x only where the letters really hang below it.

    A baseline drawn from right to left under upright letters is turned round; one over letters that lie below
    it belongs to a line that is upside down and stays.
    """
    run = baseline[-1] - baseline[0]
    if run[0] >= 0 or abs(run[0]) < abs(run[1]):
        return baseline
    along = _direction(baseline)
    above = (polygon - baseline.mean(axis=0)) @ np.array([along[1], -along[0]])
    letters_above = above.max() + above.min() > 0
    return baseline if letters_above else np.ascontiguousarray(baseline[::-1])


def holds_several_lines(pixels: Grey) -> bool:
    """Whether a crop is a page or a paragraph rather than one line: too high, and with rows of its own."""
    height, width = pixels.shape
    if height * 8 < width:
        return False
    dark = 255.0 - cv2.GaussianBlur(pixels, (0, 0), max(height / 100.0, 0.8)).astype(np.float64)
    profile = dark.mean(axis=1)
    low, high = np.percentile(profile, [5, 95])
    if high - low < 4.0:
        return False
    rows = profile > (low + high) / 2
    return int(np.count_nonzero(np.diff(rows.astype(np.int8)) == 1) + rows[0]) >= 4


def _with_both(line: Line) -> Line:
    """The line with a polygon and a baseline, each made from the other where it is missing."""
    if line.is_degenerate():
        raise InputError(f"line {line.id}: covers no part of the page")
    if len(line.polygon) < 3:
        reach = max(float(np.linalg.norm(np.ptp(line.baseline, axis=0))) / 15.0, 8.0)
        return replace(line, polygon=band(line.baseline, 0.75 * reach, 0.25 * reach))
    if len(line.baseline) < 2 or float(np.ptp(line.baseline, axis=0).max()) < 2.0:
        return replace(line, baseline=lower_edge(line.polygon))
    return line


def _direction(baseline: Points) -> Points:
    """Unit vector along a polyline: its longest axis, from its first to its last point, [2]."""
    centred = baseline - baseline.mean(axis=0)
    axis = (
        np.linalg.svd(centred, full_matrices=False)[2][0] if len(baseline) > 2 else baseline[-1] - baseline[0]
    )
    axis = axis / np.linalg.norm(axis)
    return np.asarray(axis if axis @ (baseline[-1] - baseline[0]) >= 0 else -axis)


def _vertical_range(polygon: Points, base: Points) -> tuple[float, float]:
    """Top and bottom of a line relative to its bent baseline, px."""
    order = np.argsort(base[:, 0])
    level = np.interp(polygon[:, 0], base[order, 0], base[order, 1])
    relative = polygon[:, 1] - level
    return float(relative.min()), float(relative.max())


def _bend(base: Points, start: float, length: int, height: float) -> NDArray[np.float64]:
    """The smoothed course of the baseline in its own frame, for each px along it, [length]."""
    order = np.argsort(base[:, 0], kind="stable")
    course = np.interp(start + np.arange(max(length, 1)), base[order, 0], base[order, 1])
    # Corners of a hand-drawn polyline would shear letters.
    width = int(min(max(height, 3.0), 401.0)) // 2 * 2 + 1
    padded = np.pad(course, width // 2, mode="edge")
    return np.convolve(padded, np.full(width, 1.0 / width), mode="valid")


def _touches(polygon: Points, image: Grey) -> bool:
    (x0, y0), (x1, y1) = polygon.min(axis=0), polygon.max(axis=0)
    return bool(x1 > 0 and y1 > 0 and x0 < image.shape[1] and y0 < image.shape[0])


def _straighten(
    image: Grey,
    polygon: Points,
    origin: Points,
    along: Points,
    bend: NDArray[np.float64],
    size: tuple[int, int],
) -> tuple[Grey, Grey]:
    """The strip at page scale and its part inside the polygon (0 or 255), both of `size` (rows, columns)."""
    rows, columns = size
    down = np.array([-along[1], along[0]])
    u = np.arange(columns)
    v = np.arange(rows)[:, None] + bend[None, :columns]
    x = (origin[0] + u * along[0] + v * down[0]).astype(np.float32)
    y = (origin[1] + u * along[1] + v * down[1]).astype(np.float32)
    # Only the part of the page around the line, because OpenCV's remap takes no large images.
    x0, y0 = int(max(np.floor(x.min()) - 2, 0)), int(max(np.floor(y.min()) - 2, 0))
    x1, y1 = int(min(np.ceil(x.max()) + 3, image.shape[1])), int(min(np.ceil(y.max()) + 3, image.shape[0]))
    part = np.ascontiguousarray(image[y0:y1, x0:x1])
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [np.rint(polygon - [x0, y0]).astype(np.int32)], 255)
    strip = cv2.remap(part, x - x0, y - y0, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    inside = cv2.remap(mask, x - x0, y - y0, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
    return np.asarray(strip, np.uint8), np.asarray(inside, np.uint8)


def _fill_outside(strip: Grey, mask: Grey) -> Grey:
    """Paint the paper of the neighbourhood over all that the mask leaves out; light ink becomes dark."""
    height, width = strip.shape
    inside = mask > 127
    if not inside.any():
        inside = np.ones_like(inside)
    values = strip[inside]
    low, middle, high = (float(value) for value in np.percentile(values, [2, 50, 98]))
    if high - middle > 1.5 * (middle - low) + 20:
        strip = 255 - strip
    blocks = max(width // (2 * height), 1)
    edges = np.linspace(0, width, blocks + 1).astype(int)
    levels = []
    for left, right in pairwise(edges):
        # Ink covers far less than a third of a line, so this percentile is paper.
        part = strip[:, left:right][inside[:, left:right]]
        levels.append(
            float(np.percentile(part, 70)) if len(part) else float(np.percentile(strip[inside], 70))
        )
    paper = np.interp(np.arange(width), (edges[:-1] + edges[1:]) / 2, levels)
    weight = mask.astype(np.float64) / 255.0
    return np.rint(strip * weight + paper[None, :] * (1.0 - weight)).astype(np.uint8)
