"""LAS point formats 0 to 5 become 6 to 10, whose class has 8 bits instead of 5.

Source: ASPRS LAS 1.4 R15.
"""

import logging
import struct
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointcloud.io.las_layout import HEADER_LENGTHS, WKT, Layout, Vlr, new_vlr, patched

log = logging.getLogger(__name__)

WIDER = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}
"""Point format -> the one that holds the same and more."""

_ANGLE_STEP = 0.006
_WKT_BIT = 0x10


def promote(layout: Layout, data: Any) -> tuple[Layout, NDArray[np.uint8]]:
    """The same file as LAS 1.4 with a point format of 6 or above; flags, returns and angles keep their value.

    Formats 0 and 2 have no GPS time; it is 0 then.

    Args:
        layout: of the file.
        data: its points, as `laspy.LasData`.

    Returns:
        The new layout and the raw records, uint8 [N, record length].
    """
    import laspy

    wider = laspy.convert(data, point_format_id=WIDER[layout.point_format], file_version="1.4")
    if "scan_angle" in wider.point_format.dimension_names:
        # laspy leaves it at 0: whole degrees became steps of 0.006 degrees.
        rank = np.asarray(data["scan_angle_rank"]).astype(np.float64)
        wider["scan_angle"] = np.rint(rank / _ANGLE_STEP).astype(np.int16)
    array = np.ascontiguousarray(wider.points.array)
    records = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
    vlrs = _with_wkt(layout, data)
    header = _header(layout, wider, records.shape[1], any(vlr.key == WKT for vlr in vlrs))
    return replace(layout, header=header, vlrs=vlrs), records


def _header(layout: Layout, wider: Any, record_length: int, has_wkt: bool) -> bytes:
    old = layout.header
    standard = HEADER_LENGTHS[layout.minor]
    start = old[:227] + struct.pack("<Q", layout.waveform_start) + old[235:standard]
    header = start.ljust(HEADER_LENGTHS[4], b"\0") + old[standard:]
    header = patched(header, "<BH", 104, wider.point_format.id, record_length)
    header = patched(header, "<B", 25, 4)
    header = patched(header, "<H", 94, len(header))
    # Readers of LAS 1.4 take the counts behind; the old ones must be 0 with these point formats.
    header = patched(header, "<6I", 107, *(0,) * 6)
    returns = np.bincount(np.asarray(wider["return_number"]), minlength=16)[1:16]
    header = patched(header, "<16Q", 247, layout.count, *returns.tolist())
    if has_wkt:
        encoding = struct.unpack_from("<H", header, 6)[0]
        header = patched(header, "<H", 6, encoding | _WKT_BIT)
    return header


def _with_wkt(layout: Layout, data: Any) -> tuple[Vlr, ...]:
    """These point formats want the reference system as WKT; one given as GeoTIFF keys is written so too."""
    if layout.find(WKT) is not None:
        return layout.vlrs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            crs = data.header.parse_crs()
    except Exception as error:  # noqa: BLE001  any parser may fail on what people write there
        log.warning("the reference system stays as it is, it cannot be written as WKT (%s)", error)
        return layout.vlrs
    if crs is None:
        return layout.vlrs
    text = crs.to_wkt("WKT1_GDAL", pretty=False).encode() + b"\0"
    return (*layout.vlrs, new_vlr(WKT, text, "OGC COORDINATE SYSTEM WKT"))
