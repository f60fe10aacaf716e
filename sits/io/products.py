"""What a product's name says about the numbers in its files: sensor, scale, offset and fill."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geomix.errors import FormatError


@dataclass(frozen=True)
class Product:
    """How the files of a product are to be read where they do not say it themselves."""

    sensor: str = ""
    """A key of `sits.bands.NUMBERS`, or nothing for Sentinel-2."""
    scale: float | None = None
    """Reflectance of one unit."""
    offset: float | None = None
    """In digital numbers."""
    nodata: float | None = None


_LANDSAT = re.compile(r"(?:^|[._-])L([COTE])0([4-9])[_A-Z0-9]", re.IGNORECASE)
_COLLECTION_2 = re.compile(r"(?:^|[._-])L[COTE]0[4-9]_L2S[PR]_.*_02_(?:T1|T2|RT)_SR_B(\d)$", re.IGNORECASE)
_HLS = re.compile(r"(?:^|[._-])HLS[._](L30|S30)[._]", re.IGNORECASE)
# Level 2 of Collection 2 (USGS): reflectance = number * 0.0000275 - 0.2, 0 for nothing.
_SCALE, _SHIFT = 2.75e-5, -0.2


def product_of(path: Path) -> Product:
    """What a file's name, and the MTL file of a Landsat scene beside it, say; nothing for other products.

    Raises:
        FormatError: if there is an MTL file and it is not one.
    """
    name = path.stem
    hls = _HLS.search(name)
    if hls:
        return Product("oli" if hls[1].upper() == "L30" else "", scale=1e-4, nodata=-9999.0)
    landsat = _LANDSAT.search(name)
    if landsat is None:
        return Product()
    sensor = "oli" if landsat[2] in "89" else "etm" if landsat[1].upper() == "E" else "tm"
    surface = _COLLECTION_2.search(name)
    if surface is None:
        return Product(sensor)
    scale, shift = _stated(path.with_name(f"{name[: surface.start(1) - 5]}_MTL.txt"), surface[1])
    return Product(sensor, scale, shift / scale, nodata=0.0)


def _stated(mtl: Path, band: str) -> tuple[float, float]:
    """Scale and offset of a band of surface reflectance by the MTL file, or else as all of them have it."""
    if not mtl.is_file():
        return _SCALE, _SHIFT
    group = read_mtl(mtl).get("LEVEL2_SURFACE_REFLECTANCE_PARAMETERS", {})
    try:
        return (
            float(group.get(f"REFLECTANCE_MULT_BAND_{band}", _SCALE)),
            float(group.get(f"REFLECTANCE_ADD_BAND_{band}", _SHIFT)),
        )
    except ValueError as error:
        raise FormatError(f"{mtl}: band {band} has no number for its scale ({error})") from error


def read_mtl(path: Path) -> dict[str, dict[str, str]]:
    """The groups of a Landsat MTL file, name -> key -> value; a key may stand in several groups.

    Raises:
        FormatError: if the file is not text.
    """
    groups: dict[str, dict[str, str]] = {}
    inner: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is no MTL file ({error})") from error
    for line in lines:
        key, _, value = (part.strip() for part in line.partition("="))
        if key == "GROUP":
            inner.append(value)
        elif key == "END_GROUP" and inner:
            inner.pop()
        elif value and inner:
            groups.setdefault(inner[-1], {})[key] = value.strip('"')
    return groups


def sensor_of(properties: Mapping[str, object]) -> str:
    """The sensor of a STAC item by its platform; nothing for Sentinel-2 and unknown ones."""
    platform = str(properties.get("platform", "")).lower().replace("_", "-")
    match = re.fullmatch(r"landsat-?([4-9])", platform)
    if match is None:
        return ""
    return {"7": "etm", "8": "oli", "9": "oli"}.get(match[1], "tm")
