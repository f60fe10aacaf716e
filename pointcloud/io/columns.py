"""From the columns of a file, whatever it calls them, to coordinates and the fields of a cloud, and back."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud
from pointcloud.io.options import ReadOptions
from pointcloud.io.values import class_ids, color_of, intensity_of

log = logging.getLogger(__name__)

_AXES = (
    ("x", "y", "z"),
    ("//x", "y", "z"),
    ("cartesianx", "cartesiany", "cartesianz"),
    ("easting", "northing", "height"),
)
_COLORS = (
    ("red", "green", "blue"),
    ("r", "g", "b"),
    ("diffuse_red", "diffuse_green", "diffuse_blue"),
    ("colorred", "colorgreen", "colorblue"),
)
_NORMALS = (
    ("nx", "ny", "nz"),
    ("normal_x", "normal_y", "normal_z"),
    ("normalx", "normaly", "normalz"),
    ("nor:normalx", "nor:normaly", "nor:normalz"),
)
_RENAMED = {
    "scalar_intensity": "intensity",
    "reflectance": "intensity",
    "remission": "intensity",
    "i": "intensity",
    "returnnumber": "return_number",
    "numberofreturns": "number_of_returns",
    "gpstime": "gps_time",
    "scananglerank": "scan_angle",
    "pointsourceid": "point_source_id",
    "userdata": "user_data",
    "edgeofflightline": "edge_of_flight_line",
    "scandirectionflag": "scan_direction_flag",
    "rowindex": "row",
    "columnindex": "column",
}
_CLASSES = (
    "classification",
    "class",
    "label",
    "labels",
    "semantic",
    "scalar_classification",
    "scalar_label",
    "sem_class",
)
_WORDS = frozenset(
    [name for group in (*_AXES, *_COLORS, *_NORMALS) for name in group]
    + [*_RENAMED, *_CLASSES, "rgb", "rgba", "intensity", "nir", "ring", "instance", "confidence", "entropy"]
)


class Table(NamedTuple):
    """The columns of a file as a cloud sees them."""

    coord: NDArray[np.float64]
    """As the file gives them, float64 [N, 3]."""
    fields: dict[str, NDArray[Any]]
    class_column: str | None
    """What the file calls the class of a point, if it has one."""


def is_known(name: str) -> bool:
    """Whether a word is a name that files give to a column."""
    return name.lower() in _WORDS


def class_column(names: list[str]) -> str | None:
    """Which column is the class of a point, if any; upper and lower case are the same."""
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in _CLASSES if name in lower), None)


def interpret(columns: Mapping[str, NDArray[Any]], where: str, options: ReadOptions) -> Table:
    """Give the columns of a file the names and units that a cloud has; unknown ones keep their name.

    Args:
        columns: one array [N] a column, or [N, K], in the order of the file.
        where: the file, for messages.
        options: what the caller says about it.

    Raises:
        FormatError: if there are no x, y and z.
    """
    lower = {name.lower(): name for name in reversed(list(columns))}
    axes = _group(_AXES, lower)
    if axes is None:
        raise FormatError(
            f"{where}: has no x, y and z, only {', '.join(columns) or 'nothing'}; not a point cloud"
        )
    _warn_of_float32(columns, axes, where)
    fields: dict[str, NDArray[Any]] = {}
    used = set(axes)
    used |= _take_color(columns, lower, fields, where, options)
    normals = _group(_NORMALS, lower)
    if normals is not None:
        fields["normal"] = _stack(columns, normals, np.float32)
        used |= set(normals)
    classes = class_column([name for name in columns if name not in used])
    if classes is not None:
        fields["classification"] = _whole(_native(columns[classes]))
        used.add(classes)
    for name, values in columns.items():
        if name not in used:
            _add(fields, _RENAMED.get(name.lower(), name), _native(values), where)
    return Table(_stack(columns, axes, np.float64), fields, classes)


def _warn_of_float32(columns: Mapping[str, NDArray[Any]], axes: list[str], where: str) -> None:
    """Say so where the file lost precision when it was written: float32 rounds a UTM northing to 0.5 m."""
    for name in axes:
        values = columns[name]
        if values.dtype.kind != "f" or values.dtype.itemsize != 4:
            continue
        largest = np.max(np.abs(values), initial=0.0, where=np.isfinite(values))
        step = float(np.spacing(np.float32(largest)))
        if step >= 0.01:
            log.warning(
                "%s: %s up to %.0f is stored as float32, in steps of %g m; what is finer is lost in the file",
                where,
                name,
                largest,
                step,
            )


def _group(groups: tuple[tuple[str, ...], ...], lower: Mapping[str, str]) -> list[str] | None:
    """The names in the file of the first group that is there as a whole."""
    return next(([lower[name] for name in group] for group in groups if lower.keys() >= set(group)), None)


def _take_color(
    columns: Mapping[str, NDArray[Any]],
    lower: Mapping[str, str],
    fields: dict[str, NDArray[Any]],
    where: str,
    options: ReadOptions,
) -> set[str]:
    """Put the colour into the fields; which columns it took."""
    names = _group(_COLORS, lower)
    packed = next((lower[name] for name in ("rgb", "rgba") if name in lower), None)
    if names is not None:
        rgb = _stack(columns, names, None)
    elif packed is not None:
        names = [packed]
        rgb = columns[packed] if columns[packed].ndim == 2 else unpack_rgb(columns[packed])
    else:
        return set()
    color = color_of(rgb.view(np.uint8) if rgb.dtype == np.int8 else rgb, where, options.rgb_max)
    if color is not None:
        fields["color"] = color
    return set(names)


def _add(fields: dict[str, NDArray[Any]], name: str, values: NDArray[Any], where: str) -> None:
    if name.lower() in ("intensity", "nir"):
        scaled = intensity_of(values, f"{where}: {name}")
        if scaled is not None:
            fields[name.lower()] = scaled
    elif name not in fields and values.dtype.kind in "iufb":
        fields[name] = values


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """A copy in the byte order of this machine."""
    return np.array(values, dtype=values.dtype.newbyteorder("="))


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """Class ids that a program wrote as floats, as integers; anything else as it is."""
    if values.dtype.kind != "f" or not np.array_equal(np.rint(values), values):
        return values
    return values.astype(np.int64)


def _stack(columns: Mapping[str, NDArray[Any]], names: list[str], dtype: Any) -> NDArray[Any]:
    stacked = np.stack([np.asarray(columns[name]) for name in names], axis=1)
    return stacked.astype(dtype or stacked.dtype.newbyteorder("="), copy=False)


def unpack_rgb(packed: NDArray[Any]) -> NDArray[np.uint8]:
    """Colours packed into 4 bytes as 0xAARRGGBB, a float32 or an integer, uint8 [N, 3].

    Source: PCL, pcl::PointXYZRGB.
    """
    if packed.dtype.kind == "f" and packed.dtype.itemsize == 4:
        bits = np.ascontiguousarray(_native(packed)).view(np.uint32)
    else:
        bits = packed.astype(np.int64).astype(np.uint32)
    return np.stack([bits >> 16 & 255, bits >> 8 & 255, bits & 255], axis=1).astype(np.uint8)


def class_values(cloud: Cloud, dtype: np.dtype[Any] | None, where: str) -> NDArray[Any]:
    """The classes of a cloud in the type of a column that a file has, or in the smallest that holds them.

    Raises:
        InputError: if they are no whole numbers from 0 up.
    """
    ids = class_ids(cloud.fields["classification"], 2**31 - 1, where)
    largest = int(ids.max()) if len(ids) else 0
    if dtype is not None and (dtype.kind == "f" or largest <= np.iinfo(dtype).max):
        return ids.astype(dtype)
    return ids.astype(np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32)


def flat_columns(cloud: Cloud) -> dict[str, NDArray[Any]]:
    """All of a cloud as columns of a new file, in types that every format of tables can hold.

    Coordinates are x, y, z; colours red, green, blue in 8 bits; normals nx, ny, nz; other fields with more
    than one number become name_0, name_1, and so on.
    """
    columns: dict[str, NDArray[Any]] = {name: cloud.file_coord[:, axis] for axis, name in enumerate("xyz")}
    for name, values in cloud.fields.items():
        if name == "color":
            rgb = np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
            columns |= {channel: rgb[:, axis] for axis, channel in enumerate(("red", "green", "blue"))}
        elif name == "normal":
            columns |= {f"n{axis}": values[:, number] for number, axis in enumerate("xyz")}
        elif values.ndim == 1:
            columns[name] = values
        else:
            flat = values.reshape(len(cloud), -1)
            columns |= {f"{name}_{number}": flat[:, number] for number in range(flat.shape[1])}
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Booleans as bytes, half floats as floats, 64-bit integers in 32 bits if they fit, else as float64."""
    if values.dtype == bool:
        return values.astype(np.uint8)
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        fits = values.size == 0 or (values.min() >= -(2**31) and values.max() < 2**31)
        return values.astype(np.int32 if fits else np.float64)
    return values
