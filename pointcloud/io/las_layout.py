"""What a LAS or LAZ file says about itself, checked against its size before any library reads it.

A header may lie: a damaged count of variable length records makes readers loop for minutes, a truncated file
makes a decompressor panic. The parts are kept byte for byte, so that a file can be written again unchanged.

Source: ASPRS LAS 1.4 R15; COPC 1.0.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from geomix.errors import FormatError

POINT_LENGTHS = (20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67)
"""Bytes of the standard part of a point record, by point format."""
HEADER_LENGTHS = (227, 227, 227, 235, 375)
"""Bytes of the header, by minor version."""
LASZIP = ("laszip encoded", 22204)
EXTRA_BYTES = ("LASF_Spec", 4)
WKT = ("LASF_Projection", 2112)
COPC_INFO = ("copc", 1)
COPC_HIERARCHY = ("copc", 1000)

_VLR_HEADER = 54
_BEST_COMPRESSION = 20_000
"""No LAZ file is smaller than its points by more: identical points alone reach 3,700."""


@dataclass(frozen=True)
class Vlr:
    """A variable length record: its 54 bytes of header and its data."""

    head: bytes
    data: bytes

    @property
    def key(self) -> tuple[str, int]:
        """User id and record id, which tell what the data is."""
        user = self.head[2:18].split(b"\0")[0].decode("latin-1")
        return user, int(struct.unpack_from("<H", self.head, 18)[0])

    def with_data(self, data: bytes) -> "Vlr":
        """The same record with other data.

        Raises:
            FormatError: if the data is too long for a record.
        """
        if len(data) > 0xFFFF:
            raise FormatError(f"variable length record {self.key} cannot hold {len(data)} bytes")
        return Vlr(self.head[:20] + struct.pack("<H", len(data)) + self.head[22:], data)


def new_vlr(key: tuple[str, int], data: bytes, description: str) -> Vlr:
    """Make a record with its header."""
    head = struct.pack("<H16sHH32s", 0, key[0].encode(), key[1], 0, description.encode())
    return Vlr(head, b"").with_data(data)


def patched(data: bytes, form: str, offset: int, *values: int) -> bytes:
    """The same bytes with numbers packed into them at an offset."""
    patch = struct.pack(form, *values)
    return data[:offset] + patch + data[offset + len(patch) :]


@dataclass(frozen=True)
class Layout:
    """The parts of a LAS or LAZ file around its points."""

    header: bytes
    vlrs: tuple[Vlr, ...]
    gap: bytes
    """Bytes between the last record and the first point."""
    tail: bytes
    """All that follows the points: extended records, waveforms, or what a program left there."""
    tail_start: int
    """Where the tail lay in the file."""

    @property
    def minor(self) -> int:
        return self.header[25]

    @property
    def point_format(self) -> int:
        return self.header[104] & 0x3F

    @property
    def is_compressed(self) -> bool:
        return bool(self.header[104] & 0x80)

    @property
    def is_copc(self) -> bool:
        return self.find(COPC_INFO) is not None

    @property
    def record_length(self) -> int:
        return int(struct.unpack_from("<H", self.header, 105)[0])

    @property
    def points_start(self) -> int:
        return int(struct.unpack_from("<I", self.header, 96)[0])

    @property
    def count(self) -> int:
        """Number of points; LAS 1.4 has a 64-bit count, and some writers fill the old one alone."""
        old = int(struct.unpack_from("<I", self.header, 107)[0])
        if self.minor < 4:
            return old
        return int(struct.unpack_from("<Q", self.header, 247)[0]) or old

    @property
    def extended_start(self) -> int:
        """Where the extended records start in the file, 0 if there are none."""
        if self.minor < 4 or struct.unpack_from("<I", self.header, 243)[0] == 0:
            return 0
        return int(struct.unpack_from("<Q", self.header, 235)[0])

    @property
    def waveform_start(self) -> int:
        """Where the waveforms start in the file, 0 if they are elsewhere."""
        return int(struct.unpack_from("<Q", self.header, 227)[0]) if self.minor >= 3 else 0

    def find(self, key: tuple[str, int]) -> Vlr | None:
        """The first record with this user id and record id."""
        return next((vlr for vlr in self.vlrs if vlr.key == key), None)


def read_layout(path: Path) -> Layout:
    """Read all of a file but its points, and check that its header can be true.

    Raises:
        FormatError: naming what in the header cannot be.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        header = _read_header(path, file, size)
        vlrs, gap = _read_vlrs(path, file, header)
        layout = Layout(header, vlrs, gap, b"", 0)
        tail_start = (
            _compressed_end(path, file, layout, size)
            if layout.is_compressed
            else _raw_end(path, layout, size)
        )
        file.seek(tail_start)
        layout = Layout(header, vlrs, gap, file.read(), tail_start)
    _check_extended(path, layout, size)
    return layout


