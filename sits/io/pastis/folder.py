"""The PASTIS format on disk: what lies in the folder, when it was taken and where it is.

A folder holds `metadata.geojson` (one row a patch, EPSG:2154), `DATA_S2/S2_<id>.npy` (int16,
[T, 10, 128, 128]) and `ANNOTATIONS/TARGET_<id>.npy` (uint8, [3, 128, 128], channel 0 is the class).

Source: https://github.com/VSainteuf/pastis-benchmark.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from affine import Affine
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from geomix.errors import FormatError, InputError, MissingFileError

BANDS = ("B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B11", "B12")
"""Bands of `S2_<id>.npy`, in wavelength order."""

NODATA = -10000
"""MAJA's nodata; PASTIS carries no mask, so no other value can be told from data."""

VOID = 19
"""Code of parcels that lie mostly outside a patch: neither trained on nor scored."""

CLASSES: tuple[tuple[str, str], ...] = (
    ("Background", "#000000"),
    ("Meadow", "#aec7e8"),
    ("Soft winter wheat", "#ff7f0e"),
    ("Corn", "#ffbb78"),
    ("Winter barley", "#2ca02c"),
    ("Winter rapeseed", "#98df8a"),
    ("Spring barley", "#d62728"),
    ("Sunflower", "#ff9896"),
    ("Grapevine", "#9467bd"),
    ("Beet", "#c5b0d5"),
    ("Winter triticale", "#8c564b"),
    ("Winter durum wheat", "#c49c94"),
    ("Fruits, vegetables, flowers", "#e377c2"),
    ("Potatoes", "#f7b6d2"),
    ("Leguminous fodder", "#7f7f7f"),
    ("Soybeans", "#c7c7c7"),
    ("Orchard", "#bcbd22"),
    ("Mixed cereal", "#dbdb8d"),
    ("Sorghum", "#17becf"),
)
"""Name and colour (tab20, as published) of the codes 0 to 18."""

ROTATION: Mapping[int, tuple[tuple[int, ...], int, int]] = {
    1: ((1, 2, 3), 4, 5),
    2: ((2, 3, 4), 5, 1),
    3: ((3, 4, 5), 1, 2),
    4: ((4, 5, 1), 2, 3),
    5: ((5, 1, 2), 3, 4),
}
"""The published rotation: experiment -> folds to train on, to validate on, to test on."""


@dataclass(frozen=True)
class Patch:
    """One row of the metadata: a square of land and when it was seen."""

    id: int
    fold: int
    tile: str
    """Sentinel-2 tile, for example `t30uxv`."""
    dates: tuple[date, ...]
    """Acquisition dates in file order, which is time order in the published data."""
    footprint_xy: NDArray[np.float64]
    """Corners in EPSG:2154, metres, [5, 2]."""

    @property
    def crs(self) -> CRS:
        """The UTM zone of the tile."""
        return CRS.from_epsg(_utm(self.tile))

    def transform(self, size: int) -> Affine:
        """The place of the patch in `crs`, recovered from its footprint.

        The footprint, brought from EPSG:2154 to UTM, is a square along the axes. The published squares lie
        off the 10 m grid of Sentinel-2 by up to 3 m; why is not documented, so nothing is corrected.

        Args:
            size: rows and columns of the patch.

        Raises:
            FormatError: if the footprint is no square along the axes of the zone.
        """
        to_utm = Transformer.from_crs("EPSG:2154", self.crs, always_xy=True)
        x, y = to_utm.transform(self.footprint_xy[:, 0], self.footprint_xy[:, 1])
        west, east, south, north = np.min(x), np.max(x), np.min(y), np.max(y)
        corner = np.minimum(np.abs(x - west), np.abs(x - east)) + np.minimum(
            np.abs(y - south), np.abs(y - north)
        )
        if corner.max() > 0.5 or abs((east - west) - (north - south)) > 0.5:
            raise FormatError(
                f"patch {self.id}: the footprint is no square along the axes of {self.crs.to_string()}; "
                "is TILE right?"
            )
        # Corners carry the rounding of two projections, millimetres; the side is a whole number of pixels.
        step = round((east - west) / size, 3)
        return Affine(step, 0.0, round(west, 3), 0.0, -step, round(north, 3))


