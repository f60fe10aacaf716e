"""COPC: a LAZ file whose chunks are the nodes of an octree.

Writing it again keeps the chunks, so the tree stays true; only the places of the nodes change.

Source: COPC 1.0, https://copc.io.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pointcloud.io.las_layout import COPC_HIERARCHY, COPC_INFO, Layout, patched

_ENTRY = struct.Struct("<4iQii")
_EVLR_HEADER = 60
_ROOT = 40
"""Byte in the COPC record where place and length of the root page stand."""


@dataclass(frozen=True)
class Chunks:
    """Where the chunks of a LAZ file start and how many points each holds."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]


def place_chunks(table: list[tuple[int, int]], points_start: int) -> Chunks:
    """Turn points and bytes of each chunk into places; 8 bytes lead to the table itself."""
    starts = []
    position = points_start + 8
    for _, size in table:
        starts.append(position)
        position += size
    return Chunks(tuple(starts), tuple(count for count, _ in table))


def drop_copc(layout: Layout) -> Layout:
    """The layout without what makes it COPC, for a file whose points are not compressed."""
    if layout.find(COPC_INFO) is None:
        return layout
    vlrs = tuple(vlr for vlr in layout.vlrs if vlr.key != COPC_INFO)
    kept = [record for key, record in _extended(layout) if key != COPC_HIERARCHY]
    header = patched(layout.header, "<QI", 235, layout.tail_start if kept else 0, len(kept))
    return replace(layout, header=header, vlrs=vlrs, tail=b"".join(kept))


def moved_tree(layout: Layout, before: Chunks, after: Chunks, sizes: list[int], shift: int) -> Layout:
    """The layout with all places in the octree brought up to date.

    Args:
        layout: of the file that was read.
        before: its chunks.
        after: the chunks of the new file, one for each of before.
        sizes: bytes of the new chunks.
        shift: how far the extended records moved.
    """
    info = layout.find(COPC_INFO)
    if info is None:
        return layout
    place = dict(zip(before.starts, zip(after.starts, sizes, strict=True), strict=True))
    root, length = struct.unpack_from("<QQ", info.data, _ROOT)
    tail = bytearray(layout.tail)
    pages = [(root, length)]
    while pages:
        start, size = pages.pop()
        for position in range(start - layout.tail_start, start - layout.tail_start + size, _ENTRY.size):
            *key, offset, count_bytes, points = _ENTRY.unpack_from(tail, position)
            if points == -1:  # not a node: the place of another page
                pages.append((offset, count_bytes))
                offset += shift
            elif points > 0:
                offset, count_bytes = place[offset]
            _ENTRY.pack_into(tail, position, *key, offset, count_bytes, points)
    data = patched(info.data, "<Q", _ROOT, root + shift)
    vlrs = tuple(vlr.with_data(data) if vlr is info else vlr for vlr in layout.vlrs)
    return replace(layout, vlrs=vlrs, tail=bytes(tail))


def _extended(layout: Layout) -> Iterator[tuple[tuple[str, int], bytes]]:
    """User id, record id and bytes of each extended record."""
    position = layout.extended_start - layout.tail_start
    for _ in range(struct.unpack_from("<I", layout.header, 243)[0] if layout.extended_start else 0):
        user, number, length = struct.unpack_from("<2x16sHQ", layout.tail, position)
        end = position + _EVLR_HEADER + length
        yield (user.split(b"\0")[0].decode("latin-1"), number), layout.tail[position:end]
        position = end