def _read_header(path: Path, file: BinaryIO, size: int) -> bytes:
    start = file.read(227)
    if len(start) < 227:
        raise FormatError(f"{path}: a LAS header has 227 bytes, the file has {len(start)}; it was cut off")
    major, minor = start[24], start[25]
    if major != 1 or minor > 4:
        raise FormatError(f"{path}: LAS version {major}.{minor} is unknown; versions 1.0 to 1.4 can be read")
    length, points_start = struct.unpack_from("<HI", start, 94)
    if length < HEADER_LENGTHS[minor] or not length <= points_start <= size:
        raise FormatError(
            f"{path}: the header says it has {length} bytes and the points start at byte {points_start}, "
            f"which cannot be in LAS 1.{minor} of {size} bytes; it was not written to its end or is damaged"
        )
    header = start + file.read(length - 227)
    layout = Layout(header, (), b"", b"", 0)
    if layout.point_format >= len(POINT_LENGTHS):
        raise FormatError(f"{path}: point format {layout.point_format} is unknown; 0 to 10 exist")
    if layout.record_length < POINT_LENGTHS[layout.point_format]:
        raise FormatError(
            f"{path}: the header gives a point {layout.record_length} bytes, "
            f"but point format {layout.point_format} needs {POINT_LENGTHS[layout.point_format]}"
        )
    scales = struct.unpack_from("<6d", header, 131)
    if not all(abs(value) < 1e300 for value in scales) or 0.0 in scales[:3]:
        raise FormatError(f"{path}: scale and offset of the coordinates are {scales}, which cannot be")
    return header


def _read_vlrs(path: Path, file: BinaryIO, header: bytes) -> tuple[tuple[Vlr, ...], bytes]:
    points_start, count = struct.unpack_from("<II", header, 96)
    room = points_start - len(header)
    if count * _VLR_HEADER > room:
        raise FormatError(
            f"{path}: the header counts {count} variable length records, "
            f"but only {room} bytes lie between it and the points; the file is damaged"
        )
    block = file.read(room)
    vlrs = []
    position = 0
    for number in range(count):
        head = block[position : position + _VLR_HEADER]
        length = struct.unpack_from("<H", head, 20)[0] if len(head) == _VLR_HEADER else room
        end = position + _VLR_HEADER + length
        if end > room:
            raise FormatError(
                f"{path}: variable length record {number + 1} of {count} ends {end - room} bytes "
                "behind the start of the points; the file is damaged"
            )
        vlrs.append(Vlr(head, block[position + _VLR_HEADER : end]))
        position = end
    return tuple(vlrs), block[position:]


def _raw_end(path: Path, layout: Layout, size: int) -> int:
    end = layout.points_start + layout.count * layout.record_length
    if end > size:
        held = max(size - layout.points_start, 0) // layout.record_length
        raise FormatError(
            f"{path}: the header counts {layout.count} points of {layout.record_length} bytes, "
            f"but the file holds {held}; it was cut off or is damaged"
        )
    return end


def _compressed_end(path: Path, file: BinaryIO, layout: Layout, size: int) -> int:
    """Check the chunk table of a LAZ file against its header; where the points and the table end."""
    vlr = layout.find(LASZIP)
    if vlr is None or len(vlr.data) < 34:
        raise FormatError(f"{path}: the points are compressed, but the record that says how is missing")
    compressor = struct.unpack_from("<H", vlr.data)[0]
    if compressor not in (2, 3):
        raise FormatError(
            f"{path}: the points are compressed as one block (laszip compressor {compressor}, before 2012), "
            "which cannot be read here; rewrite the file with a current laszip, LAStools or PDAL"
        )
    starts = [start for start in (layout.extended_start, layout.waveform_start) if 0 < start <= size]
    if layout.count == 0:
        return min(starts, default=size)  # some programs leave the table out then
    if layout.points_start + 8 > size:
        raise FormatError(f"{path}: the file ends before its points; it was cut off")
    file.seek(layout.points_start)
    table = struct.unpack("<q", file.read(8))[0]
    if table == -1:  # a stream writes it at the very end
        file.seek(size - 8)
        table = struct.unpack("<q", file.read(8))[0]
    if not layout.points_start + 8 <= table <= size - 8:
        raise FormatError(
            f"{path}: the table of chunks should be at byte {table} of {size}; the file was cut off"
        )
    file.seek(table)
    chunks = struct.unpack("<II", file.read(8))[1]
    chunk_size = struct.unpack_from("<I", vlr.data, 12)[0]
    is_fixed = chunk_size != 0xFFFFFFFF
    impossible = layout.count * layout.record_length > _BEST_COMPRESSION * size
    if impossible or chunks > size or (is_fixed and chunks != -(-layout.count // max(chunk_size, 1))):
        raise FormatError(
            f"{path}: the header counts {layout.count} points, which cannot be in {chunks} chunks "
            f"of {chunk_size}; the file is damaged"
        )
    return min((start for start in starts if start > table), default=size)


def _check_extended(path: Path, layout: Layout, size: int) -> None:
    """Walk the extended records, so that nobody else runs off the end of the file."""
    position = layout.extended_start - layout.tail_start
    count = struct.unpack_from("<I", layout.header, 243)[0] if layout.extended_start else 0
    for number in range(count):
        length = (
            struct.unpack_from("<Q", layout.tail, position + 20)[0]
            if 0 <= position <= len(layout.tail) - 60
            else size
        )
        position += 60 + length
        if position > len(layout.tail):
            raise FormatError(
                f"{path}: extended record {number + 1} of {count} runs {position - len(layout.tail)} bytes "
                "past the end of the file; it was cut off or is damaged"
            )
