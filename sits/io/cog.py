"""Cloud-Optimised GeoTIFFs, written block by block and complete or not there at all."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.shutil import copy
from rasterio.windows import Window as RasterWindow

from geomix.errors import FormatError
from geomix.files import new_file
from sits.grid import Grid, Window

Color = tuple[int, int, int, int]


@dataclass(frozen=True)
class Layer:
    """What a raster holds besides its pixels."""

    dtype: str
    nodata: float | None
    descriptions: tuple[str, ...]
    """One a band."""
    tags: Mapping[str, str] = field(default_factory=dict)
    colormap: Mapping[int, Color] | None = None
    overviews: str = "nearest"
    """How smaller copies are made: `mode` for classes, `average` for amounts."""
    scale: float | None = None
    """What a 1 in the file stands for."""


class Sink:
    """Takes the blocks of a raster in any order, and turns them into a Cloud-Optimised GeoTIFF.

    GDAL writes such files in one go only, so the blocks go to a plain tiled file beside it first.
    """

    def __init__(self, target: Path, grid: Grid, layer: Layer, work: Path | None = None) -> None:
        """Begin a file, or go on with one.

        Args:
            target: where the finished file goes.
            grid: the grid of the input.
            layer: what it holds besides its pixels.
            work: the plain file; if it is there, its blocks count. It outlives a failure. None for a
                passing one.
        """
        self.path = target
        """Where the file grows, before it gets its name."""
        self._layer = layer
        self._keep = work is not None
        self._work = work or target.with_name(target.name + ".work.tif")
        if self._work.exists():
            self._dataset = rasterio.open(self._work, "r+")
            return
        self._dataset = rasterio.open(self._work, "w", **_profile(grid, layer))
        self._dataset.update_tags(**layer.tags)
        for index, text in enumerate(layer.descriptions, 1):
            self._dataset.set_band_description(index, text)
        if layer.colormap is not None:
            self._dataset.write_colormap(1, dict(layer.colormap))
        if layer.scale is not None:
            self._dataset.scales = (layer.scale,) * len(layer.descriptions)

    def write(self, values: NDArray[np.generic], window: Window) -> None:
        """Put a block [bands, h, w] in its place."""
        part = RasterWindow(window.col, window.row, window.width, window.height)
        self._dataset.write(values, window=part)

    def save(self) -> None:
        """Make the blocks so far safe on disk."""
        self._dataset.close()
        self._dataset = rasterio.open(self._work, "r+")

    def finish(self) -> None:
        """Write the Cloud-Optimised GeoTIFF of all blocks; once only."""
        if self._dataset.closed:
            return
        self._dataset.close()
        copy(
            str(self._work),
            str(self.path),
            driver="COG",
            compress="DEFLATE",
            bigtiff="IF_SAFER",
            overview_resampling=self._layer.overviews.upper(),
            # Codes are no amounts: a predictor would only make them larger.
            predictor="NO" if self._layer.colormap is not None else "YES",
        )
        self.discard()

    def discard(self) -> None:
        """Close the plain file, and remove it unless it is to be kept."""
        self._dataset.close()
        if self._keep:
            return
        for left in self._work.parent.glob(f"{self._work.name}*"):
            left.unlink()


@contextmanager
def new_cog(
    path: Path, grid: Grid, layer: Layer, overwrite: bool = False, work: Path | None = None
) -> Iterator[Sink]:
    """Take blocks for a Cloud-Optimised GeoTIFF on exactly that grid.

    Args:
        path: the file; it appears when the block ends well.
        grid: the grid of the input.
        layer: type, nodata, names and colours.
        overwrite: whether an existing file may be replaced.
        work: where the blocks wait and outlive a failure, to go on later; None for nowhere.

    Raises:
        OutputExistsError: if the file exists and may not be replaced.
        FormatError: if the disk is full or GDAL cannot write.
    """
    with new_file(path, overwrite) as target:
        sink = None
        try:
            sink = Sink(target, grid, layer, work)
            yield sink
            sink.finish()
        except RasterioError as error:
            raise FormatError(f"{path}: cannot be written ({str(error).splitlines()[0]})") from error
        finally:
            if sink is not None:
                sink.discard()


def _profile(grid: Grid, layer: Layer) -> dict[str, Any]:
    return {
        "driver": "GTiff",
        "dtype": layer.dtype,
        "nodata": layer.nodata,
        "count": len(layer.descriptions),
        "height": grid.height,
        "width": grid.width,
        "crs": grid.crs,
        "transform": grid.transform,
        "tiled": True,
        "blockxsize": 256,
        "blockysize": 256,
        "interleave": "band",
        "bigtiff": "IF_SAFER",
    }
