"""Images as flat as one line of writing: pieces that share their rows are that line."""

from __future__ import annotations

import cv2
import numpy as np

from htr.page import Line

_FLAT = 8.0
"""An image that is this many times wider than high shows a line, or two."""


def is_flat(height: int, width: int) -> bool:
    """Whether an image of this size, px, can be that of one line."""
    return width >= _FLAT * height


def one_a_row(lines: list[Line]) -> list[Line]:
    """The lines, with all joined that lie in the same rows by half of the lower one.

    Args:
        lines: found in a flat image, with outlines and baselines; its scale is hard to tell, for the distance
            from line to line does not show.
    """
    rows: list[list[Line]] = []
    for line in lines:
        same = [row for row in rows if any(_share_rows(line, other) for other in row)]
        rows = [row for row in rows if row not in same] + [[line, *(other for row in same for other in row)]]
    return [_joined(row) for row in rows]


def _share_rows(a: Line, b: Line) -> bool:
    (top_a, bottom_a), (top_b, bottom_b) = ((y.min(), y.max()) for y in (a.polygon[:, 1], b.polygon[:, 1]))
    shared = min(bottom_a, bottom_b) - max(top_a, top_b)
    return bool(shared >= 0.5 * min(bottom_a - top_a, bottom_b - top_b))


def _joined(pieces: list[Line]) -> Line:
    """One line: the hull of all, and the straight baseline that fits theirs best, each by its length."""
    if len(pieces) == 1:
        return pieces[0]
    outlines = np.concatenate([piece.polygon for piece in pieces]).astype(np.float32)
    hull = cv2.convexHull(outlines)[:, 0].astype(np.float64)
    runs = [piece.baseline for piece in pieces]
    xs = [np.arange(run[0, 0], run[-1, 0] + 1.0) for run in runs]
    ys = [np.interp(x, run[:, 0], run[:, 1]) for x, run in zip(xs, runs, strict=True)]
    slope, height = np.polyfit(np.concatenate(xs), np.concatenate(ys), 1)
    ends = np.array([min(x[0] for x in xs), max(x[-1] for x in xs)])
    return Line(id=pieces[0].id, baseline=np.stack([ends, slope * ends + height], axis=1), polygon=hull)
