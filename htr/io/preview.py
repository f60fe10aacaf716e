"""A picture of the page with its lines drawn on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from geomix.files import new_file
from htr.io.images import Grey
from htr.page import Page, Points

_SIDE = 2000
"""Longer side of the picture, px."""
_GOOD, _BAD = (0, 130, 60), (210, 40, 30)
_DROPPED = (130, 130, 130)
_BASELINE, _NUMBER = (30, 60, 220), (180, 60, 0)


def preview(pixels: Grey, page: Page) -> Image.Image:
    """Draw outlines, baselines and reading order onto the page, at most 2,000 px long.

    Outlines go from green (sure) to red (unsure or not read), baselines are blue, each line has its number.
    Grey is what was found and not taken for writing, with the reason.

    Args:
        pixels: the page, [H, W], at any scale.
        page: its lines in page coordinates.
    """
    scale = min(_SIDE / max(pixels.shape), 1.0)
    size = (max(round(pixels.shape[1] * scale), 1), max(round(pixels.shape[0] * scale), 1))
    picture = Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR).convert("RGB")
    # Pale writing, so that the drawing stands out.
    picture = Image.blend(picture, Image.new("RGB", size, (255, 255, 255)), 0.35)
    draw = ImageDraw.Draw(picture)
    factor = np.array([size[0] / max(page.width, 1), size[1] / max(page.height, 1)])
    font = ImageFont.load_default(size=18)
    for line in page.dropped:
        if len(line.polygon) >= 3:
            corners = _corners(line.polygon * factor)
            draw.polygon(corners, outline=_DROPPED, width=2)
            draw.text(corners[0], line.error or "", fill=_DROPPED, font=font)
    for number, line in enumerate(page.lines):
        if len(line.polygon) >= 3:
            draw.polygon(
                _corners(line.polygon * factor), outline=_colour(line.confidence, line.error), width=2
            )
        if len(line.baseline) >= 2:
            draw.line(_corners(line.baseline * factor), fill=_BASELINE, width=3)
            x, y = line.baseline[0] * factor
            draw.text((max(x - 34, 0), y - 22), str(number + 1), fill=_NUMBER, font=font)
    return picture


def write_preview(pixels: Grey, page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write `preview` as JPEG, a tenth of the time and size of PNG.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    with new_file(path, overwrite) as temporary:
        preview(pixels, page).save(temporary, format="JPEG", quality=85)


def _corners(points: Points) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]


def _colour(confidence: float | None, error: str | None) -> tuple[int, int, int]:
    if error is not None:
        return _BAD
    share = 1.0 if confidence is None else min(max((confidence - 0.5) / 0.45, 0.0), 1.0)
    red, green, blue = (round(bad + share * (good - bad)) for good, bad in zip(_GOOD, _BAD, strict=True))
    return red, green, blue
