"""Numbers of a file as the numbers of a cloud: colours, intensities, class ids."""

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError

log = logging.getLogger(__name__)


def color_of(rgb: NDArray[Any], name: str, rgb_max: float | None = None) -> NDArray[np.float32] | None:
    """Colours in 0..1, float32 [N, 3], or None where all are black, which means that there are none.

    Bytes are 8-bit. Wider integers are 8-bit where the whole cloud stays at or below 255, else 16-bit: one
    decision for the cloud, never for a point, and it is logged. Floats above 1 are decided the same way.

    Args:
        rgb: colours of the file, [N, 3].
        name: the file, for messages.
        rgb_max: value of full brightness, where the caller knows.

    Raises:
        InputError: if `rgb_max` is not above 0.
    """
    if rgb_max is not None and not rgb_max > 0:
        raise InputError(f"rgb_max must be above 0, got {rgb_max}")
    largest = _largest(rgb)
    if largest <= 0:
        log.info("%s: every colour is black, taken as no colour", name)
        return None
    full = rgb_max or _full_scale(rgb.dtype, largest)
    if rgb_max is None and rgb.dtype != np.uint8 and full > 1:
        bits = 8 if full == 255 else 16
        # 8 bits in a wider field break the standard, so that guess is loud; 16 are what it asks for.
        is_odd = bits == 8 and rgb.dtype.kind != "f"
        level = logging.WARNING if is_odd else logging.INFO
        log.log(
            level,
            "%s: colours up to %g are read as %d-bit (--rgb-max decides otherwise)",
            name,
            largest,
            bits,
        )
    return np.asarray(np.clip(rgb.astype(np.float32) / np.float32(full), 0.0, 1.0))


def intensity_of(values: NDArray[Any], name: str, full: float | None = None) -> NDArray[np.float32] | None:
    """Intensities in 0..1, float32 [N], or None where all are 0, which means that there are none.

    Args:
        values: intensities or reflectances of the file, [N].
        name: the file and field, for messages.
        full: the largest value that the format allows; where it is unknown the largest value decides
            between 1, 255 and 65535, and the choice is logged.
    """
    largest = _largest(values)
    if largest <= 0:
        log.info("%s: every value is 0, taken as not measured", name)
        return None
    if full is None:
        full = _full_scale(values.dtype, largest)
        if full > 1:
            log.warning("%s: values up to %g are divided by %g", name, largest, full)
    return values.astype(np.float32) / np.float32(full)


def _largest(values: NDArray[Any]) -> float:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return float(finite.max()) if finite.size else 0.0


def _full_scale(dtype: np.dtype[Any], largest: float) -> float:
    if dtype.kind == "f" and largest <= 1:
        return 1.0
    return 255.0 if dtype == np.uint8 or largest <= 255 else 65535.0


def class_ids(values: NDArray[Any], largest: int, where: str) -> NDArray[np.int64]:
    """The classes of a cloud as whole numbers that a format can hold.

    Raises:
        InputError: if an id is no whole number in 0..largest, with the ids and how often they occur.
    """
    ids = np.asarray(values)
    if ids.dtype.kind == "f":
        whole = ids.astype(np.int64)
        if not np.array_equal(whole, ids):
            raise InputError(f"{where}: class ids must be whole numbers, got fractions")
        ids = whole
    ids = ids.astype(np.int64)
    bad = (ids < 0) | (ids > largest)
    if bad.any():
        found, counts = np.unique(ids[bad], return_counts=True)
        listed = ", ".join(
            f"{i} ({n} points)" for i, n in zip(found[:5].tolist(), counts[:5].tolist(), strict=True)
        )
        raise InputError(f"{where} holds class ids 0 to {largest}, got {listed}; choose another format")
    return ids
