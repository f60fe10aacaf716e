"""Labels as users keep them: polygons, points, tables of coordinates and label rasters, in any system.

Lines are refused: a pixel lies in an area or under a point, never in a line.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import shapely
import shapely.geometry
from numpy.typing import NDArray
from pyogrio.errors import DataLayerError, DataSourceError, FeatureError, GeometryError
from pyproj import CRS as ProjCRS
from rasterio.features import shapes as outline

from geomix.checkpoint import ClassInfo
from geomix.config import hint
from geomix.errors import FormatError, InputError, MissingFileError
from sits.io.find import RASTERS
from sits.io.legend import read_legend
from sits.io.raster import open_raster
from sits.io.target import parse_crs

log = logging.getLogger(__name__)

Shapes = NDArray[np.object_]

_PARQUET = (".parquet", ".geoparquet")
_X, _Y = ("x", "lon", "longitude", "easting", "east"), ("y", "lat", "latitude", "northing", "north")
_DEGREES = ("lon", "longitude")
_PRECISION = 6
"""Decimals of a degree to which a shape must agree to be the same: a tenth of a metre."""


@dataclass(frozen=True)
class TableColumns:
    """Where a table keeps its coordinates."""

    x: str | None = None
    """Name of the column of x or longitude; None to go by common names."""
    y: str | None = None
    crs: str | None = None
    """Coordinate system such as EPSG:32633; None for degrees where the column is called so."""


@dataclass(frozen=True)
class Labels:
    """Shapes with labels, in one coordinate system."""

    name: str
    """The file, for messages."""
    shapes: Shapes
    """Polygons, multipolygons and points, [N]."""
    values: list[Any]
    """The label of each shape as the file holds it."""
    crs: ProjCRS
    classes: tuple[ClassInfo, ...] = ()
    """What a label raster calls its codes, with their colours; empty where it does not say."""
    raster: bool = False

    def __len__(self) -> int:
        return len(self.shapes)

    def to(self, crs: Any) -> "Labels":
        """The same in another coordinate system."""
        target = ProjCRS.from_user_input(crs)
        if target == self.crs:
            return self
        moved = gpd.GeoSeries(self.shapes, crs=self.crs).to_crs(target)
        return replace(self, shapes=moved.to_numpy(), crs=target)

    def keys(self) -> list[str]:
        """A fingerprint of each shape that does not depend on format or coordinate system, [N]."""
        degrees = shapely.normalize(self.to("EPSG:4326").shapes)
        found = []
        for shape in degrees:
            numbers = np.round(shapely.get_coordinates(shape), _PRECISION) + 0.0
            found.append(hashlib.sha256(numbers.tobytes()).hexdigest()[:16])
        return found

    def take(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> "Labels":
        """Some of the shapes."""
        places = np.flatnonzero(keep) if keep.dtype == bool else keep
        return replace(self, shapes=self.shapes[places], values=[self.values[place] for place in places])


def read_labels(
    file: Path, field: str | None = None, layer: str | None = None, columns: TableColumns = TableColumns()
) -> Labels:
    """Read shapes with labels.

    Args:
        file: GeoPackage, GeoJSON, Shapefile, FlatGeobuf and whatever else GDAL reads, GeoParquet, a CSV with
            coordinates, or a label raster, of which each connected area becomes a polygon.
        field: the column that holds the label; a raster has none.
        layer: which layer of the file; needed where there are several.
        columns: where a CSV keeps its coordinates.

    Returns:
        The shapes in their own system and order; those without a shape or a label are left out and counted.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if it cannot be read.
        InputError: if it has no such layer or column, no coordinate system, no labelled shape, or lines.
    """
    if not file.exists():
        raise MissingFileError(f"{file}: no such file")
    if file.suffix.lower() in RASTERS:
        return _read_raster(file)
    frame = _read_table(file, columns) if file.suffix.lower() == ".csv" else read_vector(file, layer)
    return _labelled(frame, _field(frame, field, file), file)


def read_vector(file: Path, layer: str | None = None) -> gpd.GeoDataFrame:
    """Read the shapes and columns of a vector file; rings that cross themselves are mended.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if it cannot be read.
        InputError: if it has no such layer, several and none is named, no shapes or no coordinate system.
    """
    if not file.exists():
        raise MissingFileError(f"{file}: no such file")
    if file.suffix.lower() in _PARQUET:
        frame = _guarded(file, lambda: gpd.read_parquet(file))
    else:
        chosen = _layer(file, layer)
        frame = _guarded(file, lambda: gpd.read_file(file, layer=chosen, engine="pyogrio"))
    if not isinstance(frame, gpd.GeoDataFrame) or len(frame) == 0:
        raise InputError(f"{file}: holds no shapes")
    if frame.crs is None:
        raise InputError(f"{file}: has no coordinate system, so its shapes cannot be laid on an image")
    shapes = frame.geometry
    broken = ~shapes.is_valid & shapes.notna()
    if broken.any():
        log.warning("%s: the rings of %d shapes cross themselves and are mended", file, int(broken.sum()))
        frame = frame.set_geometry(shapes.make_valid())
    return frame


def _guarded(file: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (
        *(DataSourceError, DataLayerError, FeatureError, GeometryError),
        *(OSError, ValueError, RuntimeError, KeyError),
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(f"{file}: is damaged or holds no shapes ({reason}); get the file again") from error


def _layer(file: Path, layer: str | None) -> str | None:
    """The name of the layer to read."""
    listed = _guarded(file, lambda: pyogrio.list_layers(file))
    names = [name for name, kind in listed if kind is not None]
    if layer is not None:
        if layer not in names:
            raise InputError(f"{file}: has no layer {layer!r}{hint(layer, names)}")
        return layer
    if len(names) > 1:
        raise InputError(f"{file}: has the layers {', '.join(names)}; name one with --layer")
    return names[0] if names else None


def _read_table(file: Path, columns: TableColumns) -> gpd.GeoDataFrame:
    """A CSV with coordinates as points."""
    table = _guarded(file, lambda: pd.read_csv(file, sep=None, engine="python", encoding="utf-8-sig"))
    names = [str(name) for name in table.columns]
    x, y = (
        _coordinate(file, told, common, names, flag)
        for told, common, flag in ((columns.x, _X, "--x"), (columns.y, _Y, "--y"))
    )
    if columns.crs is None and x.lower() not in _DEGREES:
        raise InputError(f"{file}: name the coordinate system of {x} and {y} with --crs EPSG:...")
    crs = parse_crs(columns.crs or "EPSG:4326").to_wkt()
    numbers = [pd.to_numeric(table[name], errors="coerce") for name in (x, y)]
    bad = numbers[0].isna() | numbers[1].isna()
    if bad.any():
        line = int(np.flatnonzero(bad)[0]) + 2
        raise FormatError(f"{file}, line {line}: {x} or {y} is no number; correct it or take the line out")
    return gpd.GeoDataFrame(table, geometry=gpd.points_from_xy(*numbers), crs=crs)


def _coordinate(file: Path, told: str | None, common: Sequence[str], names: list[str], flag: str) -> str:
    if told is not None:
        if told not in names:
            raise InputError(f"{file}: has no column {told!r}{hint(told, names)}")
        return told
    for name in common:
        for own in names:
            if own.lower() == name:
                return own
    raise InputError(f"{file}: name the column of coordinates with {flag}; there are {', '.join(names)}")


def _field(frame: gpd.GeoDataFrame, field: str | None, file: Path) -> str:
    """The column of the labels."""
    names = [str(name) for name in frame.columns if name != frame.geometry.name]
    if field is None:
        raise InputError(f"{file}: name the column of the labels with --field; there are {', '.join(names)}")
    if field not in names:
        raise InputError(f"{file}: has no column {field!r}{hint(field, names)}")
    return field


def _labelled(frame: gpd.GeoDataFrame, field: str, file: Path) -> Labels:
    shapes = shapely.force_2d(frame.geometry.to_numpy())
    values = frame[field].astype(object).tolist()
    shapes, values = _parts(shapes, values, file)
    if not values:
        raise InputError(f"{file}: no shape has both a place and a label in column {field!r}")
    return Labels(str(file), shapes, values, ProjCRS.from_user_input(frame.crs))


def _parts(shapes: Shapes, values: list[Any], file: Path) -> tuple[Shapes, list[Any]]:
    """Polygons and single points; what has no shape or no label is left out."""
    kept: list[tuple[Any, Any]] = []
    lost = 0
    for row, (shape, value) in enumerate(zip(shapes, values, strict=True), 1):
        if shape is None or shape.is_empty or value is None or value != value or value is pd.NA:
            lost += 1
        elif shape.geom_type in ("Polygon", "MultiPolygon", "Point"):
            kept.append((shape, value))
        elif shape.geom_type == "MultiPoint":
            kept += [(point, value) for point in shape.geoms]
        elif areas := [one for one in shapely.get_parts(shape) if one.geom_type.endswith("Polygon")]:
            # A mended ring may leave a line beside its areas.
            kept.append((shapely.union_all(areas), value))
        else:
            raise InputError(
                f"{file}: shape {row} is a {shape.geom_type}, but labels are polygons or points; "
                "widen lines to areas first (Buffer in QGIS)"
            )
    if lost:
        log.warning("%s: %d shapes without a place or a label are left out", file, lost)
    found = np.empty(len(kept), dtype=object)
    found[:] = [shape for shape, _ in kept]
    return found, [value for _, value in kept]


def _read_raster(file: Path) -> Labels:
    """Each connected area of one code as a polygon; nodata and NaN are unlabelled."""
    with open_raster(str(file)) as dataset:
        if dataset.crs is None:
            raise InputError(f"{file}: has no coordinate system, so its labels cannot be laid on an image")
        codes, seen = dataset.read(1), dataset.dataset_mask() > 0
        if np.issubdtype(codes.dtype, np.floating):
            seen &= np.isfinite(codes)
            whole = codes[seen]
            if (whole != np.rint(whole)).any():
                raise InputError(
                    f"{file}: holds {whole[whole != np.rint(whole)][0]}, but labels are whole numbers"
                )
        codes = np.where(seen, codes, 0).astype(np.int32)
        found = list(outline(codes, mask=seen, transform=dataset.transform))
        crs = ProjCRS.from_wkt(dataset.crs.to_wkt())
    if not found:
        raise InputError(f"{file}: holds no label at all")
    shapes = np.empty(len(found), dtype=object)
    shapes[:] = [shapely.geometry.shape(area) for area, _ in found]
    return Labels(str(file), shapes, [int(code) for _, code in found], crs, _legend(file), raster=True)


def _legend(file: Path) -> tuple[ClassInfo, ...]:
    try:
        return read_legend(file).by_code
    except FormatError:
        return ()
