"""Pages on their side or upside down: found by how sure the reader is, and read the right way up."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htr.io.images import PageImage
from htr.io.options import PageOptions
from htr.page import Line, Page, Points
from htr.predict.pages import LineReader, find_page, read_page

log = logging.getLogger(__name__)

SURE = 0.8
"""A page whose lines are read with this confidence is not tried upside down. Of eight pages the right way up
four are below; of the same pages upside down none is above."""
GARBAGE = 0.5
"""A page read with less confidence is most likely misread as a whole: the eight pages have .63 to .94 the
right way up, and .20 to .45 on their side."""
SAMPLE = 8
"""As many of the longest lines tell how sure the reader is."""
_CLOCKWISE = {0: 0, 1: -90, 2: 180, 3: 90}
"""Quarter turns against the clock that set the page upright -> the same in degrees as PAGE counts them."""


def read_sheet(sheet: PageImage, reader: LineReader, options: PageOptions | None = None) -> Page:
    """Find and read the lines of a page, the right way up wherever the file has its top.

    Args:
        sheet: the page as `as_sheet` gives it.
        reader: what reads line images.
        options: how lines are found and read.

    Returns:
        The page in pixels of the file; `orientation` says how it was turned to be read.
    """
    found = find_page(sheet, options=options)
    sides = found.is_sideways
    page = read_page(sheet, reader, found, options)
    best, turns = _confidence(page), 0
    candidates = () if (options or PageOptions()).single_line else (1, 3) if sides else (2,)
    if best < SURE:
        for quarter in candidates:
            sure = _confidence(_sampled(_turned(sheet, quarter), reader, options))
            if sure > best:
                best, turns = sure, quarter
    if turns:
        upright = _turned(sheet, turns)
        page = read_page(upright, reader, find_page(upright, options=options), options)
        page = _turned_back(page, turns)
        log.info("%s: turned by %d degrees to be read", sheet.path, _CLOCKWISE[turns])
    if page.lines and best < GARBAGE:
        log.warning(
            "%s: its lines are read with a confidence of %.2f, so its text is most likely wrong; "
            "the model may not know its script or language, or the image may be too coarse",
            *(sheet.path, best),
        )
    return page


def _turned(sheet: PageImage, quarter: int) -> PageImage:
    """The page turned by quarters against the clock."""
    pixels = np.ascontiguousarray(np.rot90(sheet.pixels, quarter))
    width, height = (sheet.height, sheet.width) if quarter % 2 else (sheet.width, sheet.height)
    return replace(sheet, pixels=pixels, width=width, height=height)


def _sampled(sheet: PageImage, reader: LineReader, options: PageOptions | None) -> Page:
    """The page with its longest lines alone, read."""
    page = find_page(sheet, options=options)
    longest = sorted(page.lines, key=_length, reverse=True)[:SAMPLE]
    return read_page(sheet, reader, replace(page, lines=tuple(longest)), options)


def _confidence(page: Page) -> float:
    """How sure the reader was of the longest lines: the mean over their characters, 0 to 1."""
    lines = [line for line in sorted(page.lines, key=_length, reverse=True)[:SAMPLE] if line.text]
    characters = sum(len(line.text or "") for line in lines)
    return sum((line.confidence or 0.0) * len(line.text or "") for line in lines) / max(characters, 1)


def _length(line: Line) -> float:
    return float(np.hypot(*(line.baseline[-1] - line.baseline[0]))) if len(line.baseline) else 0.0


def _turned_back(page: Page, quarter: int) -> Page:
    """A page of the turned image in pixels of the file."""
    width, height = (page.height, page.width) if quarter % 2 else (page.width, page.height)

    def back(points: Points) -> Points:
        x, y = points.reshape(-1, 2).T
        places = {1: (width - 1 - y, x), 2: (width - 1 - x, height - 1 - y), 3: (y, height - 1 - x)}
        return np.stack(places[quarter], axis=1)

    def boxes(corners: NDArray[np.float64]) -> NDArray[np.float64]:
        ends = np.stack([back(corners[:, :2]), back(corners[:, 2:])], axis=1)
        return np.concatenate([ends.min(axis=1), ends.max(axis=1)], axis=1)

    def line_back(line: Line) -> Line:
        return replace(
            line,
            baseline=back(line.baseline),
            polygon=back(line.polygon),
            char_boxes=boxes(line.char_boxes),
        )

    return replace(
        page,
        width=width,
        height=height,
        orientation=_CLOCKWISE[quarter],
        lines=tuple(map(line_back, page.lines)),
        dropped=tuple(map(line_back, page.dropped)),
        regions=tuple(replace(region, polygon=back(region.polygon)) for region in page.regions),
    )
