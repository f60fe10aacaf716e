"""Files and xarray objects in, one `TimeSeries` out."""

from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from geomix.errors import UnsupportedError
from sits.io.check import checked
from sits.io.cube import CubeSource, open_cube, open_xarray
from sits.io.find import expand, kind_of, rasters_in
from sits.io.geotiff import open_rasters
from sits.io.patch import open_patch, series_of_patch
from sits.io.stac import open_stac
from sits.options import ReadOptions
from sits.pastis import PastisFolder
from sits.series import TimeSeries

__all__ = [
    "expand",
    "kind_of",
    "open_cube",
    "open_patch",
    "open_rasters",
    "open_series",
    "open_stac",
    "open_xarray",
    "series_of_patch",
]

Inputs = str | Path | Sequence[str | Path] | xr.Dataset | xr.DataArray


def open_series(inputs: Inputs, options: ReadOptions | None = None) -> TimeSeries:
    """Open an image time series, whatever it is kept in.

    Args:
        inputs: dated rasters, folders of them or patterns; or one NetCDF file, Zarr store, STAC item
            collection with local assets, PASTIS file S2_<id>.npy, or xarray object.
        options: what the user says about them; what is left out is read from them, or guessed aloud.

    Raises:
        MissingFileError: if a path is not there, or a pattern or folder gives no file.
        FormatError: if a file is damaged or of another format.
        InputError: if dates, bands or coordinate systems are missing or contradict each other.
    """
    options = options or ReadOptions()
    if isinstance(inputs, (xr.Dataset, xr.DataArray)):
        series = open_xarray(inputs, options)
        lazy = isinstance(series.source, CubeSource) and series.source.lazy
        return series if lazy else checked(series, options)
    paths = expand([inputs] if isinstance(inputs, (str, Path)) else inputs)
    kind = kind_of(paths)
    if kind == "pastis":
        return _only_patch(paths[0], options)
    if kind == "patch":
        return open_patch(paths[0], options)
    if kind == "cube":
        return checked(open_cube(paths[0], options), options)
    if kind == "stac":
        return checked(open_stac(paths[0], options), options)
    files, chosen = rasters_in(paths)
    name = str(paths[0]) if len(paths) == 1 else None
    return checked(open_rasters(files, options, chosen, name), options)


def _only_patch(path: Path, options: ReadOptions) -> TimeSeries:
    folder = PastisFolder(path)
    if len(folder.patches) > 1:
        raise UnsupportedError(
            f"{path}: holds {len(folder.patches)} patches, each a series; give one DATA_S2/S2_<id>.npy, "
            "or map all of them into a folder: `segment ... -o maps/`"
        )
    return series_of_patch(folder, next(iter(folder.patches.values())), options)
