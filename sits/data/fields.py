"""The pixels of labelled shapes: which lie inside, how many are drawn, and what the images show of them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import floor

import numpy as np
import shapely
from numpy.typing import NDArray
from rasterio.features import rasterize
from rasterio.warp import transform_bounds

from geomix.errors import InputError
from geomix.learn.classes import VOID
from sits.grid import Grid, Window
from sits.io.vector import Labels
from sits.series import TimeSeries

log = logging.getLogger(__name__)

Numbers = NDArray[np.int64]

_BLOCK = 256
_EARTH = 6_371_000.0
"""Radius of the Earth, metres."""


@dataclass(frozen=True)
class Pixels:
    """Pixels of a grid that lie in labelled shapes; no pixel stands twice."""

    rows: Numbers
    columns: Numbers
    shape: Numbers
    """The number of the shape that each lies in, [N]."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, keep: NDArray[np.bool_]) -> "Pixels":
        """Some of them."""
        return Pixels(self.rows[keep], self.columns[keep], self.shape[keep])


@dataclass(frozen=True)
class Samples:
    """What a series shows of labelled pixels."""

    values: NDArray[np.float32]
    """Reflectance, [N, T, C]; 0 where not seen."""
    valid: NDArray[np.bool_]
    """[N, T]."""
    dates: tuple[date, ...]
    labels: Numbers
    """Class numbers, [N]."""
    units: Numbers
    """Which shape each pixel belongs to, [N]."""

    def __len__(self) -> int:
        return len(self.labels)


def pixels_of(labels: Labels, numbers: Numbers, grid: Grid, inside: float = 1.0) -> Pixels:
    """Find the pixels whose centre lies in a labelled shape, away from its edge.

    Args:
        labels: polygons and points in any system.
        numbers: class number of each shape, `VOID` for those to pass over, [S].
        grid: of the images.
        inside: how far from the edge of its polygon a centre must lie, pixels. Where a polygon is so small
            that nothing would be left, its edge counts too.

    Returns:
        The pixels in the order of rows and columns. Those in shapes of different classes are left out; of
        shapes of one class the first has them.

    Raises:
        InputError: if the grid has no coordinate system, or no shape lies on it.
    """
    if grid.crs is None:
        raise InputError("the images have no coordinate system, so labels cannot be laid on them; use --crs")
    shapes = _in_pixels(labels, grid)
    found, names, narrow, lost, outside = [], [], 0, 0, 0
    for place in np.flatnonzero(numbers != VOID):
        shape = shapes[place]
        west, north, east, south = shape.bounds
        if east <= 0 or south <= 0 or west >= grid.width or north >= grid.height:
            outside += 1
            continue
        flat = _cover(shape.buffer(-inside), grid) if inside > 0 and shape.area else _cover(shape, grid)
        if not len(flat) and inside > 0 and shape.area:
            flat = _cover(shape, grid)
            narrow += len(flat) > 0
        lost += not len(flat)
        found.append(flat)
        names.append(np.full(len(flat), place))
    _tell(labels, narrow, lost, outside)
    if not found or not sum(map(len, found)):
        raise InputError(f"{labels.name}: no labelled shape lies on the images; {_where(labels, grid)}")
    return _unique(np.concatenate(found), np.concatenate(names), numbers, grid, labels.name)


def draw(pixels: Pixels, keys: Sequence[str], most: int, seed: int = 0) -> Pixels:
    """Draw at most `most` pixels a shape, so that large fields do not outweigh the others.

    Args:
        pixels: from `pixels_of`.
        keys: fingerprint of each shape; with the seed it decides, whatever the order of the shapes.
        most: pixels a shape.
        seed: another seed draws others.
    """
    keep = np.zeros(len(pixels), dtype=bool)
    order = np.argsort(pixels.shape, kind="stable")
    starts = np.flatnonzero(np.diff(pixels.shape[order], prepend=-1))
    for members in np.split(order, starts[1:]):
        if len(members) > most:
            key = int(keys[int(pixels.shape[members[0]])], 16)
            drawn = np.random.default_rng([seed, key]).choice(members, most, replace=False)
            keep[drawn] = True
        else:
            keep[members] = True
    return pixels.take(keep)


