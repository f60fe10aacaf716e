"""What a band is called: Sentinel-2 bands by name, common name or wavelength."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from geomix.errors import InputError

# Central wavelengths in nanometres, Sentinel-2A (ESA, MSI user guide).
WAVELENGTHS = {
    "B1": 443.0,
    "B2": 492.0,
    "B3": 560.0,
    "B4": 665.0,
    "B5": 704.0,
    "B6": 740.0,
    "B7": 783.0,
    "B8": 833.0,
    "B8A": 865.0,
    "B9": 945.0,
    "B10": 1375.0,
    "B11": 1610.0,
    "B12": 2190.0,
}
BANDS = tuple(WAVELENGTHS)
"""All bands of Sentinel-2 by rising wavelength; level 2A lacks B10."""

# The STAC common names, old and new. `rededge` alone names three bands and is not one of them.
_COMMON = {
    "coastal": "B1",
    "blue": "B2",
    "green": "B3",
    "red": "B4",
    "rededge1": "B5",
    "rededge071": "B5",
    "rededge2": "B6",
    "rededge075": "B6",
    "rededge3": "B7",
    "rededge078": "B7",
    "nir": "B8",
    "nir08": "B8A",
    "narrownir": "B8A",
    "nir09": "B9",
    "watervapor": "B9",
    "cirrus": "B10",
    "swir16": "B11",
    "swir1": "B11",
    "swir22": "B12",
    "swir2": "B12",
}
_NUMBER = re.compile(r"(?<![a-z0-9])b(?:and)?[ _-]?0?(1[0-2]|8a|[1-9])(?![a-z0-9])", re.IGNORECASE)
# Half the distance between the two closest bands, B8 and B8A, is 16 nm; other sensors differ by up to 15.
_NEAR = 15.0


@dataclass(frozen=True)
class BandLabel:
    """All that a file says about one of its bands; any part may be missing."""

    text: str = ""
    """Its name, description or file name."""
    common_name: str = ""
    wavelength: float | None = None
    """Central wavelength in nanometres or, below 20, in micrometres."""


def canonical(text: str) -> str | None:
    """The Sentinel-2 name (B2, B8A, B11) of a band by its own or its common name; None where it has none.

    `B02`, `b2`, `band 2`, `S2-L2A-B02`, `T31TCJ_20200101T105401_B02_10m` and `blue` are all B2.
    """
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    if word in _COMMON:
        return _COMMON[word]
    # The last one counts: a file's name may begin with other codes.
    numbers = _NUMBER.findall(re.sub(r"[._]", " ", text))
    return f"B{numbers[-1].upper()}" if numbers else None


def identify(label: BandLabel) -> str | None:
    """The Sentinel-2 name of a band, by its name, else its common name, else its wavelength."""
    return canonical(label.text) or _COMMON.get(label.common_name.lower()) or _by_wavelength(label.wavelength)


def name_bands(
    labels: Sequence[BandLabel], given: Sequence[str] | None, where: str
) -> tuple[str | None, ...]:
    """Name each band of a file: as the user says, or as the file says.

    Args:
        labels: what the file says about its bands, in its order.
        given: names by position from the user; None to go by the labels.
        where: the file, for the message.

    Returns:
        One name a band; None for a band that is not of Sentinel-2, such as a cloud mask.

    Raises:
        InputError: if the number of given names differs, no band can be named, or a name comes twice.
    """
    if given is not None:
        if len(given) != len(labels):
            raise InputError(f"{where}: has {len(labels)} bands, but {len(given)} names are given (--bands)")
        names: tuple[str | None, ...] = tuple(canonical(name) or name for name in given)
    else:
        names = tuple(identify(label) for label in labels)
        if not any(names):
            raise InputError(
                f"{where}: its {len(labels)} bands have no name, common name or wavelength; "
                "say what they are, in order: --bands B2,B3,B4,..."
            )
    known = [name for name in names if name is not None]
    for name in known:
        if known.count(name) > 1:
            raise InputError(
                f"{where}: band {name} comes {known.count(name)} times; say which is which with --bands, or "
                "write each date to a file of its own if several lie in this one"
            )
    return names


def require_bands(wanted: Iterable[str], there: Iterable[str], where: str) -> None:
    """Stop where a band that the model needs is missing.

    Raises:
        InputError: naming the missing bands and those that are there.
    """
    there = list(there)
    missing = [band for band in wanted if band not in there]
    if missing:
        raise InputError(
            f"{where}: lacks band {', '.join(missing)}, which the model needs; "
            f"found {', '.join(there) or 'none'}; take a model without it (`geomix info` lists the bundled "
            "ones), or name the bands of the input with --bands"
        )


def _by_wavelength(wavelength: float | None) -> str | None:
    if wavelength is None:
        return None
    nanometres = wavelength * 1000 if wavelength < 20 else wavelength
    nearest = min(BANDS, key=lambda band: abs(WAVELENGTHS[band] - nanometres))
    # The bands of the shortwave infrared are 90 to 180 nm wide, so sensors differ more there.
    near = _NEAR if nanometres < 1000 else 30.0
    return nearest if abs(WAVELENGTHS[nearest] - nanometres) <= near else None
