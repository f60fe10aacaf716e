"""A new LAS or LAZ file from a cloud of another format."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from pointcloud.cloud import Cloud
from pointcloud.io.values import class_ids

log = logging.getLogger(__name__)

_WHOLE = {
    "return_number": 15,
    "number_of_returns": 15,
    "synthetic": 1,
    "key_point": 1,
    "withheld": 1,
    "overlap": 1,
    "scanner_channel": 3,
    "scan_direction_flag": 1,
    "edge_of_flight_line": 1,
    "user_data": 255,
    "point_source_id": 65535,
}
"""Dimensions of point format 6 and the largest value of each."""
_OWN = {"intensity", "color", "nir", "classification", "scan_angle", "gps_time", *_WHOLE}
_STEP_M = 1e-4
_STEP_DEGREE = 1e-9


def write_new(cloud: Cloud, path: Path) -> None:
    """Write a cloud as LAS 1.4 with point format 6, 7 (colour) or 8 (colour and near infrared).

    Fields that LAS does not know become extra dimensions. Coordinates are rounded to 0.1 mm, or coarser
    where the extent asks for it.

    Raises:
        InputError: if a coordinate is NaN or infinite, which LAS cannot hold, or a field does not fit.
    """
    import laspy

    lost = int(np.count_nonzero(~np.isfinite(cloud.coord).all(axis=1)))
    if lost:
        raise InputError(
            f"{path}: LAS holds no NaN coordinates, {lost} of {len(cloud)} points have them; "
            "write PLY, PCD or CSV to keep every point"
        )
    point_format = 8 if "nir" in cloud.fields else 7 if "color" in cloud.fields else 6
    header = laspy.LasHeader(version="1.4", point_format=point_format)
    header.scales, header.offsets = _grid(cloud)
    _add_crs(header, cloud)
    extra = _extra(cloud)
    for name, values in extra.items():
        shape = str(values.shape[1]) if values.ndim == 2 else ""
        header.add_extra_dim(laspy.ExtraBytesParams(name=name, type=f"{shape}{values.dtype.str[1:]}"))
    data = laspy.LasData(header)
    data.xyz = cloud.file_coord
    for name, values in {**_standard(cloud, path), **extra}.items():
        data[name] = values
    data.write(path)


def _grid(cloud: Cloud) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale and offset a axis: the finest of 0.1 mm, 1 mm, ... whose 32-bit counts reach over the extent."""
    coord = cloud.file_coord
    if len(coord) == 0:
        return np.full(3, _STEP_M), np.zeros(3)
    offsets = np.floor(coord.min(axis=0))
    reach = np.maximum(coord.max(axis=0) - offsets, 1e-12)
    finest = (
        np.array([_STEP_DEGREE, _STEP_DEGREE, _STEP_M]) if cloud.unit == "degree" else np.full(3, _STEP_M)
    )
    coarser = np.ceil(np.log10(reach / (finest * (2**31 - 1))))
    return finest * 10.0 ** np.maximum(coarser, 0), offsets


def _add_crs(header: Any, cloud: Cloud) -> None:
    if cloud.crs is not None:
        import pyproj

        header.add_crs(pyproj.CRS.from_wkt(cloud.crs))


def _standard(cloud: Cloud, path: Path) -> dict[str, NDArray[Any]]:
    """The fields that LAS has dimensions for, in its own units."""
    fields = cloud.fields
    out: dict[str, NDArray[Any]] = {}
    for name in ("intensity", "nir"):
        if name in fields:
            out[name] = _sixteen(fields[name])
    if "color" in fields:
        for index, name in enumerate(("red", "green", "blue")):
            out[name] = _sixteen(fields["color"][:, index])
    elif "nir" in fields:
        out |= {name: np.zeros(len(cloud), np.uint16) for name in ("red", "green", "blue")}
    if "classification" in fields:
        out["classification"] = class_ids(fields["classification"], 255, f"{path}: LAS").astype(np.uint8)
    if "gps_time" in fields:
        out["gps_time"] = fields["gps_time"].astype(np.float64)
    if "scan_angle" in fields:
        out["scan_angle"] = np.rint(fields["scan_angle"] / 0.006).astype(np.int16)
    for name in _WHOLE.keys() & fields.keys():
        out[name] = class_ids(fields[name], _WHOLE[name], f"{path}: {name} in LAS").astype(np.uint16)
    return out


def _sixteen(values: NDArray[Any]) -> NDArray[np.uint16]:
    return np.asarray(np.rint(np.clip(np.nan_to_num(values), 0, 1) * 65535).astype(np.uint16))


def _extra(cloud: Cloud) -> dict[str, NDArray[Any]]:
    """Fields that become extra dimensions; what has no place there is named in the log."""
    extra: dict[str, NDArray[Any]] = {}
    for name, column in cloud.fields.items():
        if name in _OWN:
            continue
        values = column.astype(np.uint8) if column.dtype == bool else column
        fits = values.dtype.kind in "iuf" and values.dtype.itemsize <= 8 and values.dtype != np.float16
        if fits and len(name.encode()) <= 32 and (values.ndim == 1 or values.shape[1] <= 3):
            extra[name] = values
        else:
            log.warning("field %r of %s has no place in LAS and is left out", name, cloud.name)
    return extra
