"""What can be said of a file before anything is computed, and of a configuration before it is trained."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointcloud.cloud import Cloud
from pointcloud.io import ReadOptions, read_cloud
from pointcloud.io.floats import with_labels
from pointcloud.io.las import LasPayload


def file_facts(path: Path, options: ReadOptions | None = None) -> dict[str, Any]:
    """How a file is read, as plain values.

    Returns:
        `file`, `format`, `points`, `not_measured`, `unit`, `crs`, `low` and `high` (of the coordinates, in
        `unit`), `fields` (type, smallest and largest value of each) and `classes` (points of each id).
    """
    cloud = with_labels(read_cloud(path, options))
    measured = cloud.measured()
    coord = cloud.coord[measured]
    facts: dict[str, Any] = {
        "file": str(path),
        "format": _format(cloud),
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


def _format(cloud: Cloud) -> str:
    source = cloud.source
    if source is None:
        return "none"
    if isinstance(source.payload, LasPayload):
        layout = source.payload.layout
        kind = "COPC" if layout.is_copc else "LAZ" if layout.is_compressed else "LAS"
        return f"{kind} 1.{layout.minor}, point format {layout.point_format}"
    return f"{source.format}, {source.payload} columns" if source.format == "floats" else source.format


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


def config_facts(config: str) -> list[tuple[str, int]]:
    """Parameters of each stage of the model of a configuration, and of all together.

    Args:
        config: name of a configuration that comes with geomix, or a YAML file.
    """
    from geomix.config import load_config
    from pointcloud.experiment import PointcloudConfig
    from pointcloud.model import PPoMv3, parameters_by_stage

    experiment = load_config(config, "pointcloud", PointcloudConfig)
    stages = parameters_by_stage(PPoMv3(experiment.model))
    return [*stages, ("all", sum(count for _, count in stages))]
