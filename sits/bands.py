"""What a band is called: the bands of Sentinel-2, and their counterparts on other sensors."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    # Other languages, without what is not a letter from a to z.
    **dict.fromkeys(("blau", "bleu", "azul", "blu", "blauw"), "B2"),
    **dict.fromkeys(("gruen", "grn", "vert", "verde", "groen"), "B3"),
    **dict.fromkeys(("rot", "rouge", "rojo", "rosso", "vermelho", "rood"), "B4"),
    **dict.fromkeys(("nahesinfrarot", "infrarot", "pir", "procheinfrarouge", "infrarrojo"), "B8"),
}

_OLI = {"1": "B1", "2": "B2", "3": "B3", "4": "B4", "5": "B8A", "6": "B11", "7": "B12", "9": "B10"}
_TM = {"1": "B2", "2": "B3", "3": "B4", "4": "B8A", "5": "B11", "7": "B12"}
NUMBERS = {"oli": _OLI, "tm": _TM, "etm": _TM}
"""Sensors whose numbers mean other bands than those of Sentinel-2: number -> its counterpart there.

Thermal and panchromatic bands have none. Source: USGS, Landsat Collection 2; NASA, HLS v2 (L30 is OLI).
"""

RADAR = ("VV", "VH", "HH", "HV")
"""Bands of Sentinel-1 by polarisation."""

LAYERS = (
    "SCL",
    "AOT",
    "WVP",
    "TCI",
    "QA",
    "FMASK",
    "CLM",
    "CLP",
    "CLDPRB",
    "DATAMASK",
    "SAA",
    "SZA",
    "VAA",
    "VZA",
)
"""Layers of products that are no bands, by how their names begin; nobody misses them."""
_NUMBER = re.compile(r"(?<![a-z0-9])b(?:and)?[ _-]?0?(1[0-2]|8a|[1-9])(?![a-z0-9])", re.IGNORECASE)
# Half the distance between the two closest bands, B8 and B8A, is 16 nm; other sensors differ by up to 15.
_NEAR = 15.0
# A name that lies further than this from the wavelength beside it is the number of another sensor.
_ELSEWHERE = 60.0
_POSITION = re.compile(r"band[ _]?0*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class BandLabel:
    """All that a file says about one of its bands; any part may be missing."""

    text: str = ""
    """Its name, description or file name."""
    common_name: str = ""
    wavelength: float | None = None
    """Central wavelength in nanometres or, below 20, in micrometres."""
    sensor: str = ""
    """A key of `NUMBERS`; anything else numbers its bands as Sentinel-2 does."""


def canonical(text: str, sensor: str = "") -> str | None:
    """The Sentinel-2 name (B2, B8A, B11) of a band by its own or its common name; None where it has none.

    `B02`, `b2`, `band 2`, `S2-L2A-B02`, `T31TCJ_20200101T105401_B02_10m`, `blue` and `blau` are all B2. The
    numbers of a sensor in `NUMBERS`, as in `OLI_B5`, become their counterparts; VV and VH stay as they are.
    """
    word = re.sub(r"[^a-z0-9]", "", text.lower())
    if word in _COMMON:
        return _COMMON[word]
    if word.upper() in RADAR:
        return word.upper()
    # The last one counts: a file's name may begin with other codes.
    numbers = _NUMBER.findall(re.sub(r"[._]", " ", text))
    if not numbers:
        return None
    sensor = next((known for known in NUMBERS if text.lower().startswith(f"{known}_")), sensor)
    found = numbers[-1].upper()
    return NUMBERS[sensor].get(found) if sensor in NUMBERS else f"B{found}"


def identify(label: BandLabel) -> str | None:
    """The Sentinel-2 name of a band, by its name, else its common name, else its wavelength.

    A name is not believed where common name or wavelength say that it is the number of another sensor.
    """
    named = canonical(label.text, label.sensor)
    common = _COMMON.get(label.common_name.lower())
    measured = _nanometres(label.wavelength) or WAVELENGTHS.get(common or "")
    if named in WAVELENGTHS and measured and abs(WAVELENGTHS[named] - measured) > _ELSEWHERE:
        named = None
    return named or common or _by_wavelength(label.wavelength)


def informative(labels: Sequence[BandLabel]) -> tuple[BandLabel, ...]:
    """The labels without texts such as `Band 1`, `Band 2`, ... that only count the bands of the file."""
    matches = [_POSITION.fullmatch(label.text.strip()) for label in labels]
    if all(match and int(match[1]) == place for place, match in enumerate(matches, 1)):
        return tuple(replace(label, text="") for label in labels)
    return tuple(labels)


def call_bands(labels: Sequence[BandLabel], known: Sequence[str] = ()) -> tuple[str | None, ...]:
    """The name of each band by what the file says, or None; a text in `known` is a name, in whatever case."""
    asked = {name.lower(): name for name in known}
    return tuple(asked.get(label.text.strip().lower()) or identify(label) for label in informative(labels))


def name_bands(
    labels: Sequence[BandLabel], given: Sequence[str] | None, where: str, known: Sequence[str] = ()
) -> tuple[str | None, ...]:
    """Name each band of a file: as the user says, or as the file says.

    Args:
        labels: what the file says about its bands, in its order.
        given: names by position from the user; None to go by the labels.
        where: the file, for the message.
        known: further names; a band that is called so, in whatever case, is that band.

    Returns:
        One name per band; None for a band that is not known, such as a cloud mask.

    Raises:
        InputError: if the number of given names differs, no band can be named, or a name comes twice.
    """
    if given is not None:
        if len(given) != len(labels):
            raise InputError(f"{where}: has {len(labels)} bands, but {len(given)} names are given (--bands)")
        names: tuple[str | None, ...] = tuple(canonical(name) or name for name in given)
    else:
        names = call_bands(labels, known)
        if not any(names):
            called = ", ".join(label.text for label in informative(labels) if label.text)
            raise InputError(
                f"{where}: its {len(labels)} bands have no name, common name or wavelength that is known"
                f"{f' ({called})' if called else ''}; say what they are, in order: --bands B2,B3,B4,..."
            )
    there = [name for name in names if name is not None]
    for name in there:
        if there.count(name) > 1:
            raise InputError(
                f"{where}: band {name} comes {there.count(name)} times; say which is which with --bands, or "
                "write each date to a file of its own if several lie in this one"
            )
    return names


def strangers(labels: Sequence[BandLabel], names: Sequence[str | None]) -> list[str]:
    """What the bands are called that no one knows, but for the layers that products bring along."""
    return [
        label.text
        for label, name in zip(informative(labels), names, strict=True)
        if name is None and label.text and not _is_layer(label.text)
    ]


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


def _is_layer(text: str) -> bool:
    words = re.split(r"[^A-Z0-9]+", text.upper())
    return any(word.startswith(LAYERS) for word in words)


def _nanometres(wavelength: float | None) -> float | None:
    if wavelength is None:
        return None
    return wavelength * 1000 if wavelength < 20 else wavelength


def _by_wavelength(wavelength: float | None) -> str | None:
    nanometres = _nanometres(wavelength)
    if nanometres is None:
        return None
    nearest = min(BANDS, key=lambda band: abs(WAVELENGTHS[band] - nanometres))
    # The bands of the shortwave infrared are 90 to 180 nm wide, so sensors differ more there.
    near = _NEAR if nanometres < 1000 else 30.0
    return nearest if abs(WAVELENGTHS[nearest] - nanometres) <= near else None
