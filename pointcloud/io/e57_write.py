"""E57: writing the same file again, with the classes as an extension that other readers step over."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import UnsupportedError
from pointcloud.cloud import Cloud
from pointcloud.io.e57 import INT64, PREFIX, E57Payload, open_e57, read_fields
from pointcloud.io.options import WriteOptions
from pointcloud.io.values import class_ids

URI = "urn:geomix:e57:classification:1"


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write an E57 file again with the class of each point as the field `geomix:classification`.

    Scans, poses, pictures and all other fields are copied as they are stored.

    Raises:
        UnsupportedError: if the cloud does not come from an E57 file.
        InputError: if a class id is no whole number in 0..65535.
    """
    import pye57

    payload = cloud.source.payload if cloud.source else None
    if cloud.source is None or not isinstance(payload, E57Payload):
        raise UnsupportedError(f"{path}: E57 is written from E57 alone; choose .laz, .ply or .pcd")
    added: dict[str, NDArray[Any]] = {}
    if "classification" in cloud.fields:
        added["classification"] = class_ids(cloud.fields["classification"], 65535, f"{path}: E57").astype(
            INT64
        )
    added |= {name: cloud.fields[name].astype(np.float64) for name in options.extra if name in cloud.fields}
    parts = _split(added, payload.counts)
    with open_e57(cloud.source.path) as source:
        target = pye57.libe57.ImageFile(str(path), "w")
        try:
            _copy(source, target, parts)
        finally:
            target.close()


def _split(added: dict[str, NDArray[Any]], counts: tuple[int, ...]) -> list[dict[str, NDArray[Any]]]:
    """The new fields of each scan."""
    ends = np.cumsum((0, *counts))
    return [
        {name: np.ascontiguousarray(values[ends[index] : ends[index + 1]]) for name, values in added.items()}
        for index in range(len(counts))
    ]


def _copy(source: Any, target: Any, parts: list[dict[str, NDArray[Any]]]) -> None:
    from pye57 import libe57
    from pye57.utils import copy_node, get_node

    for number in range(source.image_file.extensionsCount()):
        prefix, uri = source.image_file.extensionsPrefix(number), source.image_file.extensionsUri(number)
        if prefix != PREFIX:
            target.extensionsAdd(prefix, uri)
    target.extensionsAdd(PREFIX, URI)
    root, old = target.root(), source.root
    blobs = []
    for number in range(old.childCount()):
        node = get_node(old, number)
        if node.elementName() == "data3D":
            scans = libe57.VectorNode(target, True)
            root.set("data3D", scans)
            for index in range(source.scan_count):
                blobs += _copy_scan(source, target, scans, index, parts[index])
            continue
        new, _, pairs = copy_node(node, target)
        root.set(node.elementName(), new)
        blobs += pairs
    for pair in blobs:
        data = np.empty(pair["in"].byteCount(), np.uint8)
        pair["in"].read(data, 0, data.size)
        pair["out"].write(data, 0, data.size)


def _copy_scan(source: Any, target: Any, scans: Any, index: int, added: dict[str, NDArray[Any]]) -> list[Any]:
    """Copy one scan with new fields behind its own; the blobs that are still to be copied."""
    from pye57 import libe57
    from pye57.utils import copy_node, get_node

    header = source.get_header(index)
    scan = libe57.StructureNode(target)
    scans.append(scan)
    values = read_fields(source, header, raw=True)
    prototype, _, _ = copy_node(libe57.StructureNode(header.points.prototype()), target)
    for name, column in added.items():
        full = f"{PREFIX}:{name}"
        if full not in values:
            is_class = column.dtype.kind == "i"
            node = libe57.IntegerNode(target, 0, 0, 65535) if is_class else libe57.FloatNode(target, 0.0)
            prototype.set(full, node)
        values[full] = column
    points = libe57.CompressedVectorNode(target, prototype, libe57.VectorNode(target, True))
    blobs = []
    for number in range(header.node.childCount()):
        node = get_node(header.node, number)
        if node.elementName() == "points":
            scan.set("points", points)
            continue
        new, _, pairs = copy_node(node, target)
        scan.set(node.elementName(), new)
        blobs += pairs
    _write_points(target, points, values)
    return blobs


def _write_points(target: Any, points: Any, values: dict[str, NDArray[Any]]) -> None:
    from pye57 import libe57

    count = len(next(iter(values.values())))
    buffers = libe57.VectorSourceDestBuffer()
    for name, column in values.items():
        buffers.append(libe57.SourceDestBuffer(target, name, column, max(count, 1), True, False))
    writer = points.writer(buffers)
    if count:
        writer.write(count)
    writer.close()
