"""A cloud from above in the colours of its classes, shaded by height, with a legend: one PNG."""

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from geomix.checkpoint import ClassInfo
from geomix.errors import InputError
from geomix.files import new_file
from pointcloud.cloud import Cloud

_SIDE = 1200
"""Longest side of the map in pixels."""
_LEGEND = 300
_MARGIN = 24
_CROWD = 1000
_PAPER = (255, 255, 255)
_INK = (30, 30, 30)
_UNKNOWN = (128, 128, 128)


class Entry(NamedTuple):
    """One line of the legend."""

    id: int
    name: str
    rgb: tuple[int, int, int]
    points: int


def legend_of(cloud: Cloud, classes: Sequence[ClassInfo] | None) -> list[Entry]:
    """The classes that a cloud has, most points first, with names and colours.

    Args:
        cloud: with the field `classification`.
        classes: names and colours, as on the card of a model; ids that are not among them get grey
            (0, unlabelled) or a colour of their own.

    Raises:
        InputError: if the cloud has no classes.
    """
    if "classification" not in cloud.fields:
        raise InputError(f"{cloud.name}: has no classes to show; segment it first")
    known = {info.id: info for info in classes or ()}
    ids, counts = np.unique(cloud.fields["classification"].astype(np.int64), return_counts=True)
    entries = [
        Entry(number, known[number].name, known[number].rgb, points)
        if number in known
        else Entry(number, *_stranger(number), points)
        for number, points in zip(ids.tolist(), counts.tolist(), strict=True)
    ]
    return sorted(entries, key=lambda entry: -entry.points)


def _stranger(number: int) -> tuple[str, tuple[int, int, int]]:
    if number in (0, 255, 65535):
        return "unlabelled", _UNKNOWN
    # Steps of the golden ratio keep the hues of neighbouring ids apart.
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.55, 0.9)
    return f"class {number}", (round(red * 255), round(green * 255), round(blue * 255))


