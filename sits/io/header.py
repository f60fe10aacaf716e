"""What a raster file says about itself: its grid, bands, date, numbers and product."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import InputError
from sits.bands import BandLabel, informative
from sits.dates import WRITTEN_TAG, date_in_name, date_in_tags, dates_in
from sits.grid import Grid
from sits.io.products import product_of
from sits.io.raster import grid_of, open_raster
from sits.radiometry import Evidence, baseline_in_name, level_in_name

log = logging.getLogger(__name__)

# Names of these products hold the time of processing too, or a tile's code; the first date is the sensing.
_PRODUCT = re.compile(r"MSI_?L[12][AC]|^S2[A-D]_|^L[COTEM]0[4-9]_|^T\d\d[A-Z]{3}_|SENTINEL2", re.IGNORECASE)


@dataclass(frozen=True)
class RasterInfo:
    """What was read from a file's header."""

    path: Path
    grid: Grid
    labels: tuple[BandLabel, ...]
    dtypes: tuple[np.dtype[np.generic], ...]
    scales: tuple[float | None, ...]
    """Reflectance of one unit, where the file states it."""
    offsets: tuple[float | None, ...]
    """In digital numbers, where the file states it."""
    nodata: tuple[float | None, ...]
    tags: Mapping[str, str]

    @property
    def evidence(self) -> Evidence:
        """What speaks for an offset."""
        tags = {name.upper(): value for name, value in self.tags.items()}
        stated = next((offset for offset in self.offsets if offset), None)
        if stated is None:
            stated = _number(tags.get("BOA_ADD_OFFSET") or tags.get("RADIO_ADD_OFFSET"))
        baseline = tags.get("PROCESSING_BASELINE") or baseline_in_name(str(self.path))
        return Evidence(baseline=baseline, offset=stated)

    @property
    def level(self) -> str | None:
        """Product level by tags or name."""
        product = self.tags.get("PRODUCT_TYPE", "") or self.tags.get("PRODUCT_URI", "")
        return level_in_name(product) or level_in_name(str(self.path))


def read_header(path: Path) -> RasterInfo:
    """Read the header of a raster.

    Raises:
        FormatError: if GDAL cannot read it.
    """
    with open_raster(str(path)) as dataset:
        tags = {**dataset.tags(), **dataset.tags(ns="IMAGERY")}
        whole = _number(tags.get("QUANTIFICATION_VALUE") or tags.get("BOA_QUANTIFICATION_VALUE"))
        product = product_of(path)
        known = 1.0 / whole if whole else product.scale
        scales = [scale if scale != 1.0 else known for scale in dataset.scales]
        offsets = [
            offset / scale if offset != 0.0 else product.offset
            for offset, scale in zip(dataset.offsets, dataset.scales, strict=True)
        ]
        return RasterInfo(
            path=path,
            grid=grid_of(dataset),
            labels=tuple(_label(dataset, index, path, product.sensor) for index in dataset.indexes),
            dtypes=tuple(np.dtype(name) for name in dataset.dtypes),
            scales=tuple(scales),
            offsets=tuple(offsets),
            nodata=tuple(product.nodata if value is None else value for value in dataset.nodatavals),
            tags=tags,
        )


def date_of(info: RasterInfo, table: Mapping[str, datetime] | None, alone: bool) -> datetime | None:
    """When a raster was taken: by the user's table, its name, its tags, or its folder's name.

    Args:
        info: the raster.
        table: dates by file name or path; a file that it does not list is an error.
        alone: whether its folder may speak for it, because no other scene lies in there.

    Returns:
        The moment; None where nothing says it.

    Raises:
        InputError: if there is a table and it does not list the file.
    """
    path = info.path
    if table is not None:
        for key in (str(path), path.name, path.stem):
            if key in table:
                return table[key]
        raise InputError(f"{path}: is not listed in the table of dates")
    found = dates_in(path.stem)
    if found:
        others = {moment.date() for moment in found} - {found[0].date()}
        if others and not _PRODUCT.search(path.stem):
            log.warning("%s: its name holds several dates; the first, %s, is taken", path, found[0].date())
        return found[0]
    tagged = date_in_tags(info.tags)
    if tagged is not None:
        return tagged
    if alone:
        folder = date_in_name(Path(*path.absolute().parts[-4:-1]))
        if folder is not None:
            log.info("%s: its date %s is that of its folder", path, folder.date())
            return folder
    written = dates_in(info.tags.get(WRITTEN_TAG, ""))
    if written:
        log.warning(
            "%s: the only date is %s, %s; maybe the day of writing (say otherwise with --dates TABLE.csv)",
            path,
            WRITTEN_TAG,
            written[0].date(),
        )
        return written[0]
    return None


def _label(dataset: Any, index: int, path: Path, sensor: str) -> BandLabel:
    tags = {name.lower(): value for name, value in dataset.tags(index).items()}
    imagery = {name.lower(): value for name, value in dataset.tags(index, ns="IMAGERY").items()}
    named = (tags.get(key) for key in ("bandname", "name", "description"))
    text = dataset.descriptions[index - 1] or next(filter(None, named), "")
    if dataset.count == 1 and (not text or not informative([BandLabel(text)])[0].text):
        text = path.stem
    wavelength = (
        _number(imagery.get("central_wavelength_um"))
        or _number(tags.get("wavelength"))
        or _number(tags.get("center_wavelength"))
    )
    return BandLabel(text, tags.get("common_name", ""), wavelength, sensor)


def _number(text: str | None) -> float | None:
    match = re.search(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text or "", re.IGNORECASE)
    return float(match[0]) if match else None
