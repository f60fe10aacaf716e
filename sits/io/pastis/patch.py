"""Series from the PASTIS format: one S2_<id>.npy, placed on the map by its footprint."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rasterio.crs import CRS

from geomix.errors import InputError, MissingFileError, UnsupportedError
from sits.grid import Grid, Window, crs_name
from sits.io.options import ReadOptions
from sits.io.pastis.folder import BANDS, NODATA, PastisFolder, Patch
from sits.radiometry import DIGITAL_NUMBER, Radiometry, decide_offset
from sits.radiometry import Evidence as _Evidence
from sits.series import Acquisition, Mask, TimeSeries, Values

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PatchSource:
    """The digital numbers of a patch, mapped from its file; several images of a day are fused."""

    numbers: NDArray[np.int16]
    steps: tuple[tuple[int, ...], ...]
    """The images of each date, by their place in the file."""
    radiometry: Radiometry

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Reflectance [T, C, h, w] and where there are data [T, h, w]."""
        rows, cols = window.slices
        channels = [BANDS.index(band) for band in bands]
        values = np.zeros((len(steps), len(bands), window.height, window.width), dtype=np.float32)
        valid = np.zeros((len(steps), window.height, window.width), dtype=bool)
        for place, step in enumerate(steps):
            for image in self.steps[step]:
                part, known = self.radiometry.decode(self.numbers[image, channels, rows, cols])
                new = known.all(axis=0) & ~valid[place]
                values[place] = np.where(new, part, values[place])
                valid[place] |= new
        return np.where(valid[:, None], values, np.float32(0)), valid


def read(paths: Sequence[Path], options: ReadOptions) -> TimeSeries:
    """Open one S2_<id>.npy, or a PASTIS folder of one patch; `paths` names it alone.

    Raises:
        UnsupportedError: if a folder holds several patches, each of which is a series.
        InputError: if the name of a file holds no id, or the metadata does not list it.
        MissingFileError: if there is no metadata.geojson beside or above the file.
    """
    if paths[0].is_file():
        return _of_file(paths[0], options)
    folder = PastisFolder(paths[0])
    if len(folder.patches) > 1:
        raise UnsupportedError(
            f"{paths[0]}: holds {len(folder.patches)} patches, each a series; give one DATA_S2/S2_<id>.npy, "
            "or map all of them into a folder: `segment ... -o maps/`"
        )
    return _told(series_of_patch(folder, next(iter(folder.patches.values())), options))


def _told(series: TimeSeries) -> TimeSeries:
    """Say how well a patch is placed."""
    where = crs_name(series.grid.crs)
    log.info(
        "%s: placed by its footprint in %s, up to 3 m off the 10 m grid of Sentinel-2", series.name, where
    )
    return series


def _of_file(file: Path, options: ReadOptions) -> TimeSeries:
    """Open one S2_<id>.npy; its folder's metadata.geojson gives the dates and the place.

    Raises:
        InputError: if the name holds no id, or the metadata does not list it.
        MissingFileError: if there is no metadata.geojson beside or above the file.
    """
    match = re.fullmatch(r"S2_(\d+)", file.stem)
    if match is None:
        raise InputError(
            f"{file}: is no PASTIS file, whose name would be S2_<id>.npy; a bare array tells neither dates "
            "nor bands nor place: give it them in Python with `sits.TimeSeries.from_arrays`"
        )
    root = next(
        (folder for folder in list(file.absolute().parents)[:3] if (folder / "metadata.geojson").is_file()),
        None,
    )
    if root is None:
        raise MissingFileError(
            f"{file}: needs metadata.geojson in its folder or the one above, for dates and place"
        )
    folder = PastisFolder(root)
    patch = folder.patches.get(int(match[1]))
    if patch is None:
        raise InputError(f"{root / 'metadata.geojson'}: does not list patch {match[1]}")
    return _told(series_of_patch(folder, patch, options, file))


def series_of_patch(
    folder: PastisFolder, patch: Patch, options: ReadOptions | None = None, file: Path | None = None
) -> TimeSeries:
    """The series of a patch: digital numbers of level 2A with -10000 for nothing, on its UTM grid."""
    options = options or ReadOptions()
    numbers = folder.values(patch, file)
    offset, reason = decide_offset(_Evidence(), options.offset_choice)
    if options.offset == "auto":
        reason = "none (MAJA products carry no offset)"
    radiometry = Radiometry(
        scale=options.scale or DIGITAL_NUMBER,
        offset=offset,
        nodata=NODATA if options.nodata is None else options.nodata,
    )
    transform = patch.transform(numbers.shape[-1])
    grid = Grid(CRS.from_epsg(patch.crs.to_epsg()), transform, *numbers.shape[-2:])
    groups: dict[object, list[int]] = {}
    for image in sorted(range(len(patch.dates)), key=lambda place: patch.dates[place]):
        groups.setdefault(patch.dates[image], []).append(image)
    name = f"S2_{patch.id}"
    return TimeSeries(
        grid=grid,
        acquisitions=tuple(
            Acquisition(patch.dates[images[0]], (name,), reason) for images in groups.values()
        ),
        bands=BANDS,
        source=PatchSource(numbers, tuple(tuple(images) for images in groups.values()), radiometry),
        name=name,
        notes={"scale": f"{radiometry.scale:g}", "level": "L2A"},
    )
