"""Files and xarray objects in, one `TimeSeries` out; maps out, as Cloud-Optimised GeoTIFFs with their legend.

What reads a kind of input is imported when it is first used, so that the command line starts at once.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sits.io.find import Kind, expand, kind_of
from sits.io.options import ReadOptions

if TYPE_CHECKING:
    import xarray as xr

    from sits.series import TimeSeries

    Inputs = str | Path | Sequence[str | Path] | xr.Dataset | xr.DataArray

READERS: dict[Kind, str] = {
    "rasters": "geotiff",
    "cube": "cube",
    "stac": "stac",
    "pastis": "pastis.patch",
    "patch": "pastis.patch",
}
"""Module here with `read(paths, options)` for each kind of input."""

__all__ = ["READERS", "ReadOptions", "expand", "kind_of", "open_series"]


def open_series(inputs: "Inputs", options: ReadOptions | None = None) -> "TimeSeries":
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
    from sits.io.masks import with_user_mask

    options = options or ReadOptions()
    if not isinstance(inputs, (str, Path, Sequence)):
        from sits.io.cube import read_xarray

        return read_xarray(inputs, options)
    paths = expand([inputs] if isinstance(inputs, (str, Path)) else inputs)
    reader = import_module(f"{__name__}.{READERS[kind_of(paths)]}")
    read: Callable[[Sequence[Path], ReadOptions], TimeSeries] = reader.read
    return with_user_mask(read(paths, options), options.mask, options.dilate)
