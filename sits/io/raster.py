"""One raster file of one date, read window by window on the grid of its series."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window as RasterWindow

from geomix.errors import FormatError, MissingFileError
from sits.grid import Grid, Window
from sits.radiometry import Radiometry, fits, outside

_OPEN_AT_ONCE = 128


@dataclass(frozen=True)
class Warp:
    """How a raster of another grid is brought to that of its series."""

    grid: Grid
    resampling: str = "bilinear"
    """The name of a GDAL resampling method."""


@dataclass(frozen=True)
class RasterBand:
    """One band of a file and what its numbers mean."""

    index: int
    """Counted from 1."""
    radiometry: Radiometry


@dataclass(frozen=True)
class RasterFile:
    """Some bands of one acquisition in one file."""

    path: str
    bands: dict[str, RasterBand]
    warp: Warp | None = None

    def read(self, bands: Sequence[str], window: Window, pool: "FilePool") -> list[NDArray[np.generic]]:
        """The numbers of those bands as they stand, each [h, w].

        Raises:
            FormatError: if the file is damaged or truncated.
        """
        indexes = [self.bands[band].index for band in bands]
        part = RasterWindow(window.col, window.row, window.width, window.height)
        try:
            with pool.lock:
                return list(pool.open(self).read(indexes, window=part))
        except (RasterioError, OSError) as error:
            raise unreadable(self.path, error) from error


@dataclass
class FilePool:
    """Files kept open between windows, so that their caches live on; the oldest is closed first."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    _open: "OrderedDict[tuple[str, Warp | None], Any]" = field(default_factory=OrderedDict)

    def open(self, file: RasterFile) -> Any:
        """The dataset of a file, on the grid that its warp asks for."""
        key = (file.path, file.warp)
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        dataset = rasterio.open(file.path)
        if file.warp is not None:
            dataset = _warped(dataset, file, file.warp)
        self._open[key] = dataset
        while len(self._open) > _OPEN_AT_ONCE:
            self._open.popitem(last=False)[1].close()
        return dataset

    def close(self) -> None:
        """Close all files."""
        with self.lock:
            while self._open:
                self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, object]:
        # Another process opens its own: neither handles nor locks travel.
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.lock = threading.RLock()
        self._open = OrderedDict()


def open_raster(path: str) -> Any:
    """Open a raster to look at it.

    Raises:
        MissingFileError: if it is not there.
        FormatError: if GDAL cannot read it.
    """
    try:
        return rasterio.open(path)
    except (RasterioError, OSError) as error:
        if "No such file" in str(error):
            raise MissingFileError(f"{path}: no such file") from error
        raise unreadable(path, error) from error


def grid_of(dataset: Any) -> Grid:
    """The grid of an open raster."""
    return Grid(dataset.crs, dataset.transform, dataset.height, dataset.width)


def unreadable(path: str, error: Exception) -> FormatError:
    """The error of a file that GDAL opens or reads in vain."""
    reason = str(error.__cause__ or error).splitlines()[0].strip()
    return FormatError(f"{path}: is damaged, truncated or no raster ({reason}); get the file again")


def _warped(dataset: Any, file: RasterFile, warp: Warp) -> Any:
    grid = warp.grid
    nodata = next(iter(file.bands.values())).radiometry.nodata
    if nodata is None or not fits(nodata, np.dtype(dataset.dtypes[0])):
        # What the raster does not reach must not become 0, a number like any other.
        nodata = outside(np.dtype(dataset.dtypes[0]))
    return WarpedVRT(
        dataset,
        crs=grid.crs,
        transform=grid.transform,
        width=grid.width,
        height=grid.height,
        resampling=Resampling[warp.resampling],
        src_nodata=nodata,
        nodata=nodata,
        # Near to exact positions, so that windows of any size read the same pixels; GDAL refuses 0.
        tolerance=1e-6,
    )
