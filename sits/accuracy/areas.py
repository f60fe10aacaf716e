"""How much area each code of a map covers, in hectares that are true in every coordinate system."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Geod
from rasterio.warp import transform
from rasterio.windows import Window as RasterWindow

from geomix.errors import InputError
from sits.grid import Grid, place
from sits.io.raster import grid_of, open_raster

_ROWS = 512
_STRETCHED = ("pseudo mercator", "mercator (", "equidistant cylindrical", "miller")
"""Projections whose metres grow with the latitude, so that they say nothing of areas."""


def areas_of(map_file: Path) -> dict[int, float]:
    """Hectares of each code of a map, nodata left out.

    Raises:
        InputError: if the map has no coordinate system.
    """
    with open_raster(str(map_file)) as dataset:
        rows = row_areas(grid_of(dataset), str(map_file))
        found: NDArray[np.float64] = np.zeros(256)
        for top, codes in strips(dataset):
            for row, line in enumerate(codes, top):
                found += rows[row] * np.bincount(line, minlength=256)
        nodata = dataset.nodata
    return {code: float(area) for code, area in enumerate(found) if area > 0 and code != nodata}


def strips(dataset: Any) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """First row and codes of each strip of an open map."""
    for top in range(0, dataset.height, _ROWS):
        height = min(_ROWS, dataset.height - top)
        yield top, dataset.read(1, window=RasterWindow(0, top, dataset.width, height))


def row_areas(grid: Grid, name: str) -> NDArray[np.float64]:
    """Hectares of a pixel of each row, [H].

    Projected systems keep their own square metres; degrees, and projections that stretch with the latitude,
    are measured on the ellipsoid, in the middle of each row.

    Raises:
        InputError: if the grid has no coordinate system.
    """
    if grid.crs is None:
        raise InputError(f"{name}: has no coordinate system, so its pixels have no area")
    operation = CRS.from_wkt(grid.crs.to_wkt()).coordinate_operation
    method = "" if operation is None else operation.method_name.lower()
    if grid.crs.is_projected and not any(words in method for words in _STRETCHED):
        area = abs(grid.transform.determinant) * grid.crs.linear_units_factor[1] ** 2 / 1e4
        return np.full(grid.height, area)
    geod, middle = Geod(ellps="WGS84"), grid.width // 2
    corners = [
        place(grid.transform, middle + x, row + y)
        for row in range(grid.height)
        for x, y in ((0, 0), (0, 1), (1, 1), (1, 0))
    ]
    lon, lat = transform(grid.crs, "EPSG:4326", *zip(*corners, strict=True))
    areas = [
        abs(geod.polygon_area_perimeter(lon[start : start + 4], lat[start : start + 4])[0])
        for start in range(0, len(lon), 4)
    ]
    return np.array(areas) / 1e4
