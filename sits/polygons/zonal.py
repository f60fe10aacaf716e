"""What a class map says about each parcel: shares, the commonest class, how sure, and how much was seen."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
from exactextract import exact_extract
from pyogrio.errors import DataSourceError
from pyproj import Geod
from rasterio.crs import CRS

from geomix.errors import FormatError, InputError, MissingFileError
from geomix.files import new_file
from sits.grid import crs_name, same_crs
from sits.io.legend import Legend, read_legend
from sits.io.raster import open_raster

log = logging.getLogger(__name__)

_SUFFIXES = (".gpkg", ".geojson", ".fgb", ".parquet", ".csv")


@dataclass(frozen=True)
class _Map:
    """A class map as far as parcels are concerned."""

    path: Path
    crs: CRS
    bounds: tuple[float, float, float, float]
    pixel_area: float
    legend: Legend


def zonal(
    map_file: Path, fields: Path, proba: Path | None = None, layer: str | None = None
) -> gpd.GeoDataFrame:
    """Sum up a class map over parcels; pixels count by the part that a parcel covers.

    Args:
        map_file: a class map.
        fields: parcels in any format that GDAL reads, in any coordinate system.
        proba: probabilities in per cent, a band a class, as `segment --proba` writes them.
        layer: which layer of the file; the first if not given.

    Returns:
        The parcels in their own system and order, with the columns

        - `class_id`, `class_name`: the commonest class; empty where no valid pixel lies in the parcel,
        - `confidence`: mean probability of that class if `proba` is given, else its share, 0 to 1,
        - `valid_share`: the part of the parcel that the map shows, 0 to 1; `valid_ha`: the same in hectares,
        - `share_<class>`: the part of the valid area of each class, 0 to 1.

    Raises:
        InputError: if the parcels have no coordinate system, or none lies on the map.
        FormatError: if a file cannot be read.
    """
    found = _read_map(map_file)
    parcels = read_parcels(fields, layer)
    moved = _on_map(parcels, found, fields)
    shares = np.zeros((len(parcels), len(found.legend.by_code)))
    counts = np.zeros(len(parcels))
    places = {entry.id: place for place, entry in enumerate(found.legend.by_code)}
    for row, record in enumerate(_extract(map_file, moved, ["unique", "frac", "count"])):
        counts[row] = record["count"] or 0.0
        for code, share in zip(record["unique"], record["frac"], strict=True):
            if int(code) not in places:
                raise FormatError(f"{map_file}: holds code {int(code)}, which its legend does not name")
            shares[row, places[int(code)]] = share
    seen = counts > 0
    best = shares.argmax(axis=1)
    entries = found.legend.by_code
    codes = [entries[place].id if ok else None for place, ok in zip(best, seen, strict=True)]
    names = [entries[place].name if ok else None for place, ok in zip(best, seen, strict=True)]
    told: list[tuple[str, Any]] = [
        ("class_id", pd.array(codes, dtype="Int64")),
        ("class_name", names),
        ("confidence", _confidence(proba, moved, found, best, shares, seen)),
    ]
    hectares = _hectares(moved, found.crs)
    planar = moved.geometry.area.to_numpy()
    part = np.divide(counts * found.pixel_area, planar, out=np.zeros(len(planar)), where=planar > 0)
    valid = np.clip(part, 0.0, 1.0)
    told += [("valid_share", valid), ("valid_ha", valid * hectares)]
    for place, entry in enumerate(entries):
        told.append((f"share_{_column(entry.name)}", np.where(seen, shares[:, place], np.nan)))
    result = _with_columns(parcels, told, fields)
    if not seen.all():
        log.warning("%s: %d of %d parcels have no valid pixel", fields, int((~seen).sum()), len(seen))
    return result


def zonal_file(
    map_file: Path,
    fields: Path,
    output: Path,
    proba: Path | None = None,
    layer: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `zonal` to a file: .gpkg, .geojson, .fgb, .parquet, or .csv without the shapes.

    Raises:
        InputError: if the suffix is of no such format.
        OutputExistsError: if the file exists and may not be replaced.
    """
    if output.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{output}: the format must be one of {', '.join(_SUFFIXES)}")
    with new_file(output, overwrite) as temporary:
        result = zonal(map_file, fields, proba, layer)
        if output.suffix.lower() == ".csv":
            result.drop(columns=result.geometry.name).to_csv(temporary, index=False)
        elif output.suffix.lower() == ".parquet":
            result.to_parquet(temporary, index=False)
        else:
            result.to_file(temporary, layer=output.stem, index=False, engine="pyogrio")
    return output


def read_parcels(fields: Path, layer: str | None = None) -> gpd.GeoDataFrame:
    """Read parcels; broken rings are mended.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if GDAL cannot read it.
        InputError: if it has no coordinate system or no parcels.
    """
    if not fields.exists():
        raise MissingFileError(f"{fields}: no such file")
    try:
        if fields.suffix.lower() in (".parquet", ".geoparquet"):
            parcels = gpd.read_parquet(fields)
        else:
            parcels = gpd.read_file(fields, layer=layer, engine="pyogrio")
    except (DataSourceError, ValueError, OSError) as error:
        raise FormatError(f"{fields}: cannot be read as parcels ({str(error).splitlines()[0]})") from error
    if not isinstance(parcels, gpd.GeoDataFrame) or len(parcels) == 0:
        raise InputError(f"{fields}: holds no parcels")
    if parcels.crs is None:
        raise InputError(f"{fields}: has no coordinate system, so its parcels cannot be laid on the map")
    shapes = parcels.geometry
    broken = ~shapes.is_valid & shapes.notna()
    if broken.any():
        log.warning("%s: the rings of %d parcels cross themselves and are mended", fields, int(broken.sum()))
        parcels = parcels.set_geometry(shapes.make_valid())
    return parcels


