"""E57: the scans of a file as one cloud, each in its place.

Source: ASTM E2807; the files are decoded by libE57Format through pye57.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.columns import interpret
from pointcloud.io.options import ReadOptions
from pointcloud.io.units import in_metres

log = logging.getLogger(__name__)

_CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
_SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
_NORMAL = ("nor:normalX", "nor:normalY", "nor:normalZ")
_COLORS = ("colorRed", "colorGreen", "colorBlue")
PREFIX = "geomix"
"""Of the extension that holds classes."""
INT64 = np.dtype("q")
"""The library takes numpy's own int64 for 32 bits where C's long has 64."""
_STATES = ("cartesianInvalidState", "sphericalInvalidState")


@dataclass(frozen=True, eq=False)
class E57Payload:
    """What the writer needs to write the file again."""

    counts: tuple[int, ...]
    """Points of each scan, in the order of the file."""


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read all scans of an E57 file, moved to where their pose says.

    Points that the scanner marked as invalid, and exact zeros in the frame of the scanner, stay in the cloud
    with the field `invalid`. A field that some scans lack is 0 there.

    Raises:
        FormatError: if the file is damaged, or a scan has no coordinates.
    """
    scans = []
    with open_e57(path) as file:
        scans = [_read_scan(path, file, index) for index in range(file.scan_count)]
    table = interpret(_union(path, scans), str(path), options)
    metres = in_metres(table.coord, str(path), options.unit)
    payload = E57Payload(tuple(len(scan["cartesianX"]) for scan in scans))
    return Cloud(
        coord=metres.coord,
        fields=table.fields,
        unit=metres.unit,
        source=Source(path, "e57", payload, metres.coord, metres.numbers),
    )


@contextmanager
def open_e57(path: Path) -> Iterator[Any]:
    """Open an E57 file for reading; whatever goes wrong inside becomes one line.

    Raises:
        FormatError: naming what the library found.
    """
    import pye57

    try:
        with pye57.E57(str(path)) as file:
            yield file
    except FormatError:
        raise
    except Exception as error:
        if isinstance(error, pye57.libe57.E57Exception | RuntimeError | ValueError | MemoryError):
            reason = " ".join(str(error).split())[:200]
            raise FormatError(
                f"{path}: cannot be read as E57 ({reason}); the file is damaged or cut off"
            ) from None
        raise


def _read_scan(path: Path, file: Any, index: int) -> dict[str, NDArray[Any]]:
    """One scan: its fields by the names of the standard, with cartesian coordinates of the whole project."""
    header = file.get_header(index)
    values = read_fields(file, header)
    if set(_SPHERICAL) <= values.keys() and not set(_CARTESIAN) <= values.keys():
        values |= _cartesian(*(values.pop(name) for name in _SPHERICAL))
    if not set(_CARTESIAN) <= values.keys():
        raise FormatError(f"{path}: scan {index} has no coordinates, only {', '.join(values) or 'nothing'}")
    local = np.stack([values.pop(name) for name in _CARTESIAN], axis=1)
    invalid = _invalid(local, values)
    rotation, translation = _pose(header.node)
    coord = local @ rotation.T + translation
    out: dict[str, NDArray[Any]] = {name: coord[:, axis] for axis, name in enumerate(_CARTESIAN)}
    if set(_NORMAL) <= values.keys():
        normal = np.stack([values.pop(name) for name in _NORMAL], axis=1) @ rotation.T
        out |= {name: normal[:, axis].astype(np.float32) for axis, name in enumerate(_NORMAL)}
    out |= _scaled(header, values)
    out |= {"invalid": invalid, "scan": np.full(len(local), index, np.int32)}
    return out | {name.removeprefix(f"{PREFIX}:"): column for name, column in values.items()}


