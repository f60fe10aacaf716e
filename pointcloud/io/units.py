"""Units of coordinates: what the reference system says, what the caller says, what the numbers look like."""

import logging
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError

log = logging.getLogger(__name__)

FOOT = 0.3048
US_FOOT = 1200 / 3937

_NAMED = {"metre": 1.0, "meter": 1.0, "m": 1.0, "foot": FOOT, "feet": FOOT, "ft": FOOT, "us-foot": US_FOOT}
_GEOKEY_UNITS = {9001: 1.0, 9002: FOOT, 9003: US_FOOT}


class Metres(NamedTuple):
    """Coordinates as a cloud holds them."""

    coord: NDArray[np.float64]
    """Metres, or degrees and metres of height, [N, 3]."""
    unit: str
    """`metre` or `degree`."""
    numbers: NDArray[np.float64] | None
    """What the file says, [N, 3], where that is not the same."""


def in_metres(
    numbers: NDArray[np.float64], name: str, unit: str = "auto", crs: Any = None, geokeys: bytes | None = None
) -> Metres:
    """Turn the coordinates of a file into metres.

    Args:
        numbers: float64, [N, 3], as the file gives them.
        name: the file, for messages.
        unit: what the caller says, or `auto`.
        crs: a `pyproj.CRS` of the file, if it names one that can be read.
        geokeys: data of a GeoTIFF key directory, which is asked where `crs` is missing.

    Raises:
        InputError: if `unit` is no unit.
    """
    units = units_of(name, unit, crs, geokeys)
    if unit == "auto" and crs is None and not units.is_degree and _looks_like_degrees(numbers):
        log.warning(
            "%s: x and y look like longitude and latitude in degrees; --unit metre says otherwise", name
        )
        return Metres(numbers, "degree", None)
    coord = units.to_metres(numbers)
    return Metres(coord, units.name, None if coord is numbers else numbers)


def _looks_like_degrees(numbers: NDArray[np.float64]) -> bool:
    """Whether a cloud is far higher than wide, at a place that a longitude and latitude can name."""
    known = numbers[np.isfinite(numbers).all(axis=1)]
    if len(known) < 10:
        return False
    low, high = known.min(axis=0), known.max(axis=0)
    if max(abs(low[0]), abs(high[0])) > 180 or max(abs(low[1]), abs(high[1])) > 90:
        return False
    wide = max(high[:2] - low[:2])
    return bool(wide > 0 and high[2] - low[2] > 100 * wide and (abs(low[:2]) > 1).any())


@dataclass(frozen=True)
class Units:
    """How the numbers of a file become metres."""

    horizontal: float = 1.0
    """Metres per unit of x and y; 1 where they are degrees."""
    vertical: float = 1.0
    """Metres per unit of z."""
    is_degree: bool = False

    @property
    def name(self) -> str:
        """The `unit` of a cloud."""
        return "degree" if self.is_degree else "metre"

    def to_metres(self, coord: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates of the file, [N, 3], in metres; the array itself where it is in metres already."""
        if self.horizontal == 1.0 and self.vertical == 1.0:
            return coord
        return np.asarray(coord * np.array([self.horizontal, self.horizontal, self.vertical]))


def units_of(name: str, unit: str = "auto", crs: Any = None, geokeys: bytes | None = None) -> Units:
    """Decide the units of a file and log every factor other than 1.

    Args:
        name: the file, for messages.
        unit: what the caller says, or `auto`.
        crs: a `pyproj.CRS` of the file, if it names one that can be read.
        geokeys: data of a GeoTIFF key directory, which is asked where `crs` is missing.

    Raises:
        InputError: if `unit` is no unit.
    """
    if unit != "auto":
        return _said(unit)
    units = _of_crs(crs) if crs is not None else _of_geokeys(geokeys)
    if units.is_degree:
        log.warning("%s: coordinates are longitude and latitude in degrees", name)
    elif (units.horizontal, units.vertical) != (1.0, 1.0):
        log.warning(
            "%s: coordinates are in feet by its reference system; 1 unit = %.9g m, of height %.9g m",
            name,
            units.horizontal,
            units.vertical,
        )
    return units


def _said(unit: str) -> Units:
    if unit == "degree":
        return Units(is_degree=True)
    try:
        factor = _NAMED[unit] if unit in _NAMED else float(unit)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise InputError(
            f"unit {unit!r} is unknown; give auto, metre, foot, us-foot, degree or a number of metres"
        )
    return Units(factor, factor)


def _of_crs(crs: Any) -> Units:
    parts = crs.sub_crs_list or [crs]
    flat = next((part for part in parts if not part.is_vertical), crs)
    upright = next((part for part in parts if part.is_vertical), None)
    if flat.is_geographic:
        return Units(vertical=_axis(upright, 0) if upright is not None else 1.0, is_degree=True)
    horizontal = _axis(flat, 0)
    if upright is not None:
        return Units(horizontal, _axis(upright, 0))
    has_height = len(flat.axis_info) == 3
    return Units(horizontal, _axis(flat, 2) if has_height else horizontal)


def _axis(crs: Any, index: int) -> float:
    axes = crs.axis_info
    return float(axes[index].unit_conversion_factor) if len(axes) > index else 1.0


def _of_geokeys(data: bytes | None) -> Units:
    """Read a key directory that names a unit but no system that pyproj knows."""
    if data is None or len(data) < 8:
        return Units()
    count = min(struct.unpack_from("<H", data, 6)[0], (len(data) - 8) // 8)
    entries = (struct.unpack_from("<4H", data, 8 + 8 * number) for number in range(count))
    keys = {key: value for key, location, _, value in entries if location == 0}
    if keys.get(1024) == 2:
        return Units(is_degree=True)
    horizontal = _GEOKEY_UNITS.get(keys.get(3076, 9001), 1.0)
    return Units(horizontal, _GEOKEY_UNITS.get(keys.get(4099, keys.get(3076, 9001)), 1.0))
