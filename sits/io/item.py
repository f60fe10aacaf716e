"""A STAC item that tells a catalogue what a map is: classes, grid, bands and the dates behind it."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pystac
from rasterio.warp import transform_bounds, transform_geom

from sits.grid import Grid, crs_name, place
from sits.io.legend import NODATA, Legend

_CLASSIFICATION = "https://stac-extensions.github.io/classification/v2.0.0/schema.json"
_PROJECTION = "https://stac-extensions.github.io/projection/v2.0.0/schema.json"
_RASTER = "https://stac-extensions.github.io/raster/v1.1.0/schema.json"
_COG = "image/tiff; application=geotiff; profile=cloud-optimized"


def item_path(raster: Path) -> Path:
    """Where the item of a map lies."""
    return raster.with_suffix(".json")


def item_text(
    raster: Path,
    grid: Grid,
    legend: Legend,
    dates: Sequence[date],
    properties: Mapping[str, Any],
    others: Mapping[str, Path],
) -> str:
    """A STAC item as JSON.

    Args:
        raster: the map, as it will be named.
        grid: its grid.
        legend: its classes.
        dates: the acquisitions behind it; the item spans them.
        properties: what else is worth knowing, such as the model.
        others: further files by their role: proba, entropy, count, preview.
    """
    bounds = list(transform_bounds(grid.crs, "EPSG:4326", *grid.bounds)) if grid.crs else None
    start, end = _day(dates[0], time.min), _day(dates[-1], time(23, 59, 59))
    item = pystac.Item(
        id=raster.stem,
        geometry=_footprint(grid),
        bbox=bounds,
        datetime=None,
        start_datetime=start,
        end_datetime=end,
        properties={
            **properties,
            "proj:code": crs_name(grid.crs) if grid.crs and grid.crs.to_epsg() else None,
            "proj:shape": list(grid.shape),
            "proj:transform": list(grid.transform)[:6],
        },
        stac_extensions=[_PROJECTION, _CLASSIFICATION, _RASTER],
    )
    item.add_asset("map", _map_asset(raster, legend))
    for role, path in others.items():
        picture = role == "preview"
        item.add_asset(
            role,
            pystac.Asset(
                href=_beside(path, raster),
                media_type="image/png" if picture else _COG,
                roles=["thumbnail"] if picture else ["data"],
                title=role,
            ),
        )
    return json.dumps(item.to_dict(include_self_link=False), indent=2, ensure_ascii=False)


def _map_asset(raster: Path, legend: Legend) -> pystac.Asset:
    classes = [
        {
            "value": entry.id,
            # The name is for machines: letters, digits, - and _ alone.
            "name": re.sub(r"[^A-Za-z0-9_-]+", "_", entry.name).strip("_") or f"class_{entry.id}",
            "title": entry.name,
            "description": entry.name,
            "color_hint": entry.color.removeprefix("#").upper(),
        }
        for entry in legend.by_code
    ]
    return pystac.Asset(
        href=f"./{raster.name}",
        media_type=_COG,
        roles=["data"],
        title="Class map",
        extra_fields={
            "classification:classes": [
                *classes,
                {"value": NODATA, "name": "nodata", "description": "no data", "nodata": True},
            ],
            "raster:bands": [{"data_type": "uint8", "nodata": NODATA}],
        },
    )


def _footprint(grid: Grid) -> dict[str, Any] | None:
    if grid.crs is None:
        return None
    steps = ((0, 0), (grid.width, 0), (grid.width, grid.height), (0, grid.height), (0, 0))
    ring = [list(place(grid.transform, *corner)) for corner in steps]
    shape: dict[str, Any] = transform_geom(
        grid.crs, "EPSG:4326", {"type": "Polygon", "coordinates": [ring]}, precision=7
    )
    return shape


def _beside(path: Path, raster: Path) -> str:
    if path.absolute().parent == raster.absolute().parent:
        return f"./{path.name}"
    return str(path.absolute())


def _day(day: date, moment: time) -> datetime:
    return datetime.combine(day, moment, tzinfo=UTC)
