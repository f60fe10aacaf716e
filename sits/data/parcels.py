"""Parcels of which one spectrum a date is known: a table of points, as WorldCereal extracts them.

One row holds a parcel and a ten-day step: `sample_id`, `timestamp`, `ewoc_code` (declared crop) and columns
such as `S2-L2A-B02`, reflectance times 10000 with 65535 where no clear image was taken.

Source: https://github.com/WorldCereal/worldcereal-classification (format and crop groups).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np
from affine import Affine
from numpy.typing import NDArray
from pydantic import Field

from geomix.config import Config
from geomix.errors import FormatError, InputError, MissingFileError
from sits.data.labelled import LabelledSeries
from sits.grid import Grid
from sits.series import TimeSeries

NODATA = 65535

_NOWHERE = Grid(None, Affine.identity(), 1, 1)
"""The table tells no places."""


class ParcelData(Config):
    """A table of parcels, divided into folds that hold each crop alike."""

    kind: Literal["parcels"] = "parcels"
    table: str
    """Name of the Parquet table inside the data folder."""
    groups: str = "class_mappings.json"
    """Name of the JSON file with the crop groups inside the data folder."""
    taxonomy: str = "CROPTYPE28"
    """Which list of groups of that file names the classes."""
    folds: int = Field(5, ge=2)
    test_fold: int | None = Field(0, ge=0)
    """Which fold is the test, from 0; None trains on all parcels."""
    seed: int = Field(0, ge=0)
    """Decides which parcel falls into which fold."""


def read_parcels(
    path: Path, data: ParcelData, bands: Sequence[str], names: Sequence[str]
) -> list[LabelledSeries]:
    """Read the parcels whose crop belongs to one of the classes, in the order of their names.

    Args:
        path: folder of the table and the crop groups.
        data: which table and groups.
        bands: bands that the model wants.
        names: crop groups in the order of the classes.

    Returns:
        One series of one pixel per parcel.

    Raises:
        MissingFileError: if the table or the groups are absent.
        FormatError: if a column is missing.
        InputError: if there is no such list of groups, or no parcel of these classes.
    """
    import pandas as pd

    table, groups = path / data.table, _groups(path / data.groups, data.taxonomy)
    if not table.is_file():
        raise MissingFileError(f"{table}: there is no such table of parcels")
    columns = [_column(band) for band in bands]
    try:
        rows = pd.read_parquet(table, columns=["sample_id", "timestamp", "ewoc_code", *columns])
    except (ValueError, OSError) as error:
        raise FormatError(f"{table}: is no table of parcels with {', '.join(columns)} ({error})") from error
    numbers = {name: number for number, name in enumerate(names)}
    series = []
    for sample, part in rows.sort_values("timestamp").groupby("sample_id", sort=True):
        group = groups.get(str(part["ewoc_code"].iloc[0]))
        if group in numbers:
            counts = part[columns].to_numpy(dtype=np.int64)
            dates = tuple(stamp.date() for stamp in part["timestamp"])
            series.append(_parcel(str(sample), counts, dates, bands, numbers[group]))
    if not series:
        raise InputError(f"{table}: holds no parcel of {', '.join(names)}")
    return series


def fold_of(labels: Sequence[int], folds: int, seed: int) -> NDArray[np.int64]:
    """Deal the parcels of each class out over the folds in a random order, [N]."""
    rng = np.random.default_rng(seed)
    numbers = np.asarray(labels)
    found, dealt = np.zeros(len(numbers), dtype=np.int64), 0
    for label in np.unique(numbers):
        members = rng.permutation(np.flatnonzero(numbers == label))
        # Each class goes on where the last one stopped, so that the folds stay of one size.
        found[members] = (np.arange(len(members)) + dealt) % folds
        dealt += len(members)
    return found


def _groups(file: Path, taxonomy: str) -> Mapping[str, str]:
    if not file.is_file():
        raise MissingFileError(f"{file}: there is no such list of crop groups")
    lists = json.loads(file.read_text(encoding="utf-8"))
    if taxonomy not in lists:
        raise InputError(f"{file}: has no list {taxonomy!r}; choose from {', '.join(lists)}")
    groups: Mapping[str, str] = lists[taxonomy]
    return groups


def _column(band: str) -> str:
    number = band.removeprefix("B")
    return f"S2-L2A-B{number.zfill(2) if number.isdigit() else number}"


def _parcel(
    name: str, counts: NDArray[np.int64], dates: tuple[date, ...], bands: Sequence[str], label: int
) -> LabelledSeries:
    """A series of one pixel; a date with any band missing is not valid."""
    valid = (counts != NODATA).all(axis=1)[:, None, None]
    values = (counts / 10000).astype(np.float32)[:, :, None, None]
    series = TimeSeries.from_arrays(values, dates, bands, _NOWHERE, valid, name)
    return LabelledSeries(series, np.full((1, 1), label))
