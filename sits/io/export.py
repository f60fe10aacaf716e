"""A series as dated GeoTIFFs, for a GIS: what a bare array or a cube holds, placed on the map."""

import logging
from pathlib import Path

import numpy as np

from geomix.files import make_folder
from geomix.progress import progress
from sits.io.cog import Layer, new_cog
from sits.series import TimeSeries

log = logging.getLogger(__name__)

NOTHING = -10000
"""The number for no data, as MAJA writes it."""
_SCALE = 1e-4
_LEAST, _MOST = -9999, 32767
_BLOCK = 512


def write_series(series: TimeSeries, folder: Path, overwrite: bool = False) -> list[Path]:
    """Write one Cloud-Optimised GeoTIFF a date: int16 digital numbers with scale, nodata and band names.

    Numbers that were digital numbers of 0.0001 come back as they were, without their offset.

    Args:
        series: what to write.
        folder: is made if it is not there.
        overwrite: whether existing files may be replaced.

    Returns:
        The files in time order, `<name>_<YYYYMMDD>.tif`.

    Raises:
        OutputExistsError: if a file exists and may not be replaced.
    """
    make_folder(folder)
    stem = Path(series.name).stem.replace(" ", "_") or "series"
    files = []
    for one in progress(series.acquisitions, "Dates", len(series.acquisitions)):
        layer = Layer(
            dtype="int16",
            nodata=NOTHING,
            descriptions=series.bands,
            tags={"ACQUISITION_DATE": one.date.isoformat(), "GEOMIX_OFFSET": one.offset},
            overviews="average",
            scale=_SCALE,
        )
        path = folder / f"{stem}_{one.date:%Y%m%d}.tif"
        alone = series.between(one.date, one.date)
        clipped = 0
        with new_cog(path, series.grid, layer, overwrite) as sink:
            for window in series.grid.blocks(_BLOCK):
                values, valid = alone.read(window)
                exact = np.rint(values[0] / np.float32(_SCALE))
                numbers = np.clip(exact, _LEAST, _MOST)
                clipped += int(((exact != numbers) & valid[0]).sum())
                sink.write(np.where(valid[0], numbers, NOTHING).astype(np.int16), window)
        files.append(path)
        if clipped:
            log.warning(
                "%s: %d values lie beyond %g to %g reflectance, which int16 holds, and are cut off there",
                path,
                clipped,
                _LEAST * _SCALE,
                _MOST * _SCALE,
            )
    return files