def write_preview(
    cloud: Cloud, path: str | Path, classes: Sequence[ClassInfo] | None = None, overwrite: bool = False
) -> None:
    """Draw a cloud from above as a PNG: the highest point of each pixel, its class, its shade, and a legend.

    Args:
        cloud: with the field `classification`.
        path: the picture, .png.
        classes: names and colours, as on the card of a model.
        overwrite: whether a file of that name may be replaced.

    Raises:
        InputError: if the cloud has no classes, or the name does not end in .png.
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: the picture is a PNG; let its name end in .png")
    entries = legend_of(cloud, classes)
    picture = _page(cloud, entries)
    with new_file(path, overwrite) as temporary:
        picture.save(temporary, format="PNG")


def _page(cloud: Cloud, entries: list[Entry]) -> Image.Image:
    rgb, metres = _map(cloud, entries)
    drawn = Image.fromarray(rgb)
    scale = max(1, _SIDE // max(drawn.size))
    drawn = drawn.resize((drawn.width * scale, drawn.height * scale), Image.Resampling.NEAREST)
    height = max(drawn.height, 90 + 26 * len(entries)) + 2 * _MARGIN + 40
    page = Image.new("RGB", (drawn.width + _LEGEND + 3 * _MARGIN, height), _PAPER)
    page.paste(drawn, (_MARGIN, _MARGIN))
    pen = ImageDraw.Draw(page)
    if metres is not None:
        _scale_bar(pen, _MARGIN, _MARGIN + drawn.height + 14, metres / scale, drawn.width)
    _legend(pen, drawn.width + 2 * _MARGIN, cloud, entries)
    return page


def _map(cloud: Cloud, entries: list[Entry]) -> tuple[NDArray[np.uint8], float | None]:
    """The view from above, [H, W, 3], and the metres a pixel; None where there is nothing to measure."""
    measured = cloud.measured()
    coord = cloud.coord[measured]
    if len(coord) == 0:
        return np.full((60, 60, 3), 245, dtype=np.uint8), None
    # Stray points of a crowd must not shrink the scene; of a few points none is stray.
    low, high = np.percentile(coord, [0.1, 99.9] if len(coord) >= _CROWD else [0, 100], axis=0)
    inside = ((coord[:, :2] >= low[:2]) & (coord[:, :2] <= high[:2])).all(axis=1)
    coord = coord[inside]
    ids = cloud.fields["classification"][measured][inside].astype(np.int64)
    extent = np.maximum(high[:2] - low[:2], 1e-9)
    # About one point a pixel shows all there is; more pixels would show holes.
    step = max(float(np.sqrt(extent.prod() / len(coord))), extent.max() / _SIDE, 1e-6)
    width, height = (np.floor(extent / step).astype(int) + 1).tolist()
    column, row = np.floor((coord[:, :2] - low[:2]) / step).astype(int).T
    upward = np.argsort(coord[:, 2], kind="stable")  # the highest is written last
    top = np.full((height, width), -1, dtype=np.int64)
    relief = np.full((height, width), np.nan)
    top[row[upward], column[upward]] = ids[upward]
    relief[row[upward], column[upward]] = coord[upward, 2]
    for _ in range(2):
        _close_holes(top, relief)
    rgb = _colored(top, entries) * _shade(relief, step)[:, :, None]
    rgb[top < 0] = 245
    picture = np.clip(rgb, 0, 255).astype(np.uint8)[::-1]  # north is up
    return np.ascontiguousarray(picture), step if cloud.unit == "metre" else None


def _close_holes(top: NDArray[np.int64], relief: NDArray[np.float64]) -> None:
    """Give empty pixels that have a neighbour its class and height, in place."""
    empty = top < 0
    old_top, old_relief = top.copy(), relief.copy()
    height, width = top.shape
    for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        here = (slice(max(dy, 0), height + min(dy, 0)), slice(max(dx, 0), width + min(dx, 0)))
        there = (slice(max(-dy, 0), height + min(-dy, 0)), slice(max(-dx, 0), width + min(-dx, 0)))
        take = empty[here] & (old_top[there] >= 0) & (top[here] < 0)
        top[here] = np.where(take, old_top[there], top[here])
        relief[here] = np.where(take, old_relief[there], relief[here])


def _colored(top: NDArray[np.int64], entries: list[Entry]) -> NDArray[np.float64]:
    ids = np.array([entry.id for entry in entries])
    colors = np.array([entry.rgb for entry in entries], dtype=np.float64)
    order = np.argsort(ids)
    place = np.clip(np.searchsorted(ids[order], top), 0, len(ids) - 1)
    return np.asarray(colors[order][place])


def _shade(relief: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Light from the north-west on the surface, and a little more of it higher up, [H, W] around 1."""
    known = np.isfinite(relief)
    low, high = np.percentile(relief[known], [2, 98])
    surface = np.where(known, relief, low)
    slope_y = np.gradient(surface, axis=0) / step if surface.shape[0] > 1 else np.zeros_like(surface)
    slope_x = np.gradient(surface, axis=1) / step if surface.shape[1] > 1 else np.zeros_like(surface)
    light = (slope_x - slope_y) / np.sqrt(2 * (1 + slope_x**2 + slope_y**2))
    lift = np.clip((surface - low) / max(high - low, 1e-9), 0, 1)
    return np.asarray(0.82 + 0.22 * light + 0.12 * lift)


def _scale_bar(pen: ImageDraw.ImageDraw, x: int, y: int, metres: float, width: int) -> None:
    """A bar of 1, 2 or 5 times a power of ten metres, at most a third of the map."""
    longest = max(width / 3 * metres, 1e-6)
    power = 10.0 ** np.floor(np.log10(longest))
    length = next(factor * power for factor in (5, 2, 1) if factor * power <= longest)
    end = x + round(length / metres)
    pen.rectangle((x, y, end, y + 6), fill=_INK)
    pen.text((end + 8, y - 6), f"{length:g} m", fill=_INK, font=_font(16))


def _legend(pen: ImageDraw.ImageDraw, x: int, cloud: Cloud, entries: list[Entry]) -> None:
    name = Path(cloud.name).name
    title = name if len(name) <= 34 else f"{name[:16]}…{name[-16:]}"
    pen.text((x, _MARGIN), title, fill=_INK, font=_font(16))
    pen.text((x, _MARGIN + 24), f"{len(cloud):,} points", fill=_INK, font=_font(14))
    for line, entry in enumerate(entries):
        y = _MARGIN + 60 + 26 * line
        pen.rectangle((x, y, x + 18, y + 18), fill=entry.rgb, outline=_INK)
        share = 100 * entry.points / len(cloud)
        text = (
            f"{entry.name} ({entry.id})  {share:.1f} %"
            if share >= 0.1
            else f"{entry.name} ({entry.id})  <0.1 %"
        )
        pen.text((x + 28, y), text, fill=_INK, font=_font(14))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