def read_fields(file: Any, header: Any, raw: bool = False) -> dict[str, NDArray[Any]]:
    """All number fields of a scan; raw keeps scaled integers as the integers that are stored."""
    from pye57 import libe57
    from pye57.utils import get_node

    prototype = libe57.StructureNode(header.points.prototype())
    buffers = libe57.VectorSourceDestBuffer()
    values: dict[str, NDArray[Any]] = {}
    for number in range(prototype.childCount()):
        node = get_node(prototype, number)
        name = node.elementName()
        is_integer = isinstance(node, libe57.IntegerNode) or (
            raw and isinstance(node, libe57.ScaledIntegerNode)
        )
        if isinstance(node, libe57.StringNode):
            log.warning("field %s holds text and is left out", name)
            continue
        values[name] = np.empty(header.point_count, INT64 if is_integer else np.float64)
        buffers.append(
            libe57.SourceDestBuffer(file.image_file, name, values[name], header.point_count, not raw, not raw)
        )
    if header.point_count and values:
        reader = header.points.reader(buffers)
        reader.read()
        reader.close()
    return values


def _invalid(local: NDArray[np.float64], values: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Which points are no measurement: by the state the scanner gave them, or zeros where it forgot to."""
    zero = (local == 0).all(axis=1)
    invalid = zero if np.count_nonzero(zero) >= 2 else np.zeros(len(local), bool)
    for name in _STATES:
        if name in values:
            invalid = invalid | (values.pop(name) != 0)
    return np.asarray(invalid)


def _cartesian(
    distance: NDArray[np.float64], azimuth: NDArray[np.float64], elevation: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    flat = distance * np.cos(elevation)
    coordinates = (flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation))
    return dict(zip(_CARTESIAN, coordinates, strict=True))


def _pose(node: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rotation [3, 3] and translation [3] of a scan; what the file does not say is the identity."""
    rotation, translation = np.eye(3), np.zeros(3)
    if node.isDefined("pose/rotation/w"):
        rotation = _matrix(*(node[f"pose/rotation/{axis}"].value() for axis in "wxyz"))
    if node.isDefined("pose/translation/x"):
        translation = np.array([node[f"pose/translation/{axis}"].value() for axis in "xyz"])
    return rotation, translation


def _matrix(w: float, x: float, y: float, z: float) -> NDArray[np.float64]:
    """The rotation matrix of a quaternion of any length."""
    length = float(np.sqrt(w * w + x * x + y * y + z * z))
    if length == 0:
        return np.eye(3)
    w, x, y, z = w / length, x / length, y / length, z / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _scaled(header: Any, values: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Colour and intensity in 0..1 by the limits that the scan declares; they leave `values`."""
    out: dict[str, NDArray[Any]] = {}
    if set(_COLORS) <= values.keys():
        full = _limit(header.node, "colorLimits/colorRedMaximum", 255.0)
        out |= {name: (values.pop(name) / full).astype(np.float32) for name in _COLORS}
    low = _limit(header.node, "intensityLimits/intensityMinimum", 0.0)
    high = _limit(header.node, "intensityLimits/intensityMaximum", 0.0)
    if "intensity" in values and high > low:
        out["intensity"] = np.clip((values.pop("intensity") - low) / (high - low), 0, 1).astype(np.float32)
    return out


def _limit(node: Any, name: str, otherwise: float) -> float:
    return float(node[name].value()) if node.isDefined(name) else otherwise


def _union(path: Path, scans: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The fields of all scans one after another; 0 where a scan lacks one."""
    if not scans:
        return {name: np.zeros(0) for name in _CARTESIAN}
    names = list(dict.fromkeys(name for scan in scans for name in scan))
    union = {}
    for name in names:
        lacking = [index for index, scan in enumerate(scans) if name not in scan]
        if lacking:
            log.warning("%s: scans %s have no %s; it is 0 there", path, ", ".join(map(str, lacking)), name)
        dtype = np.result_type(*(scan[name].dtype for scan in scans if name in scan))
        parts = [
            scan[name] if name in scan else np.zeros(len(scan["cartesianX"]), dtype=dtype) for scan in scans
        ]
        union[name] = np.concatenate(parts).astype(dtype)
    return union
