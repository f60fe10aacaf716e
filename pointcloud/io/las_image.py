"""Changes to a LAS file in memory: another class, another dimension, a wider point format.

All else stays byte for byte: header, records, flags, coordinates, undescribed bytes.

Source: ASPRS LAS 1.4 R15.
"""

import logging
import struct
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pointcloud.io.las import LasPayload
from pointcloud.io.las_layout import EXTRA_BYTES, POINT_LENGTHS, Layout, Vlr, new_vlr, patched
from pointcloud.io.las_promote import promote

log = logging.getLogger(__name__)

LARGEST_OLD_CLASS = 31
"""Point formats 0 to 5 keep 5 bits for the class, beside three flags in the same byte."""

_DESCRIPTOR = 192
_FLOAT32 = 9
_MEANING = {"confidence": "probability of the class", "entropy": "entropy of classes, in nats"}
_TYPE_BYTES = (0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8)


@dataclass(frozen=True, eq=False)
class Image:
    """A LAS file in memory: its layout and its raw point records, uint8 [N, record length]."""

    layout: Layout
    records: NDArray[np.uint8]
    data: Any
    """`laspy.LasData` of the file as it was read, for its dimensions."""

    @classmethod
    def of(cls, payload: LasPayload) -> Self:
        """The file as it was read."""
        return cls(payload.layout, raw_records(payload.data), payload.data)


def raw_records(data: Any) -> NDArray[np.uint8]:
    """The records of `laspy.LasData` as they lie in the file, the same memory, uint8 [N, record length]."""
    array = np.ascontiguousarray(data.points.array)
    records: NDArray[np.uint8] = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
    return records


def with_class(image: Image, ids: NDArray[np.int64]) -> Image:
    """Set the class of every record, 0 to 255, and leave the flags beside it alone."""
    old = image.layout.point_format
    if old <= 5 and ids.size and ids.max() > LARGEST_OLD_CLASS:
        layout, records = promote(image.layout, image.data)
        image = Image(layout, records, image.data)
        log.warning(
            "class %d does not fit into point format %d, which ends at 31; "
            "the file becomes LAS 1.4 with point format %d",
            ids.max(),
            old,
            layout.point_format,
        )
    records = image.records.copy()
    if image.layout.point_format >= 6:
        records[:, 16] = ids
    else:
        records[:, 15] = (records[:, 15] & 0xE0) | ids.astype(np.uint8)
    return replace(image, records=records)


def with_dimension(image: Image, name: str, values: NDArray[Any]) -> Image:
    """Append a float32 dimension, or fill the one of that name if the file has it as a number with fractions.

    Where the file uses the name for whole numbers, the new dimension is called `geomix_` and that name.
    """
    extra = list(image.data.point_format.extra_dimensions)
    index = next((index for index, dimension in enumerate(extra) if dimension.name == name), None)
    if index is not None and (extra[index].dtype.kind == "f" or extra[index].scales is not None):
        return _fill(image, index, values)
    if index is not None or name in _described_names(image.layout):
        log.warning("the file uses %r for whole numbers; the prediction goes to 'geomix_%s'", name, name)
        name = f"geomix_{name}"
    column = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(len(values), 4)
    records = np.concatenate([image.records, column], axis=1)
    header = patched(image.layout.header, "<H", 105, records.shape[1])
    layout = replace(image.layout, header=header, vlrs=_described(image.layout, name))
    return replace(image, layout=layout, records=records)


def _fill(image: Image, index: int, values: NDArray[Any]) -> Image:
    """Write into an extra dimension that exists, in its own type and scale."""
    extra = list(image.data.point_format.extra_dimensions)
    dtype = extra[index].dtype
    numbers = np.asarray(values, dtype=np.float64)
    if extra[index].scales is not None:
        numbers = (numbers - extra[index].offsets[0]) / extra[index].scales[0]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        numbers = np.clip(np.rint(np.nan_to_num(numbers)), limits.min, limits.max)
    before = sum(int(dimension.num_bits) // 8 for dimension in extra[:index])
    start = POINT_LENGTHS[image.layout.point_format] + before
    records = image.records.copy()
    column = np.ascontiguousarray(numbers, dtype=dtype).view(np.uint8)
    records[:, start : start + dtype.itemsize] = column.reshape(len(records), dtype.itemsize)
    return replace(image, records=records)


def _described(layout: Layout, name: str) -> tuple[Vlr, ...]:
    """The records of the file, with a description of a new float32 dimension at the end of each point.

    Readers take the first description that they find and count bytes from it, so bytes that it leaves out,
    because nothing or a second record describes them, get entries before the new one.
    """
    first = layout.find(EXTRA_BYTES)
    described = described_bytes(first.data) if first else 0
    missing = layout.record_length - POINT_LENGTHS[layout.point_format] - described
    entries = _second_descriptions(layout, first, missing) if missing > 0 else b""
    entries += struct.pack("<2xBB32s124x32s", _FLOAT32, 0, name.encode(), _MEANING.get(name, "").encode())
    if first is None:
        return (*layout.vlrs, new_vlr(EXTRA_BYTES, entries, "Extra Bytes Record"))
    return tuple(vlr.with_data(vlr.data + entries) if vlr is first else vlr for vlr in layout.vlrs)


def _second_descriptions(layout: Layout, first: Vlr | None, missing: int) -> bytes:
    """Entries for bytes that the first description leaves out: later ones if they tally, or plain bytes."""
    later = b"".join(vlr.data for vlr in layout.vlrs if vlr.key == EXTRA_BYTES and vlr is not first)
    names = _names(later + (first.data if first else b""))
    if described_bytes(later) == missing and len(set(names)) == len(names):
        return later
    # One byte an entry: some readers take the length of an opaque entry for its flags.
    return b"".join(
        struct.pack("<2xBB32s156x", 1, 0, f"undescribed_{number}".encode()) for number in range(missing)
    )


def _described_names(layout: Layout) -> set[str]:
    return {name for vlr in layout.vlrs if vlr.key == EXTRA_BYTES for name in _names(vlr.data)}


def _names(data: bytes) -> list[str]:
    """Names of the entries of an extra bytes record."""
    entries = range(0, len(data) - _DESCRIPTOR + 1, _DESCRIPTOR)
    return [data[start + 4 : start + 36].split(b"\0")[0].decode("latin-1") for start in entries]


def described_bytes(data: bytes) -> int:
    """How many bytes of a point the entries of an extra bytes record describe."""
    total = 0
    for start in range(0, len(data) - _DESCRIPTOR + 1, _DESCRIPTOR):
        kind, options = data[start + 2], data[start + 3]
        # 11 to 30 are the deprecated pairs and triples of types 1 to 10.
        total += options if kind == 0 else _TYPE_BYTES[(kind - 1) % 10 + 1] * ((kind - 1) // 10 + 1)
    return total
