"""PLY in all its encodings; elements, properties and comments that mean nothing here are kept.

Source: Greg Turk, the PLY polygon file format; the files are parsed by plyfile.
"""

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.columns import class_values, flat_columns, interpret
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.units import in_metres

_LONGEST_HEADER = 1 << 20


@dataclass(frozen=True, eq=False)
class PlyPayload:
    """What the writer needs to write the file again."""

    data: Any
    """`plyfile.PlyData`."""
    class_column: str | None
    lines: dict[bytes, bytes]
    """Lines of the header as the library takes them, and as they stand in the file."""


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read the vertices of a PLY file as points.

    Raises:
        FormatError: if the file is cut off or damaged, or has no vertices with x, y and z.
    """
    import plyfile

    try:
        data, lines = _parse(path)
    except (plyfile.PlyParseError, ValueError, OverflowError, MemoryError) as error:
        raise FormatError(
            f"{path}: cannot be read as PLY ({error}); the file is damaged or cut off"
        ) from None
    if "vertex" not in data:
        raise FormatError(f"{path}: has no element 'vertex', only {', '.join(e.name for e in data.elements)}")
    vertex = data["vertex"]
    rows = np.array(vertex.data)  # out of the file, which may be replaced before the cloud is written
    vertex.data = rows
    columns = {p.name: rows[p.name] for p in vertex.properties if isinstance(rows.dtype[p.name], np.dtype)}
    table = interpret({n: c for n, c in columns.items() if c.dtype != object}, str(path), options)
    metres = in_metres(table.coord, str(path), options.unit)
    return Cloud(
        coord=metres.coord,
        fields=table.fields,
        unit=metres.unit,
        source=Source(
            path,
            "ply",
            PlyPayload(data, table.class_column, lines),
            metres.coord,
            metres.numbers,
            faces=partial(_faces, data, len(rows)),
        ),
    )


def _faces(data: Any, points: int) -> NDArray[np.int64] | None:
    """The triangles of a mesh, [F, 3]; None where it is no triangle mesh."""
    if "face" not in data:
        return None
    names = [p.name for p in data["face"].properties if p.name in ("vertex_indices", "vertex_index")]
    corners = list(data["face"][names[0]]) if names else []
    if not corners or any(len(face) != 3 for face in corners):
        return None
    faces = np.stack(corners).astype(np.int64)
    return faces if faces.min() >= 0 and faces.max() < points else None


def _parse(path: Path) -> tuple[Any, dict[bytes, bytes]]:
    """Let the library read a file; letters beyond ASCII in comments, which it refuses, are set aside."""
    import plyfile

    with path.open("rb") as file:
        head = file.read(_LONGEST_HEADER).partition(b"end_header")[0]
    foreign = [line for line in head.splitlines() if not line.isascii()]
    if not foreign:
        return plyfile.PlyData.read(str(path)), {}
    # As long as before, so that everything else stays in its place.
    lines = {bytes(b if b < 128 else 63 for b in line): line for line in foreign}
    with NamedTemporaryFile(suffix=".ply") as copy:
        with path.open("rb") as file:
            file.seek(len(head))
            copy.write(bytes(b if b < 128 else 63 for b in head))
            shutil.copyfileobj(file, copy)
        copy.flush()
        return plyfile.PlyData.read(copy.name), lines


def _restore(path: Path, lines: dict[bytes, bytes]) -> None:
    """Put the letters beyond ASCII back into the header of a file that was written."""
    head, end, body = path.read_bytes().partition(b"end_header")
    restored = [lines.get(line, line) for line in head.split(b"\n")]
    path.write_bytes(b"\n".join(restored) + end + body)


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write a cloud as PLY; one that was read from PLY keeps everything but the class.

    Raises:
        InputError: if a class is no whole number from 0 up.
    """
    import plyfile

    payload = cloud.source.payload if cloud.source else None
    if not isinstance(payload, PlyPayload):
        vertex = plyfile.PlyElement.describe(_rows(flat_columns(cloud)), "vertex")
        plyfile.PlyData([vertex], byte_order="<").write(str(path))
        return
    old = payload.data["vertex"]
    changed = _changed(cloud, old.data, payload.class_column, path, options)
    vertex = _with_columns(plyfile, old, changed)
    elements = [vertex if element is old else element for element in payload.data.elements]
    data = plyfile.PlyData(
        elements,
        text=payload.data.text,
        byte_order=payload.data.byte_order,
        comments=payload.data.comments,
        obj_info=payload.data.obj_info,
    )
    if data.text:
        data.write(str(path))
    else:
        _write_binary(data, path)
    if payload.lines:
        _restore(path, payload.lines)


def _write_binary(data: Any, path: Path) -> None:
    """Write as the library does, which (1.1) forgets to swap numbers beside lists in big-endian files."""
    order = data.byte_order
    with path.open("wb") as file:
        file.write(data.header.encode("ascii") + b"\n")
        for element in data.elements:
            lists = {p.name: p.list_dtype(order) for p in element.properties if hasattr(p, "list_dtype")}
            if not lists:
                file.write(element.data.astype(element.dtype(order), copy=False).tobytes())
                continue
            for row in element.data:
                for p in element.properties:
                    if p.name in lists:
                        values = np.asarray(row[p.name], dtype=lists[p.name][1]).ravel()
                        file.write(np.array(len(values), dtype=lists[p.name][0]).tobytes())
                    else:
                        values = np.asarray(row[p.name], dtype=p.dtype(order))
                    file.write(values.tobytes())


def _changed(
    cloud: Cloud, old: NDArray[Any], column: str | None, path: Path, options: WriteOptions
) -> dict[str, NDArray[Any]]:
    """The columns that are new or other than in the file."""
    changed: dict[str, NDArray[Any]] = {}
    if "classification" in cloud.fields:
        dtype = old.dtype[column] if column else None
        changed[column or "classification"] = class_values(cloud, dtype, f"{path}: PLY")
    for name in options.extra:
        if name in cloud.fields:
            changed[name] = cloud.fields[name].astype(np.float32)
    return changed


def _with_columns(plyfile: Any, old: Any, changed: dict[str, NDArray[Any]]) -> Any:
    """The vertex element with columns replaced or added behind; all others keep type and value."""
    kept = {name: old.data[name] for name in old.data.dtype.names if name not in changed}
    order = [*old.data.dtype.names, *(name for name in changed if name not in old.data.dtype.names)]
    rows = _rows({name: changed[name] if name in changed else kept[name] for name in order})
    properties = {p.name: p for p in old.properties if p.name not in changed}
    return plyfile.PlyElement.describe(
        rows,
        old.name,
        len_types={n: p.len_dtype for n, p in properties.items() if hasattr(p, "len_dtype")},
        val_types={n: p.val_dtype for n, p in properties.items() if hasattr(p, "len_dtype")},
        comments=old.comments,
    )


def _rows(columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """One structured array of columns of equal length."""
    rows = np.empty(len(next(iter(columns.values()))), dtype=[(n, c.dtype) for n, c in columns.items()])
    for name, values in columns.items():
        rows[name] = values
    return rows
