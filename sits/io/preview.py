"""A picture of a map with its legend, to look at without a GIS."""

from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rasterio.enums import Resampling

from geomix.errors import FormatError
from geomix.files import new_file
from sits.io.legend import NODATA, Legend

_LONGEST = 1000
_SHORTEST = 480
_MARGIN = 16
_LINE = 24
_PAPER, _INK, _FAINT = (255, 255, 255), (30, 30, 30), (120, 120, 120)


def write_preview(raster: Path, path: Path, legend: Legend, title: str = "", overwrite: bool = False) -> None:
    """Draw a class map, at most 1000 pixels a side, with the share of each class beside its name.

    Args:
        raster: the map, codes of the legend and 255 for nothing.
        path: the picture; PNG or what else its suffix says.
        legend: names and colours.
        title: a line above the map.
        overwrite: whether an existing picture may be replaced.

    Raises:
        OutputExistsError: if the picture exists and may not be replaced.
        FormatError: if the suffix is of no picture format.
    """
    codes, metres = _read(raster)
    picture = _draw(codes, legend, title, metres)
    with new_file(path, overwrite) as temporary:
        try:
            picture.save(temporary)
        except (ValueError, OSError) as error:
            raise FormatError(f"{path}: cannot be written as a picture ({error}); name it .png") from error


def _read(raster: Path) -> tuple[NDArray[np.uint8], float | None]:
    """The codes at the size of the picture, and the width of the map in metres where it is in metres."""
    with rasterio.open(raster) as dataset:
        shrink = max(1.0, max(dataset.shape) / _LONGEST)
        shape = tuple(max(1, round(side / shrink)) for side in dataset.shape)
        codes = dataset.read(1, out_shape=shape, resampling=Resampling.nearest)
        projected = dataset.crs is not None and dataset.crs.is_projected
        metres = dataset.width * abs(dataset.transform.a) if projected else None
    return codes, metres


def _draw(codes: NDArray[np.uint8], legend: Legend, title: str, metres: float | None) -> Image.Image:
    font, small = ImageFont.load_default(15), ImageFont.load_default(12)
    zoom = max(1, _SHORTEST // max(codes.shape))
    height, width = codes.shape[0] * zoom, codes.shape[1] * zoom
    colors = np.full((256, 3), 255, dtype=np.uint8)
    for entry in legend.classes:
        colors[entry.id] = entry.rgb
    colors[NODATA] = (235, 235, 235)
    picture = Image.fromarray(colors[codes]).resize((width, height), Image.Resampling.NEAREST)
    rows = _shares(codes, legend)
    side = max(int(font.getlength(f"{name}  {share}")) for name, share, _ in rows) + 70
    top = _MARGIN + (_LINE if title else 0)
    total = Image.new("RGB", _size(width, height, side, len(rows), top, title, font), _PAPER)
    draw = ImageDraw.Draw(total)
    if title:
        draw.text((_MARGIN, _MARGIN - 4), title, fill=_INK, font=font)
    total.paste(picture, (_MARGIN, top))
    draw.rectangle((_MARGIN - 1, top - 1, _MARGIN + width, top + height), outline=_FAINT)
    left = 2 * _MARGIN + width
    for index, (name, share, color) in enumerate(rows):
        y = top + index * _LINE
        draw.rectangle((left, y + 2, left + 22, y + 17), fill=color, outline=_FAINT)
        draw.text((left + 30, y), name, fill=_INK, font=font)
        draw.text((left + side - 6, y), share, fill=_FAINT, font=font, anchor="ra")
    if metres:
        _scale_bar(draw, (_MARGIN, top + height + 12), width, metres, small)
    return total


def _shares(codes: NDArray[np.uint8], legend: Legend) -> list[tuple[str, str, tuple[int, int, int]]]:
    counts = np.bincount(codes.ravel(), minlength=256)
    total = max(int(counts.sum()), 1)
    rows = [(entry.name, f"{100 * counts[entry.id] / total:.1f} %", entry.rgb) for entry in legend.by_code]
    if counts[NODATA]:
        rows.append(("no data", f"{100 * counts[NODATA] / total:.1f} %", (235, 235, 235)))
    return rows


def _size(
    width: int,
    height: int,
    side: int,
    rows: int,
    top: int,
    title: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> tuple[int, int]:
    across = max(width + side + 3 * _MARGIN, int(font.getlength(title)) + 2 * _MARGIN)
    return across, top + max(height + 36, rows * _LINE) + _MARGIN


def _scale_bar(
    draw: ImageDraw.ImageDraw,
    place_xy: tuple[int, int],
    width: int,
    metres: float,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    """A bar of a round length, about a quarter of the map."""
    goal = metres / 4
    unit = 10.0 ** np.floor(np.log10(goal))
    length = max(step * unit for step in (1, 2, 5) if step * unit <= goal)
    pixels = round(width * length / metres)
    x, y = place_xy
    draw.line((x, y, x + pixels, y), fill=_INK, width=3)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    draw.text((x + pixels + 8, y - 8), text, fill=_INK, font=font)
