"""LAS, LAZ and COPC: writing.

A cloud that was read from LAS is written as the same file with other classes; any other becomes a new file.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointcloud.cloud import Cloud
from pointcloud.io.copc import Chunks, drop_copc, moved_tree, place_chunks
from pointcloud.io.las import LasPayload
from pointcloud.io.las_image import Image, with_class, with_dimension
from pointcloud.io.las_layout import LASZIP, POINT_LENGTHS, Layout, Vlr, new_vlr, patched
from pointcloud.io.las_new import write_new
from pointcloud.io.options import WriteOptions
from pointcloud.io.values import class_ids


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write a cloud as LAS, or as LAZ where `path` ends in .laz.

    Raises:
        InputError: if a class id is no whole number in 0..255, or a coordinate is not finite.
    """
    if cloud.source is None or not isinstance(cloud.source.payload, LasPayload):
        write_new(cloud, path)
        return
    image = Image.of(cloud.source.payload)
    if "classification" in cloud.fields:
        image = with_class(image, class_ids(cloud.fields["classification"], 255, f"{path}: LAS"))
    for name in options.extra:
        if name in cloud.fields:
            image = with_dimension(image, name, cloud.fields[name])
    if path.suffix.lower() == ".laz":
        _write_compressed(image, path, cloud.source.payload)
    else:
        _write_raw(image, path)


def _write_raw(image: Image, path: Path) -> None:
    layout = drop_copc(image.layout)
    vlrs = [vlr for vlr in layout.vlrs if vlr.key != LASZIP]
    start = _start(layout, vlrs, compressed=False)
    shift = len(start) + image.records.size - layout.tail_start
    with path.open("wb") as file:
        file.write(_moved(layout, start, shift))
        file.write(image.records.data)
        file.write(layout.tail)


def _write_compressed(image: Image, path: Path, source: LasPayload) -> None:
    """Compress as the source does, then tell header and octree where things came to lie."""
    import lazrs

    layout, chunks = image.layout, source.chunks
    laszip = _laszip(source.layout, layout)
    vlrs = _with_laszip(layout.vlrs, laszip.record_data())
    start = _start(layout, vlrs, compressed=True)
    with path.open("w+b") as file:
        file.write(start)
        _compress(lazrs.LasZipCompressor(file, laszip), image.records, chunks)
        end = file.seek(0, 2)
        shift = end - layout.tail_start
        if chunks is not None:
            file.seek(len(start))
            table = lazrs.read_chunk_table(file, laszip)
            after = place_chunks(table, len(start))
            sizes = [size for _, size in table]
            layout = moved_tree(replace(layout, vlrs=tuple(vlrs)), chunks, after, sizes, shift)
            start = _start(layout, list(layout.vlrs), compressed=True)
        file.seek(end)
        file.write(layout.tail)
        file.seek(0)
        file.write(_moved(layout, start, shift))


def _start(layout: Layout, vlrs: list[Vlr], compressed: bool) -> bytes:
    """All before the first point, with the numbers in the header that follow from it."""
    body = b"".join(vlr.head + vlr.data for vlr in vlrs) + layout.gap
    header = patched(layout.header, "<B", 104, layout.point_format | (0x80 if compressed else 0))
    return patched(header, "<II", 96, len(header) + len(body), len(vlrs)) + body


def _moved(layout: Layout, start: bytes, shift: int) -> bytes:
    """The header with the places of what follows the points moved by `shift`."""
    if layout.extended_start:
        start = patched(start, "<Q", 235, layout.extended_start + shift)
    if layout.waveform_start:
        start = patched(start, "<Q", 227, layout.waveform_start + shift)
    return start


def _laszip(before: Layout, now: Layout) -> Any:
    """How to compress: as the source does, unless its points have another shape by now."""
    import lazrs

    old = before.find(LASZIP)
    if old is not None and before.record_length == now.record_length:
        return lazrs.LazVlr(old.data)
    extra = now.record_length - POINT_LENGTHS[now.point_format]
    is_variable = old is not None and lazrs.LazVlr(old.data).uses_variable_size_chunks()
    return lazrs.LazVlr.new_for_compression(now.point_format, extra, is_variable)


def _with_laszip(vlrs: tuple[Vlr, ...], data: bytes) -> list[Vlr]:
    if not any(vlr.key == LASZIP for vlr in vlrs):
        return [*vlrs, new_vlr(LASZIP, data, "laszip by lazrs")]
    return [vlr.with_data(data) if vlr.key == LASZIP else vlr for vlr in vlrs]


def _compress(compressor: Any, records: NDArray[np.uint8], chunks: Chunks | None) -> None:
    if chunks is None:
        compressor.compress_many(records.reshape(-1))
    else:
        ends = np.cumsum(chunks.counts)
        for number, part in enumerate(np.split(records, ends[:-1])):
            if number:
                compressor.finish_current_chunk()  # not after the last: done() does that
            compressor.compress_many(part.reshape(-1))
    compressor.done()
