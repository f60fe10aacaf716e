"""Uneven light made even: shadows, folds and yellow stains are divided out of the page."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.io.images import Grey
from htr.layout.ink import resized

SIDE = 1000
"""Longer side of the page at the scale on which its paper is measured, px: strokes are a few px wide."""
EVEN = 0.8
"""The light is even where the darkest twentieth of the paper is brighter than this part of the brightest."""
DARKEST = 0.3
"""Paper in shadow is not brightened by more than 1 / DARKEST: what is darker is no paper."""
_STROKES = 21
"""Closes strokes and letters, px at SIDE."""


def level_light(grey: Grey) -> Grey:
    """The page as it would look in even light.

    Args:
        grey: the page, dark ink on light paper, [H, W].

    Returns:
        uint8 [H, W], the same array where the light is even already.
    """
    scale = min(SIDE / max(grey.shape), 1.0)
    paper = paper_of(resized(grey, scale))
    usual = float(np.percentile(paper, 90))
    seen = paper[paper > DARKEST * usual]
    if usual < 30 or float(np.percentile(seen, 5)) > EVEN * usual:
        return grey
    factor = np.asarray(usual / np.maximum(paper, DARKEST * usual), np.float32)
    # In strips, so that no copy of the page as float is needed.
    size = (grey.shape[1], grey.shape[0])
    level = np.empty_like(grey)
    for top in range(0, size[1], 512):
        rows = slice(top, min(top + 512, size[1]))
        part = _rows_of(factor, rows, size)
        level[rows] = np.clip(grey[rows] * part, 0, 255).astype(np.uint8)
    return level


def paper_of(small: Grey) -> NDArray[np.float32]:
    """The brightness of the paper at each place, without its writing, float32 [h, w]."""
    closed = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((_STROKES, _STROKES), np.uint8))
    size = max(min(_STROKES, (min(small.shape) - 1) // 2 * 2 + 1), 1)
    smooth = cv2.GaussianBlur(cv2.medianBlur(closed, size), (0, 0), 3.0)
    return np.asarray(smooth, np.float32)


def _rows_of(factor: NDArray[np.float32], rows: slice, size: tuple[int, int]) -> NDArray[np.float32]:
    """Some rows of a small map enlarged to `size` (width, height), [rows, width]."""
    height, width = factor.shape
    y = (np.arange(rows.start, rows.stop, dtype=np.float32) + 0.5) * (height / size[1]) - 0.5
    x = (np.arange(size[0], dtype=np.float32) + 0.5) * (width / size[0]) - 0.5
    # OpenCV's remap takes no images wider than 32,767 px.
    columns = [x[left : left + 16_000] for left in range(0, len(x), 16_000)]
    parts = [
        cv2.remap(
            factor,
            np.broadcast_to(part, (len(y), len(part))).copy(),
            np.broadcast_to(y[:, None], (len(y), len(part))).copy(),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        for part in columns
    ]
    return np.concatenate(parts, axis=1)
