"""PCD, the format of PCL, in all its encodings; fields that mean nothing here are kept.

Source: https://pointclouds.org/documentation/tutorials/pcd_file_format.html; parsed by pypcd4.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.columns import class_values, flat_columns, interpret
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.units import in_metres

_PADDING = "#$%&~~"
"""How pypcd4 starts the names of bytes that hold nothing."""
_HEADER_LINES = 40


@dataclass(frozen=True, eq=False)
class PcdPayload:
    """What the writer needs to write the file again."""

    metadata: Any
    """`pypcd4.MetaData`."""
    rows: NDArray[Any]
    class_column: str | None


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read a PCD file; the points of an organised one come row by row.

    Raises:
        FormatError: if the file is cut off or damaged, or has no x, y and z.
    """
    try:
        metadata, rows = _read_rows(path)
    except (ValueError, KeyError, RuntimeError, OverflowError, MemoryError, OSError) as error:
        raise FormatError(
            f"{path}: cannot be read as PCD ({_short(error)}); the file is damaged or cut off"
        ) from None
    if len(rows) != metadata.points or metadata.width * metadata.height != metadata.points:
        raise FormatError(
            f"{path}: the header counts {metadata.points} points in {metadata.height} rows of "
            f"{metadata.width}, the file holds {len(rows)}"
        )
    columns = {name: rows[name] for name in rows.dtype.names or () if not name.startswith(_PADDING)}
    table = interpret(columns, str(path), options)
    metres = in_metres(table.coord, str(path), options.unit)
    payload = PcdPayload(metadata, rows, table.class_column)
    return Cloud(
        coord=metres.coord,
        fields=table.fields,
        unit=metres.unit,
        source=Source(path, "pcd", payload, metres.coord, metres.numbers),
    )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _read_rows(path: Path) -> tuple[Any, NDArray[Any]]:
    """Header and points; ASCII is read here, because the library stumbles over a second blank."""
    from pypcd4.pypcd4 import Encoding, MetaData, PointCloud

    with path.open("rb") as file:
        lines: list[str] = []
        for _ in range(_HEADER_LINES):
            lines.append(file.readline(10_000).decode("utf-8").strip())
            if lines[-1].startswith("DATA"):
                break
        metadata = MetaData.parse_header(lines)
        size = path.stat().st_size
        # An ASCII number takes two bytes at least, the library would believe any count.
        smallest = 2 * len(metadata.fields) if metadata.data == Encoding.ASCII else 0
        if metadata.data == Encoding.BINARY:
            smallest = metadata.build_dtype().itemsize
        if metadata.points * smallest > size + 1:
            raise ValueError(f"its header counts {metadata.points} points, too many for {size} bytes")
        if metadata.data == Encoding.ASCII and metadata.points:
            rows = np.loadtxt(file, dtype=metadata.build_dtype(), ndmin=1)
            return metadata, rows
    return metadata, PointCloud.from_path(path).pc_data


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write a cloud as PCD; one that was read from PCD keeps all but the class, and its encoding.

    Raises:
        InputError: if a class is no whole number from 0 up.
    """
    from pypcd4.pypcd4 import Encoding, MetaData, PointCloud

    payload = cloud.source.payload if cloud.source else None
    if not isinstance(payload, PcdPayload):
        rows = _structured(_new_columns(cloud, path))
        shape = {"width": len(rows), "height": 1, "viewpoint": (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)}
        described = _describe(rows)
        encoding = Encoding.BINARY
    else:
        rows = _structured(_changed(cloud, payload, path, options))
        old = payload.metadata
        shape = {"width": old.width, "height": old.height, "viewpoint": old.viewpoint}
        described = _extend(old, rows, payload.class_column)
        encoding = old.data
    metadata = MetaData(points=len(rows), data=encoding, **shape, **described)
    if encoding == Encoding.ASCII:
        _write_ascii(path, metadata, rows)
    else:
        PointCloud(metadata, rows).save(path, encoding=Encoding(encoding))


def _changed(cloud: Cloud, payload: PcdPayload, path: Path, options: WriteOptions) -> dict[str, NDArray[Any]]:
    columns = {name: payload.rows[name] for name in payload.rows.dtype.names or ()}
    if "classification" in cloud.fields:
        column = payload.class_column
        dtype = columns[column].dtype if column else None
        columns[column or "label"] = class_values(cloud, dtype, f"{path}: PCD")
    for name in options.extra:
        if name in cloud.fields:
            columns[name] = cloud.fields[name].astype(np.float32)
    return columns


def _new_columns(cloud: Cloud, path: Path) -> dict[str, NDArray[Any]]:
    """Columns in PCL's names: packed rgb, normal_x, label. Coordinates are float32 only if that is exact."""
    columns = flat_columns(cloud)
    exact = np.array_equal(cloud.file_coord.astype(np.float32), cloud.file_coord, equal_nan=True)
    for axis in "xyz":
        columns[axis] = columns[axis].astype(np.float32 if exact else np.float64)
        if f"n{axis}" in columns:
            columns[f"normal_{axis}"] = columns.pop(f"n{axis}")
    if "color" in cloud.fields:
        red, green, blue = (columns.pop(name).astype(np.uint32) for name in ("red", "green", "blue"))
        columns["rgb"] = (red << 16 | green << 8 | blue).view(np.float32)
    if "classification" in cloud.fields:
        del columns["classification"]
        columns["label"] = class_values(cloud, np.dtype(np.uint32), f"{path}: PCD")
    return columns


def _structured(columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    rows = np.empty(len(next(iter(columns.values()))), dtype=[(n, c.dtype) for n, c in columns.items()])
    for name, values in columns.items():
        rows[name] = values
    return rows


def _describe(rows: NDArray[Any]) -> dict[str, tuple[Any, ...]]:
    names = rows.dtype.names or ()
    dtypes = [rows.dtype[name] for name in names]
    return {
        "fields": tuple(name.replace(" ", "_") for name in names),
        "size": tuple(dtype.itemsize for dtype in dtypes),
        "type": tuple({"f": "F", "u": "U", "i": "I"}[dtype.kind] for dtype in dtypes),
        "count": (1,) * len(names),
    }


def _extend(old: Any, rows: NDArray[Any], class_column: str | None) -> dict[str, tuple[Any, ...]]:
    """The fields of the old header, with the class in its new type and the new fields behind."""
    new = _describe(rows)
    flat = sum(old.count)
    described = {name: getattr(old, name) + new[name][flat:] for name in ("fields", "size", "type", "count")}
    if class_column in old.fields:
        place, row_place = old.fields.index(class_column), (rows.dtype.names or ()).index(class_column)
        for name in ("size", "type"):
            described[name] = (*described[name][:place], new[name][row_place], *described[name][place + 1 :])
    return described


def _write_ascii(path: Path, metadata: Any, rows: NDArray[Any]) -> None:
    """Every number with as many digits as bring it back exactly, colours packed into floats too."""
    digits = {"f4": "%.9g", "f8": "%.17g"}
    formats = [digits.get(rows.dtype[name].str[1:], "%d") for name in rows.dtype.names or ()]
    with path.open("wb") as file:
        file.write(metadata.compose_header().encode())
        np.savetxt(file, rows, fmt=formats)
