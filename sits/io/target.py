"""The one grid to which rasters of several grids are brought."""

from collections.abc import Sequence
from math import ceil, floor
from pathlib import Path

from affine import Affine
from rasterio.crs import CRS
from rasterio.errors import CRSError

from geomix.errors import InputError
from sits.grid import Grid, crs_name, same_crs
from sits.io.raster import grid_of, open_raster

_BIGGEST = 200_000


def common_grid(grids: Sequence[Grid], like: Path | None = None) -> Grid:
    """The grid of the file `like`, else the finest of the grids, grown to cover all that share its system.

    Raises:
        InputError: if there is no coordinate system, or the grids lie too far apart to cover.
    """
    if like is not None:
        with open_raster(str(like)) as dataset:
            grid = grid_of(dataset)
        if grid.crs is None:
            raise InputError(f"{like}: has no coordinate system and cannot serve as --like")
        return grid
    finest = min(grids, key=_pixel_area)
    if finest.crs is None:
        raise InputError(
            "rasters without a coordinate system cannot be resampled; name it with --crs EPSG:..."
        )
    others = [grid for grid in grids if same_crs(grid.crs, finest.crs)]
    corners = [_in_pixels(finest, grid) for grid in others]
    # A pixel that is covered by less than a hundredth is none.
    left, top = (floor(min(box[side] for box in corners) + 0.01) for side in (0, 1))
    right, bottom = (ceil(max(box[side] for box in corners) - 0.01) for side in (2, 3))
    width, height = right - left, bottom - top
    if max(width, height) > _BIGGEST:
        raise InputError(
            f"the rasters spread over {height} x {width} pixels; give one tile at a time, or a grid by --like"
        )
    a, b, c, d, e, f = tuple(finest.transform)[:6]
    moved = Affine(a, b, c + a * left + b * top, d, e, f + d * left + e * top)
    return Grid(finest.crs, moved, height, width)


def parse_crs(text: str) -> CRS:
    """A coordinate system by its code or text.

    Raises:
        InputError: if it is not one.
    """
    try:
        return CRS.from_user_input(text)
    except CRSError as error:
        raise InputError(f"{text[:60]!r} is not a coordinate system ({error})") from error


def with_crs(grid: Grid, text: str | None, where: str) -> Grid:
    """The grid, with the user's coordinate system where it has none.

    Raises:
        InputError: if it has one and the user names another.
    """
    if text is None:
        return grid
    crs = parse_crs(text)
    if grid.crs is not None and not same_crs(grid.crs, crs):
        raise InputError(f"{where}: is in {crs_name(grid.crs)}, not in {crs_name(crs)} as --crs says")
    return Grid(grid.crs or crs, grid.transform, grid.height, grid.width)


def _pixel_area(grid: Grid) -> float:
    return abs(grid.transform.determinant)


def _in_pixels(base: Grid, grid: Grid) -> tuple[float, float, float, float]:
    """The bounds of a grid in the pixels of another: left, top, right, bottom."""
    west, south, east, north = grid.bounds
    inverse = ~base.transform
    a, b, c, d, e, f = tuple(inverse)[:6]
    xs = [a * x + b * y + c for x in (west, east) for y in (south, north)]
    ys = [d * x + e * y + f for x in (west, east) for y in (south, north)]
    return min(xs), min(ys), max(xs), max(ys)
