"""Bare float32 tables without a header: KITTI, nuScenes and ScanNet .bin; and the labels beside them.

Nothing in such a file says how many columns it has, so the numbers have to: each layout leaves traces that
the others cannot fake. The choice is logged, and `--columns` overrules it.

Source: SemanticKITTI (https://github.com/PRBonn/semantic-kitti-api), nuScenes devkit, MMDetection3D.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError, MissingFileError, UnsupportedError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.units import in_metres
from pointcloud.io.values import class_ids, color_of, intensity_of

log = logging.getLogger(__name__)

NAMES = {4: "KITTI", 5: "nuScenes", 6: "ScanNet or S3DIS"}
"""Columns -> whose layout that is."""

_FAR_M = 1e5
_TINY = 1e-30
_LARGEST_LABEL = 65535


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read a float32 table: x, y, z and intensity; or with a ring behind; or x, y, z, red, green, blue.

    Raises:
        FormatError: if the numbers fit no layout, or not the one that the caller names.
    """
    values = _values(path)
    columns = options.columns or guess_columns(path, values)
    if columns < 3 or values.size % columns:
        raise FormatError(
            f"{path}: {values.size} float32 numbers are no table of {columns} columns; give --columns"
        )
    table = values.reshape(-1, columns)
    metres = in_metres(table[:, :3].astype(np.float64), str(path), options.unit)
    return Cloud(
        coord=metres.coord,
        fields=_fields(path, table, options),
        unit=metres.unit,
        source=Source(
            path, "floats", columns, metres.coord, metres.numbers, kind=f"floats, {columns} columns"
        ),
    )


def _values(path: Path) -> NDArray[np.float32]:
    size = path.stat().st_size
    if size % 4:
        raise FormatError(
            f"{path}: {size} bytes are no table of float32 numbers, nor any other format known here"
        )
    return np.fromfile(path, dtype="<f4").astype(np.float32, copy=False)


def guess_columns(path: Path, values: NDArray[np.float32]) -> int:
    """Tell the layout of a table by its numbers, and log it.

    Raises:
        FormatError: if none fits.
    """
    if values.size == 0:
        return 4
    # The strictest first: a ring or a byte colour in every row does not come about by chance.
    order = (6, 5, 4)
    fits = [columns for columns in order if values.size % columns == 0 and _fits(values.reshape(-1, columns))]
    if path.name.endswith(".pcd.bin") and 5 in fits:
        fits = [5]
    if not fits:
        raise FormatError(
            f"{path}: its {values.size} numbers are no scan of 4 (KITTI), 5 (nuScenes) or 6 (ScanNet) "
            "columns of float32; labels are not points, and another layout is read with --columns"
        )
    log.info("%s: read as %d float32 columns (%s); --columns says otherwise", path, fits[0], NAMES[fits[0]])
    return fits[0]


def _fits(table: NDArray[np.float32]) -> bool:
    """Whether the columns of a table hold what their layout puts there."""
    size = np.abs(table[:, :3])
    known = np.isfinite(table[:, :3])
    # Integers read as float32 are tiny numbers, which no coordinate is.
    if (size[known] > _FAR_M).any() or np.count_nonzero((size > 0) & (size < _TINY)) > 0.01 * size.size:
        return False
    rest = table[:, 3:]
    if not np.isfinite(rest).all() or (rest < 0).any():
        return False
    if table.shape[1] == 6:
        return bool(rest.max() <= 255) and (_is_whole(rest) or bool(rest.max() <= 1))
    if table.shape[1] == 5:
        return bool(rest[:, 0].max() <= 255 and rest[:, 1].max() <= 127) and _is_whole(rest[:, 1])
    return bool(rest.max() <= 255)


def _is_whole(values: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(np.rint(values), values))


def _fields(path: Path, table: NDArray[np.float32], options: ReadOptions) -> dict[str, NDArray[Any]]:
    fields: dict[str, NDArray[Any]] = {}
    if table.shape[1] == 6:
        color = color_of(table[:, 3:], str(path), options.rgb_max)
        return fields if color is None else {"color": color}
    if table.shape[1] >= 4:
        intensity = intensity_of(table[:, 3], f"{path}: intensity")
        if intensity is not None:
            fields["intensity"] = intensity
    if table.shape[1] == 5:
        fields["ring"] = table[:, 4].astype(np.int32)
    elif table.shape[1] > 5:
        fields |= {f"column_{number}": table[:, number] for number in range(4, table.shape[1])}
    return fields


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write the class of each point: `.label` as SemanticKITTI does, `.bin` as nuScenes does.

    A `.label` holds uint32, the raw id in the lower half and no instance in the upper. A `.bin` holds uint8.

    Raises:
        InputError: if an id does not fit.
        UnsupportedError: for any other suffix, and where fields should go out that have no place there.
    """
    if options.extra:
        raise UnsupportedError(
            f"{path}: label files hold no {' and '.join(options.extra)}; write .ply or .laz"
        )
    if "classification" not in cloud.fields:
        raise UnsupportedError(f"{path}: holds classes alone, and the cloud has none; write .ply or .laz")
    ids = cloud.fields["classification"]
    if path.suffix == ".label":
        class_ids(ids, _LARGEST_LABEL, f"{path}: SemanticKITTI").astype("<u4").tofile(path)
    elif cloud.source is not None and cloud.source.payload == 5:
        class_ids(ids, 255, f"{path}: nuScenes lidarseg").astype(np.uint8).tofile(path)
    else:
        raise UnsupportedError(
            f"{path}: a table of floats has no place for classes; give a name that ends in .label or .ply"
        )


def find_labels(path: Path) -> Path | None:
    """The SemanticKITTI labels of a scan: beside it, or in `labels/` next to `velodyne/`."""
    name = f"{path.stem}.label"
    places = [path.with_name(name), path.parent.parent / "labels" / name]
    return next((place for place in places if place.is_file()), None)


def read_labels(path: Path, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Class and instance of each point of a SemanticKITTI `.label` file, as raw ids, [N] each.

    Args:
        path: the label file.
        count: points of the scan that it belongs to.

    Raises:
        MissingFileError: if it is not there.
        FormatError: if it has another number of points.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such label file")
    size = path.stat().st_size
    if size != 4 * count:
        raise FormatError(f"{path}: {size} bytes hold {size / 4:g} labels, the scan has {count} points")
    values = np.fromfile(path, dtype="<u4").astype(np.int64)
    return values & 0xFFFF, values >> 16


def with_labels(cloud: Cloud) -> Cloud:
    """A cloud with the labels that lie beside its file, where there are any."""
    labels = find_labels(cloud.source.path) if cloud.source and cloud.source.format == "floats" else None
    if labels is None:
        return cloud
    classes, instances = read_labels(labels, len(cloud))
    return cloud.with_fields(classification=classes, instance=instances)