class PastisFolder:
    """A folder in the PASTIS format."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        metadata = self.path / "metadata.geojson"
        if not metadata.is_file():
            raise MissingFileError(f"{self.path}: holds no metadata.geojson; give the folder that does")
        rows = _read_json(metadata).get("features", [])
        patches = [_patch(row, metadata) for row in rows]
        self.patches = {patch.id: patch for patch in sorted(patches, key=lambda patch: patch.id)}
        if not self.patches:
            raise FormatError(f"{metadata}: lists no patches")

    def of_folds(self, folds: tuple[int, ...]) -> list[Patch]:
        """The patches of some folds, by id."""
        return [patch for patch in self.patches.values() if patch.fold in folds]

    def values(self, patch: Patch, file: Path | None = None) -> NDArray[np.int16]:
        """Digital numbers, [T, 10, H, W], mapped from the file and not read.

        Args:
            patch: whose.
            file: where they lie, if not in `DATA_S2`.

        Raises:
            MissingFileError: if the file is absent.
            FormatError: if it holds something else or another number of dates than the metadata.
        """
        file = file or self.path / "DATA_S2" / f"S2_{patch.id}.npy"
        values = _load(file)
        if values.ndim != 4 or values.shape[1] != len(BANDS):
            raise FormatError(f"{file}: expected [dates, {len(BANDS)}, rows, columns], got {values.shape}")
        if len(values) != len(patch.dates):
            raise FormatError(f"{file}: holds {len(values)} dates, its metadata row lists {len(patch.dates)}")
        return values

    def labels(self, patch: Patch) -> NDArray[np.uint8]:
        """Codes of the classes, [H, W]."""
        file = self.path / "ANNOTATIONS" / f"TARGET_{patch.id}.npy"
        labels = _load(file)
        return np.ascontiguousarray(labels[0] if labels.ndim == 3 else labels)

    @cached_property
    def published_norms(self) -> dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Mean and standard deviation of each band in each fold, as shipped with the data; may be empty."""
        file = self.path / "NORM_S2_patch.json"
        if not file.is_file():
            return {}
        return {
            int(name.removeprefix("Fold_")): (np.asarray(norm["mean"]), np.asarray(norm["std"]))
            for name, norm in _read_json(file).items()
        }


def parse_dates(value: Mapping[str, int] | str, where: str) -> tuple[date, ...]:
    """Read the field `dates-S2`, a mapping {"0": 20180924, ...} or such a mapping written as text.

    Raises:
        FormatError: if it is neither.
    """
    try:
        rows = json.loads(value.replace("'", '"')) if isinstance(value, str) else value
        ordered = sorted(rows.items(), key=lambda item: int(item[0]))
        return tuple(datetime.strptime(str(day), "%Y%m%d").date() for _, day in ordered)
    except (AttributeError, ValueError, TypeError) as error:
        raise FormatError(f"{where}: dates-S2 is no list of dates: {str(value)[:60]!r}") from error


def _patch(row: dict[str, Any], file: Path) -> Patch:
    fields = row["properties"]
    where = f"{file}, patch {fields.get('ID_PATCH', '?')}"
    missing = [key for key in ("ID_PATCH", "Fold", "TILE", "dates-S2") if key not in fields]
    if missing:
        raise FormatError(f"{where}: the field {missing[0]} is missing")
    shape = row["geometry"]["coordinates"]
    ring = shape[0][0] if row["geometry"]["type"] == "MultiPolygon" else shape[0]
    return Patch(
        id=int(fields["ID_PATCH"]),
        fold=int(fields["Fold"]),
        tile=str(fields["TILE"]).lower(),
        dates=parse_dates(fields["dates-S2"], where),
        footprint_xy=np.asarray(ring, dtype=np.float64)[:, :2],
    )


def _utm(tile: str) -> int:
    """EPSG code of the UTM zone of a Sentinel-2 tile: the letter tells the half of the globe."""
    name = tile.lower().removeprefix("t")
    if len(name) < 3 or not name[:2].isdigit() or not 1 <= int(name[:2]) <= 60:
        raise InputError(f"{tile!r} is no Sentinel-2 tile; expected a name such as t30uxv")
    return (32600 if name[2] >= "n" else 32700) + int(name[:2])


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{file}: no JSON: {error}") from error
    return content


def _load(file: Path) -> NDArray[Any]:
    if not file.is_file():
        raise MissingFileError(f"{file}: is missing")
    try:
        content: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{file}: no NumPy array or truncated: {error}") from error
    return content
