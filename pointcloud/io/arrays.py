"""Numpy files: .npy, .npz, and a folder of .npy, as the ScanNet preprocessing of Pointcept leaves it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError, UnsupportedError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.columns import class_column, class_values, flat_columns, interpret
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.units import in_metres

_LAYOUTS = {
    3: ("x", "y", "z"),
    4: ("x", "y", "z", "intensity"),
    6: ("x", "y", "z", "red", "green", "blue"),
    7: ("x", "y", "z", "red", "green", "blue", "label"),
}
"""Columns of a bare array -> what they are."""
_COORDINATES = ("coord", "coords", "xyz", "points", "pos")
_CLASSES = ("segment", "segment20", "semantic_gt", "semantic_gt20")


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read arrays: one [N, 3], [N, 4], [N, 6] or [N, 7], a structured one, or several by name.

    Raises:
        FormatError: if the file is damaged, needs pickle, or has no coordinates.
    """
    arrays = _load(path)
    columns = _columns(path, arrays)
    table = interpret(columns, str(path), options)
    metres = in_metres(table.coord, str(path), options.unit)
    return Cloud(
        coord=metres.coord,
        fields=table.fields,
        unit=metres.unit,
        source=Source(path, "arrays", arrays, metres.coord, metres.numbers),
    )


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if path.is_dir():
            return {file.stem: np.load(file) for file in sorted(path.glob("*.npy"))}
        with path.open("rb") as file:  # numpy leaves it open where a zip file is damaged
            loaded = np.load(file)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, SyntaxError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path}: cannot be read as numpy arrays ({reason}); the file is damaged") from None


def _columns(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays as named columns of one length."""
    if "" in arrays:
        return _of_one(path, arrays[""])
    name = next((name for name in _COORDINATES if name in arrays), None)
    if name is None:
        columns = dict(arrays)
    else:
        coord = arrays[name]
        if coord.ndim != 2 or coord.shape[1] < 3:
            raise FormatError(f"{path}: {name} is {list(coord.shape)}, coordinates are [N, 3]")
        columns = _of_one(path, coord) | {key: a for key, a in arrays.items() if key != name}
    count = len(next(iter(columns.values()), np.zeros(0)))
    for source, names in {"color": ("red", "green", "blue"), "normal": ("nx", "ny", "nz")}.items():
        if source in columns and columns[source].shape == (count, 3):
            three = columns.pop(source)
            columns |= {name: three[:, axis] for axis, name in enumerate(names)}
    for classes in _CLASSES:
        if classes in columns and class_column(list(columns)) is None:
            columns["label"] = columns.pop(classes).reshape(-1)
    return {key: a for key, a in columns.items() if a.ndim in (1, 2) and len(a) == count}


def _of_one(path: Path, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim != 2 or array.dtype.kind not in "fiu" or array.shape[1] not in _LAYOUTS:
        raise FormatError(
            f"{path}: an array {list(array.shape)} of {array.dtype} is no cloud; "
            f"[N, {', '.join(map(str, _LAYOUTS))}] numbers or a structured array are"
        )
    return {name: array[:, number] for number, name in enumerate(_LAYOUTS[array.shape[1]])}


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write `.npz` with every array of the source and the classes, or `.npy` with the classes alone.

    Raises:
        UnsupportedError: if `.npy` should hold more than the classes.
        InputError: if a class is no whole number from 0 up.
    """
    arrays = cloud.source.payload if cloud.source and cloud.source.format == "arrays" else None
    if path.suffix == ".npy":
        if options.extra or "classification" not in cloud.fields:
            raise UnsupportedError(f"{path}: .npy holds the classes alone; write .npz to keep more")
        np.save(path, class_values(cloud, np.dtype(np.int32), str(path)))
        return
    kept: Mapping[str, NDArray[Any]] = arrays or flat_columns(cloud)
    out: dict[str, Any] = {name or "points": array for name, array in kept.items()}
    if "classification" in cloud.fields:
        out["classification"] = class_values(cloud, None, f"{path}: npz")
    out |= {name: cloud.fields[name] for name in options.extra if name in cloud.fields}
    np.savez_compressed(path, **out)