def read_samples(series: TimeSeries, pixels: Pixels, numbers: Numbers) -> Samples:
    """Read what the images show of some pixels, block by block.

    Args:
        series: with the bands that are wanted.
        pixels: which.
        numbers: class number of each shape, [S].
    """
    count, (dates, bands) = len(pixels), series.shape[:2]
    values = np.zeros((count, dates, bands), dtype=np.float32)
    valid = np.zeros((count, dates), dtype=bool)
    block = pixels.rows // _BLOCK * (series.grid.width // _BLOCK + 1) + pixels.columns // _BLOCK
    for one in np.unique(block):
        members = np.flatnonzero(block == one)
        rows, columns = pixels.rows[members], pixels.columns[members]
        top, left = int(rows.min()), int(columns.min())
        window = Window(top, left, int(rows.max()) - top + 1, int(columns.max()) - left + 1)
        seen, known = series.read(window)
        values[members] = np.moveaxis(seen[:, :, rows - top, columns - left], -1, 0)
        valid[members] = known[:, rows - top, columns - left].T
    return Samples(values, valid, series.dates, numbers[pixels.shape], pixels.shape)


def places_of(labels: Labels) -> NDArray[np.float64]:
    """Where each shape lies: metres to the east and north from 0 degrees, near enough for distances, [S, 2].

    One flat map serves all zones and systems, so that shapes of several can be told apart by distance.
    """
    centres = shapely.centroid(labels.to("EPSG:4326").shapes)
    lon, lat = np.radians(shapely.get_x(centres)), np.radians(shapely.get_y(centres))
    # The parallel is fixed in steps, so that a shape more or less moves none of the others.
    middle = np.radians(round(float(np.degrees(lat.mean()))))
    return np.stack([_EARTH * lon * float(np.cos(middle)), _EARTH * lat], axis=1).astype(np.float64)


def _in_pixels(labels: Labels, grid: Grid) -> NDArray[np.object_]:
    """The shapes in columns and rows of the grid."""
    a, b, c, d, e, f = tuple(~grid.transform)[:6]

    def moved(places: NDArray[np.float64]) -> NDArray[np.float64]:
        x, y = places[:, 0], places[:, 1]
        return np.stack([a * x + b * y + c, d * x + e * y + f], axis=1)

    crs = None if grid.crs is None else grid.crs.to_wkt()
    found: NDArray[np.object_] = shapely.transform(labels.to(crs).shapes, moved)
    return found


def _cover(shape: shapely.Geometry, grid: Grid) -> Numbers:
    """Row x width + column of the pixels whose centre lies in the shape, or that hold the point."""
    if shape.is_empty:
        return np.zeros(0, dtype=np.int64)
    west, north, east, south = shape.bounds
    if not shape.area:
        return np.array([floor(north) * grid.width + floor(west)], dtype=np.int64)
    left, top = max(floor(west), 0), max(floor(north), 0)
    width, height = min(floor(east) + 1, grid.width) - left, min(floor(south) + 1, grid.height) - top
    if width <= 0 or height <= 0:
        return np.zeros(0, dtype=np.int64)
    moved = shapely.transform(shape, lambda places: places - (left, top))
    mask = rasterize([(moved, 1)], out_shape=(height, width), dtype="uint8")
    rows, columns = np.nonzero(mask)
    return np.asarray((rows + top) * grid.width + columns + left, dtype=np.int64)


def _unique(flat: Numbers, shape: Numbers, numbers: Numbers, grid: Grid, name: str) -> Pixels:
    """Each pixel once; those that two classes claim are void."""
    order = np.lexsort((shape, flat))
    flat, shape = flat[order], shape[order]
    label = numbers[shape]
    first = np.diff(flat, prepend=-1) != 0
    start = np.maximum.accumulate(np.where(first, np.arange(len(flat)), 0))
    disputed = np.unique(flat[label != label[start]])
    keep = first & ~np.isin(flat, disputed)
    if len(disputed):
        log.warning("%s: %d pixels lie in shapes of different classes and are left out", name, len(disputed))
    if not keep.any():
        raise InputError(f"{name}: every labelled pixel lies in shapes of different classes")
    return Pixels(flat[keep] // grid.width, flat[keep] % grid.width, shape[keep])


def _tell(labels: Labels, narrow: int, lost: int, outside: int) -> None:
    for count, what in (
        (outside, "lie outside the images and are left out"),
        (narrow, "are too small for the distance from the edge (--inside), so their edges count too"),
        (lost, "hold no centre of a pixel and are left out"),
    ):
        if count:
            log.warning("%s: %d of %d shapes %s", labels.name, count, len(labels), what)


def _where(labels: Labels, grid: Grid) -> str:
    west, south, east, north = shapely.total_bounds(labels.to("EPSG:4326").shapes)
    left, low, right, high = transform_bounds(grid.crs, "EPSG:4326", *grid.bounds)
    return (
        f"in degrees the shapes span {west:.3f} {south:.3f} {east:.3f} {north:.3f}, "
        f"the images {left:.3f} {low:.3f} {right:.3f} {high:.3f} (west, south, east, north)"
    )
