"""Whether the chunks of a LAZ file can be true, before a decompressor believes them.

The chunks of point formats 6 to 10 start with the lengths of their layers. A decompressor allocates what
stands there: a few damaged bytes cost it gigabytes and half a minute.

Source: the LASzip source, https://github.com/LASzip/LASzip (layered, compressor 3).
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO

from geomix.errors import FormatError
from pointcloud.io.copc import Chunks, place_chunks
from pointcloud.io.las_layout import LASZIP, Layout

_LAYERED = 3
_LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}
"""Kind of item -> layers; kind 14, extra bytes, has one a byte."""


def check_chunks(path: Path, layout: Layout) -> Chunks | None:
    """Check the table of chunks and the layers of each chunk of a LAZ file.

    Returns:
        The chunks, where their sizes are their own as in COPC; None where all are equal.

    Raises:
        FormatError: if they do not add up.
    """
    import lazrs

    vlr = layout.find(LASZIP)
    if vlr is None or layout.count == 0 or not layout.is_compressed:
        return None
    laszip = lazrs.LazVlr(vlr.data)
    with path.open("rb") as file:
        file.seek(layout.points_start)
        table = lazrs.read_chunk_table(file, laszip)
        sizes = [size for _, size in table]
        chunks = place_chunks(table, layout.points_start)
        if chunks.starts[-1] + sizes[-1] > path.stat().st_size:
            raise FormatError(f"{path}: the chunks run past the end of the file; it was cut off")
        if struct.unpack_from("<H", vlr.data)[0] == _LAYERED:
            _check_layers(path, file, layout, vlr.data, chunks, sizes)
    if not laszip.uses_variable_size_chunks():
        return None
    if sum(chunks.counts) != layout.count:
        raise FormatError(
            f"{path}: the chunks hold {sum(chunks.counts)} points, the header counts {layout.count}"
        )
    return chunks


def _check_layers(
    path: Path, file: BinaryIO, layout: Layout, laszip: bytes, chunks: Chunks, sizes: list[int]
) -> None:
    layers = _layers(laszip)
    head = struct.Struct(f"<{layers + 1}I")
    for number, (start, size) in enumerate(zip(chunks.starts, sizes, strict=True)):
        file.seek(start + layout.record_length)
        data = file.read(head.size)
        lengths: tuple[Any, ...] = head.unpack(data) if len(data) == head.size else (0, size)
        if sum(lengths[1:]) + layout.record_length + head.size != size:
            raise FormatError(
                f"{path}: the layers of chunk {number + 1} of {len(sizes)} do not fill its {size} bytes; "
                "the file is damaged"
            )


def _layers(laszip: bytes) -> int:
    """Number of layers of a chunk, by the items that make up a point."""
    count = struct.unpack_from("<H", laszip, 32)[0]
    items = struct.iter_unpack("<3H", laszip[34 : 34 + 6 * count])
    return sum(size if kind == 14 else _LAYERS.get(kind, 0) for kind, size, _ in items)