def _read_map(map_file: Path) -> _Map:
    with open_raster(str(map_file)) as dataset:
        if dataset.crs is None:
            raise InputError(f"{map_file}: has no coordinate system")
        area = abs(dataset.transform.determinant)
        bounds = tuple(dataset.bounds)
        return _Map(map_file, dataset.crs, bounds, area, read_legend(map_file))


def _on_map(parcels: gpd.GeoDataFrame, found: _Map, fields: Path) -> gpd.GeoDataFrame:
    """The parcels in the system of the map.

    Raises:
        InputError: if none of them lies on it.
    """
    source = CRS.from_wkt(parcels.crs.to_wkt())
    moved = gpd.GeoDataFrame(geometry=parcels.geometry.array, crs=parcels.crs)
    if not same_crs(source, found.crs):
        log.warning("%s: parcels are brought from %s to %s", fields, crs_name(source), crs_name(found.crs))
        moved = moved.to_crs(found.crs.to_wkt())
    west, south, east, north = moved.total_bounds
    if west > found.bounds[2] or east < found.bounds[0] or south > found.bounds[3] or north < found.bounds[1]:
        there, here = (_words(sides) for sides in ((west, south, east, north), found.bounds))
        raise InputError(
            f"{fields}: no parcel lies on {found.path}; in {crs_name(found.crs)} parcels span {there}, "
            f"the map {here} (west, south, east, north)"
        )
    return moved


def _with_columns(
    parcels: gpd.GeoDataFrame, told: Sequence[tuple[str, Any]], fields: Path
) -> gpd.GeoDataFrame:
    """The parcels with further columns; one whose name is taken gets `map_` in front, none is overwritten."""
    result, moved = parcels.copy(), []
    taken = {str(name).lower() for name in parcels.columns}
    for name, values in told:
        free = name
        while free.lower() in taken:
            free = f"map_{free}"
        taken.add(free.lower())
        result[free] = values
        if free != name:
            moved.append(f"{free} instead of {name}")
    if moved:
        log.warning("%s: has columns of these names already, so the map's are %s", fields, ", ".join(moved))
    return result


def _extract(raster: Path, parcels: gpd.GeoDataFrame, ops: Sequence[str]) -> list[dict[str, Any]]:
    """The statistics of each parcel, in order; empty shapes give nothing."""
    empty = parcels.geometry.is_empty | parcels.geometry.isna()
    rows: list[dict[str, Any]] = [
        dict.fromkeys(ops, None) | {"unique": [], "frac": []} for _ in range(len(parcels))
    ]
    numbered = parcels[~empty].assign(row=np.flatnonzero(~empty.to_numpy()))
    for feature in exact_extract(str(raster), numbered, list(ops), include_cols=["row"]):
        properties = feature["properties"]
        rows[int(properties["row"])] = properties
    return rows


def _confidence(
    proba: Path | None,
    parcels: gpd.GeoDataFrame,
    found: _Map,
    best: np.ndarray[Any, np.dtype[np.int64]],
    shares: np.ndarray[Any, np.dtype[np.float64]],
    seen: np.ndarray[Any, np.dtype[np.bool_]],
) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows = np.arange(len(best))
    if proba is None:
        return np.where(seen, shares[rows, best], np.nan)
    with open_raster(str(proba)) as dataset:
        names = [entry.name for entry in found.legend.by_code]
        bands = {name: index for index, name in enumerate(dataset.descriptions, 1)}
        if not same_crs(dataset.crs, found.crs) or set(names) - set(bands):
            raise InputError(f"{proba}: its bands or its system are not those of {found.path}")
    means = _extract(proba, parcels, ["mean"])
    single = len(bands) == 1
    values = np.full(len(best), np.nan)
    for row in np.flatnonzero(seen):
        key = "mean" if single else f"band_{bands[names[best[row]]]}_mean"
        value = means[row].get(key)
        values[row] = np.nan if value is None else float(value) / 100
    return values


def _hectares(parcels: gpd.GeoDataFrame, crs: CRS) -> np.ndarray[Any, np.dtype[np.float64]]:
    if crs.is_projected:
        return np.asarray(parcels.geometry.area.to_numpy() * crs.linear_units_factor[1] ** 2 / 1e4)
    geod = Geod(ellps="WGS84")
    areas = [
        0.0 if shape is None else abs(geod.geometry_area_perimeter(shape)[0]) for shape in parcels.geometry
    ]
    return np.array(areas) / 1e4


def _column(name: str) -> str:
    return "_".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())


def _words(sides: Sequence[float]) -> str:
    return " ".join(f"{side:.6g}" for side in sides)
