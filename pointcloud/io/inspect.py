"""What can be said of a file before anything is computed."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointcloud.cloud import Cloud
from pointcloud.io import ReadOptions, read_cloud
from pointcloud.io.floats import with_labels


def read_labelled(path: Path, options: ReadOptions | None = None) -> Cloud:
    """Read a cloud, with the labels that lie beside its file where there are any."""
    return with_labels(read_cloud(path, options))


def file_facts(path: Path, options: ReadOptions | None = None) -> dict[str, Any]:
    """How a file is read, as plain values.

    Returns:
        `file`, `format`, `points`, `not_measured`, `unit`, `crs`, `low` and `high` (of the coordinates, in
        `unit`), `fields` (type, smallest and largest value of each) and `classes` (points of each id).
    """
    cloud = read_labelled(path, options)
    measured = cloud.measured()
    coord = cloud.coord[measured]
    facts: dict[str, Any] = {
        "file": str(path),
        "format": (cloud.source.kind or cloud.source.format) if cloud.source else "none",
        "points": len(cloud),
        "not_measured": int(len(cloud) - measured.sum()),
        "unit": cloud.unit,
        "crs": _crs_name(cloud.crs),
        "low": coord.min(axis=0).tolist() if len(coord) else None,
        "high": coord.max(axis=0).tolist() if len(coord) else None,
        "fields": {name: _range(values) for name, values in cloud.fields.items()},
        "classes": {},
    }
    if "classification" in cloud.fields:
        ids, counts = np.unique(cloud.fields["classification"], return_counts=True)
        facts["classes"] = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    return facts


def _crs_name(wkt: str | None) -> str | None:
    if wkt is None:
        return None
    import pyproj

    crs = pyproj.CRS.from_wkt(wkt)
    authority = crs.to_authority()
    return f"{crs.name} ({':'.join(authority)})" if authority else crs.name


def _range(values: NDArray[Any]) -> dict[str, Any]:
    kind = f"{values.dtype} x {values.shape[1]}" if values.ndim == 2 else str(values.dtype)
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if known.size == 0:
        return {"type": kind, "low": None, "high": None}
    return {"type": kind, "low": known.min().item(), "high": known.max().item()}
