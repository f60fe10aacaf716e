"""What the numbers of a raster mean: offset, scale and the values that stand for nothing.

Sentinel-2 products of processing baseline 04.00 and later store reflectance * 10000 + 1000. Whether the 1000
is still in a file depends on who wrote it, so it is decided for each date from what the file says, never
from the date of sensing: old scenes have been processed anew.
"""

import logging
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from sits.series import Mask, Values

log = logging.getLogger(__name__)

DIGITAL_NUMBER = 1e-4
"""Reflectance of one digital number in Sentinel-2 products and in PASTIS."""

BASELINE_OFFSET = -1000.0
"""What baseline 04.00 and later want added to their digital numbers."""

_BRIGHTEST, _PER_CENT = 2.0, 120.0
"""No reflectance is as bright as the first, and no percentage as the second."""

_LARGEST_STEP = 1e-3
"""Numbers with a larger scale are no digital numbers of a product."""

# MAJA writes -10000, others -9999; no surface reflects that little.
_UNDECLARED_SIGNED = (-9999.0, -10000.0)


@dataclass(frozen=True)
class Radiometry:
    """How the numbers of one band become reflectance: (number + offset) * scale."""

    scale: float
    offset: float = 0.0
    nodata: float | None = None
    """The declared number for nothing; None where the file declares none."""

    def decode(self, numbers: NDArray[np.generic]) -> tuple[Values, Mask]:
        """Reflectance of the numbers, and where they are data.

        Nothing is compared after a cast: -1.7e308 would have become -inf, and 0 - 1000 in uint16 is 64536.
        """
        valid = self.valid(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            values = numbers.astype(np.float32)
            if self.offset:
                # Dark pixels may fall below zero by noise; reflectance does not.
                values = np.maximum(values + np.float32(self.offset), np.float32(0))
            values *= np.float32(self.scale)
        valid &= np.isfinite(values)
        return np.where(valid, values, np.float32(0)), valid

    def valid(self, numbers: NDArray[np.generic]) -> Mask:
        """Where the numbers are data, judged in their own type."""
        missing = np.zeros(numbers.shape, dtype=bool)
        if np.issubdtype(numbers.dtype, np.floating):
            missing |= ~np.isfinite(numbers)
        for value in self.missing_numbers(numbers.dtype):
            missing |= numbers == np.array(value, dtype=numbers.dtype)
        return ~missing

    def missing_numbers(self, dtype: np.dtype[np.generic]) -> tuple[float, ...]:
        """The numbers of that type which stand for nothing: the declared one, else the usual ones."""
        if self.nodata is not None:
            return (self.nodata,) if fits(self.nodata, dtype) else ()
        return undeclared_numbers(dtype)


def undeclared_numbers(dtype: np.dtype[np.generic]) -> tuple[float, ...]:
    """What writers use for nothing without saying so: the ends of an integer type, -9999 and -10000."""
    if np.issubdtype(dtype, np.floating):
        return _UNDECLARED_SIGNED
    if not np.issubdtype(dtype, np.integer) or dtype.itemsize < 2:
        return ()
    ends = np.iinfo(dtype)  # type: ignore[type-var]
    if ends.min == 0:
        return (float(ends.max),)
    return (float(ends.max), float(ends.min), *_UNDECLARED_SIGNED)


def outside(dtype: np.dtype[np.generic]) -> float:
    """A number for what lies outside a raster, which `Radiometry` takes for missing without being told."""
    if not np.issubdtype(dtype, np.integer):
        return float("nan")
    usual = undeclared_numbers(dtype)
    return usual[0] if usual else 0.0


def fits(value: float, dtype: np.dtype[np.generic]) -> bool:
    """Whether a type can hold the value at all: -9999 never stands in a uint16 raster."""
    if not np.issubdtype(dtype, np.integer):
        return bool(np.isfinite(value))
    ends = np.iinfo(dtype)  # type: ignore[type-var]
    return float(value).is_integer() and ends.min <= value <= ends.max


@dataclass(frozen=True)
class Evidence:
    """What a file or item says about the numbers of one date."""

    baseline: str | None = None
    """Processing baseline such as 05.10."""
    applied: bool | None = None
    """Whether the offset has been taken off already, where someone says so."""
    offset: float | None = None
    """Offset in digital numbers, as raster:bands, BOA_ADD_OFFSET or the file's own band offset state it."""
    scale: float | None = None
    """Reflectance of one unit, as stated."""


def decide_offset(
    evidence: Evidence, option: float | str, scale: float = DIGITAL_NUMBER
) -> tuple[float, str]:
    """The offset of one date in digital numbers, and the reason in words.

    Args:
        evidence: what the files say.
        option: `auto`, `none` or a number.
        scale: reflectance of one unit; where it is not small, the numbers are reflectance already, to which
            no baseline has an offset.

    Raises:
        InputError: if the option is neither auto, none nor a number.
    """
    if option == "none":
        return 0.0, "none (as asked)"
    if not isinstance(option, str):
        return float(option), f"{option:g} (as asked)"
    if evidence.applied:
        return 0.0, "none (applied upstream, as the item says)"
    if evidence.offset is not None:
        return evidence.offset, f"{evidence.offset:g} (stated with the bands)"
    if scale > _LARGEST_STEP:
        return 0.0, "none (reflectance as it stands)"
    if evidence.baseline is not None:
        number = baseline_number(evidence.baseline)
        if number >= 4:
            return BASELINE_OFFSET, f"{BASELINE_OFFSET:g} (baseline {evidence.baseline})"
        return 0.0, f"none (baseline {evidence.baseline})"
    return 0.0, "none (nothing states a baseline)"


def baseline_number(text: str) -> float:
    """A processing baseline as a number: 05.10, 0510 and N0510 are 5.1.

    Raises:
        InputError: if the text is not a baseline.
    """
    match = re.fullmatch(r"N?(\d{2})\.?(\d{2})", text.strip())
    if match is None:
        raise InputError(f"processing baseline {text!r} is not of the form 05.10")
    return int(match[1]) + int(match[2]) / 100


def baseline_in_name(name: str) -> str | None:
    """The baseline in a product's name: S2A_MSIL2A_..._N0510_R094_... holds 05.10."""
    match = re.search(r"(?:^|[_./-])N(\d{2})(\d{2})_R\d{3}(?=[_./-]|$)", name)
    return f"{match[1]}.{match[2]}" if match else None


def level_in_name(name: str) -> str | None:
    """The product level in a name: L1C or L2A."""
    match = re.search(r"(?:^|[^A-Za-z0-9])(?:MSI)?(L1C|L2A)(?![A-Za-z0-9])", name, re.IGNORECASE)
    return match[1].upper() if match else None


def guess_scale(dtype: np.dtype[np.generic], high: float | None, where: str) -> float:
    """The scale of numbers that nothing states, said aloud.

    Args:
        dtype: the type of the numbers.
        high: a high value among them, the 99th percentile of a sample; integers need none.
        where: the series, for the message.

    Raises:
        InputError: if the numbers have 8 bits, which may mean anything.
    """
    if dtype.itemsize == 1:
        raise InputError(
            f"{where}: its {dtype} numbers state no scale, and 8 bits hold pictures more often than "
            "reflectance; say what one unit is, such as --scale 0.004"
        )
    integers = np.issubdtype(dtype, np.integer)
    seen = "" if high is None else f" (99 % below {high:.3g})"
    if not integers and high is not None and _BRIGHTEST < high <= _PER_CENT:
        reading, scale = "per cent, reflectance = number * 0.01", 0.01
    elif integers or (high is not None and high > _PER_CENT):
        reading, scale = "digital numbers, reflectance = number * 0.0001", DIGITAL_NUMBER
    else:
        reading, scale = "reflectance as they stand", 1.0
    log.warning(
        "%s: no scale is stated; its %s numbers%s are read as %s (say otherwise with --scale)",
        where,
        dtype,
        seen,
        reading,
    )
    return scale
