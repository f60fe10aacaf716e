"""LAS, LAZ and COPC: reading. `las_write` writes them, `las_layout` guards both.

Source: ASPRS LAS 1.4 R15; the points are decoded by laspy and lazrs.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.copc import Chunks
from pointcloud.io.las_layout import Layout, read_layout
from pointcloud.io.laz_check import check_chunks
from pointcloud.io.options import ReadOptions
from pointcloud.io.units import in_metres
from pointcloud.io.values import color_of, intensity_of

log = logging.getLogger(__name__)

_COORDINATES = ("X", "Y", "Z")
_CHANNELS = ("red", "green", "blue", "nir", "intensity", "scan_angle", "scan_angle_rank")
_OPAQUE = "ExtraBytes"
"""What laspy calls bytes of a record that nothing describes."""


@dataclass(frozen=True, eq=False)
class LasPayload:
    """What the writer needs to write the file again."""

    layout: Layout
    data: Any
    """`laspy.LasData`, whose raw records stay as they were read."""
    chunks: Chunks | None
    """Chunks of a LAZ file whose sizes are its own, as in COPC."""


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read a LAS, LAZ or COPC file.

    Raises:
        FormatError: if the file is truncated, damaged or of a version that cannot be read.
    """
    layout = read_layout(path)
    chunks, data = _decode(path, layout)
    crs = _crs(path, data)
    numbers = np.ascontiguousarray(data.xyz, dtype=np.float64)
    metres = in_metres(numbers, str(path), options.unit, crs, _geokeys(layout))
    payload = LasPayload(layout, data, chunks)
    return Cloud(
        coord=metres.coord,
        fields=_fields(path, data, options),
        crs=crs.to_wkt() if crs is not None else None,
        unit=metres.unit,
        source=Source(
            path,
            "las",
            payload,
            metres.coord,
            metres.numbers,
            kind=_kind(layout),
            # Before point format 6, class 18 is reserved.
            noise=(7, 18) if layout.point_format >= 6 else (7, 7),
        ),
    )


def _decode(path: Path, layout: Layout) -> tuple[Chunks | None, Any]:
    """Let laspy read the points; whatever it raises becomes one line.

    lazrs is compiled from Rust and panics on damaged data: its PanicException is no `Exception`.
    """
    import laspy

    try:
        with _no_panic_report():
            chunks = check_chunks(path, layout)
            data = laspy.read(path, encoding_errors="replace")
    except (KeyboardInterrupt, SystemExit, GeneratorExit, FormatError):
        raise
    except BaseException as error:  # noqa: BLE001
        raise FormatError(
            f"{path}: the points cannot be decoded ({_one_line(error)}); the file is damaged or cut off"
        ) from None
    if len(data) != layout.count:
        raise FormatError(f"{path}: the header counts {layout.count} points, {len(data)} were decoded")
    return chunks, data


@contextmanager
def _no_panic_report() -> Iterator[None]:
    """Keep the report of a Rust panic, dozens of lines, off stderr: the exception says the same."""
    try:
        stderr = os.dup(2)
    except OSError:  # closed; nobody will see the report
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _crs(path: Path, data: Any) -> Any:
    """The reference system as a `pyproj.CRS`, or None where there is none or it cannot be understood."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyproj warns of old spellings; they do no harm here
            return data.header.parse_crs()
    except Exception as error:  # noqa: BLE001  any parser may fail on what people write there
        log.warning(
            "%s: the reference system cannot be understood (%s); it is kept in the file and coordinates "
            "are taken as metres, --unit says otherwise",
            path,
            _one_line(error),
        )
        return None


def _kind(layout: Layout) -> str:
    name = "COPC" if layout.is_copc else "LAZ" if layout.is_compressed else "LAS"
    return f"{name} 1.{layout.minor}, point format {layout.point_format}"


def _geokeys(layout: Layout) -> bytes | None:
    vlr = layout.find(("LASF_Projection", 34735))
    return vlr.data if vlr is not None else None


def _fields(path: Path, data: Any, options: ReadOptions) -> dict[str, NDArray[Any]]:
    names = [name for name in data.point_format.dimension_names if not name.startswith(_OPAQUE)]
    scaled = {
        name: intensity_of(np.asarray(data[name]), f"{path}: {name}", 65535.0)
        for name in ("intensity", "nir")
        if name in names
    }
    scaled["color"] = _color(path, data, names, options)
    fields: dict[str, NDArray[Any]] = {name: values for name, values in scaled.items() if values is not None}
    fields["scan_angle"] = _scan_angle(data, names)
    for name in names:
        if name not in _COORDINATES + _CHANNELS and name not in fields:
            fields[name] = np.array(data[name])
    return fields


def _color(path: Path, data: Any, names: list[str], options: ReadOptions) -> NDArray[np.float32] | None:
    if "red" not in names:
        return None
    rgb = np.stack([np.asarray(data[name]) for name in ("red", "green", "blue")], axis=1)
    return color_of(rgb, str(path), options.rgb_max)


def _scan_angle(data: Any, names: list[str]) -> NDArray[np.float32]:
    """Degrees; point formats 6 to 10 count in steps of 0.006."""
    if "scan_angle" in names:
        return np.asarray(data["scan_angle"]).astype(np.float32) * np.float32(0.006)
    return np.asarray(data["scan_angle_rank"]).astype(np.float32)
