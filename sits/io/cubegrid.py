"""Where the pixels of an xarray object lie: its axes, coordinate system and transform."""

import logging
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.errors import CRSError

from geomix.errors import InputError
from sits.grid import Grid

log = logging.getLogger(__name__)

_ROWS = ("y", "lat", "latitude", "northing", "row", "rows")
_COLUMNS = ("x", "lon", "longitude", "easting", "col", "column", "columns")
_MAPPINGS = ("spatial_ref", "crs", "transverse_mercator", "grid_mapping")
_CRS_ATTRS = ("crs_wkt", "spatial_ref", "crs", "proj:wkt2", "proj:code", "proj:epsg", "epsg", "epsg_code")


def axes_of(data: xr.Dataset, times: Sequence[str], name: str) -> tuple[Hashable | None, Hashable, Hashable]:
    """The names of the dimensions for time (None where there is none), rows and columns.

    Raises:
        InputError: if there are no rows or columns.
    """
    y, x = _pick(data, _ROWS, "Y"), _pick(data, _COLUMNS, "X")
    if y is None or x is None:
        there = ", ".join(map(str, data.sizes)) or "none at all"
        raise InputError(f"{name}: has no dimensions for rows and columns; its dimensions: {there}")
    return _pick(data, times, "T"), y, x


def grid_of_cube(data: xr.Dataset, y: Hashable, x: Hashable, name: str) -> Grid:
    """The grid of an object, from its transform where one is kept, else from its coordinates.

    Raises:
        InputError: if there are no coordinates, or they are not evenly spaced.
    """
    crs, transform = _mapping(data)
    height, width = data.sizes[y], data.sizes[x]
    if transform is not None and _agrees(data, y, x, transform):
        return Grid(crs, transform, height, width)
    if y not in data.coords or x not in data.coords:
        raise InputError(f"{name}: {y!r} and {x!r} have no coordinates and no transform is kept")
    a, c = _axis(np.asarray(data[x].values, dtype=np.float64), f"{name}: {x!r}")
    e, f = _axis(np.asarray(data[y].values, dtype=np.float64), f"{name}: {y!r}")
    if a is None and e is None:
        raise InputError(
            f"{name}: a single pixel has no size; keep its transform in spatial_ref.GeoTransform"
        )
    a = abs(e or 1.0) if a is None else a
    e = -abs(a) if e is None else e
    # With one row or column, the coordinate is that of the pixel's middle.
    west = c if width > 1 else c - a / 2
    north = f if height > 1 else f - e / 2
    return Grid(crs, Affine(a, 0.0, west, 0.0, e, north), height, width)


def grid_mapping_name(data: xr.Dataset) -> Hashable | None:
    """The variable that keeps the coordinate system."""
    named = [
        array.attrs.get("grid_mapping") or array.encoding.get("grid_mapping")
        for array in data.data_vars.values()
    ]
    for key in [*(mapping for mapping in named if mapping), *_MAPPINGS]:
        if key in data.variables:
            return str(key)
    return None


def _pick(data: xr.Dataset, names: Sequence[str], axis: str) -> Hashable | None:
    by_lower = {str(dim).lower(): dim for dim in data.sizes}
    for name in names:
        if name in by_lower:
            return by_lower[name]
    for dim in data.sizes:
        if dim in data.coords and data[dim].attrs.get("axis") == axis:
            return dim
    return None


def _mapping(data: xr.Dataset) -> tuple[CRS | None, Affine | None]:
    """Coordinate system and transform, wherever they hide: a variable, a coordinate or an attribute."""
    key = grid_mapping_name(data)
    places: list[dict[Any, Any]] = [dict(data.attrs)]
    places += [dict(array.attrs) for array in data.data_vars.values()]
    if key is not None:
        places.insert(0, dict(data[key].attrs))
    for scalar in ("proj:epsg", "epsg", "proj:code"):  # as stackstac and odc keep them
        if scalar in data.coords and data[scalar].ndim == 0:
            places.append({"epsg": data[scalar].item()})
    crs = next((found for place in places if (found := _crs_in(place)) is not None), None)
    transform = next((found for place in places if (found := _transform_in(place)) is not None), None)
    return crs, transform


def _crs_in(attrs: dict[Any, Any]) -> CRS | None:
    for key in _CRS_ATTRS:
        value = attrs.get(key)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        try:
            if isinstance(value, str) and not value.strip().isdigit():
                return CRS.from_user_input(value)
            return CRS.from_epsg(int(value))
        except (CRSError, ValueError, TypeError):
            log.warning("attribute %s = %.60r is not a coordinate system", key, value)
    return None


def _transform_in(attrs: dict[Any, Any]) -> Affine | None:
    text = attrs.get("GeoTransform")
    if isinstance(text, str):
        numbers = [float(number) for number in text.split()]
        if len(numbers) == 6:
            return Affine.from_gdal(*numbers)
    values = attrs.get("transform", attrs.get("proj:transform"))
    if values is not None and not isinstance(values, str) and len(np.ravel(values)) >= 6:
        return Affine(*(float(number) for number in np.ravel(values)[:6]))
    return None


def _agrees(data: xr.Dataset, y: Hashable, x: Hashable, transform: Affine) -> bool:
    """Whether a kept transform still tells where the pixels are: a cut object may carry an old one."""
    if y not in data.coords or x not in data.coords:
        return True
    if transform.b or transform.d:
        return True
    for dim, step, start in ((x, transform.a, transform.c), (y, transform.e, transform.f)):
        values = np.asarray(data[dim].values, dtype=np.float64)
        expected = start + (np.arange(len(values)) + 0.5) * step
        if len(values) and np.abs(values - expected).max() > abs(step) * 1e-3:
            return False
    return True


def _axis(values: NDArray[np.float64], where: str) -> tuple[float | None, float]:
    """Step and edge of evenly spaced pixel centres, as exact as the centres are.

    Raises:
        InputError: if they are not evenly spaced.
    """
    count = len(values)
    if count == 1:
        return None, float(values[0])
    places = np.arange(count, dtype=np.float64) + 0.5
    step = (values[-1] - values[0]) / (count - 1)
    # Least squares in long double: the two ends alone would carry their rounding into every pixel.
    exact, centred = values.astype(np.longdouble), places - places.mean(dtype=np.longdouble)
    slope = (centred * (exact - exact.mean())).sum() / (centred * centred).sum()
    start = float(exact.mean() - slope * places.mean(dtype=np.longdouble))
    # A step is either a number of few digits, or the distance of two edges over the count.
    candidates = [(round(float(slope), digits), start) for digits in range(10)]
    far = float(start + slope * count)
    edges = (np.nextafter(far, far - step), far, np.nextafter(far, far + step))
    candidates += [(float((edge - start) / count), start) for edge in edges]
    candidates += [(float(slope), start), (float(step), float(values[0] - step / 2))]
    off = [float(np.abs(edge + places * size - values).max()) for size, edge in candidates]
    if step == 0 or min(off) > abs(step) * 0.01:
        raise InputError(
            f"{where} is not evenly spaced (off by up to {min(off):.3g} of a step of {step:.6g})"
        )
    return candidates[int(np.argmin(off))]
