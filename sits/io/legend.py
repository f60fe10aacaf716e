"""The classes of a map: codes, names and colours, in every form that a format wants."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rasterio
from lxml import etree
from numpy.typing import NDArray
from rasterio.errors import RasterioError

from geomix.checkpoint import ClassInfo
from geomix.errors import FormatError, InputError

NODATA = 255
"""The code of pixels that no date shows. Never 0: that is a class."""

LEARNED_TAG = "GEOMIX_LEARNED_SHAPES"
"""Tag of a map: fingerprints of the labelled shapes that its model learned from."""


@dataclass(frozen=True)
class Legend:
    """The classes of a model, in the order of its scores."""

    classes: tuple[ClassInfo, ...]

    def __post_init__(self) -> None:
        codes = [entry.id for entry in self.classes]
        if not codes or len(set(codes)) < len(codes) or max(codes) >= NODATA:
            raise InputError(f"class ids must be different and lie within 0 and {NODATA - 1}, got {codes}")

    @classmethod
    def of(cls, classes: Sequence[ClassInfo] | None, name: str) -> "Legend":
        """The legend of a card.

        Raises:
            InputError: if the card lists no classes.
        """
        if not classes:
            raise InputError(f"{name}: its card lists no classes, so its scores cannot be named")
        return cls(tuple(classes))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The code of each score, [K]."""
        return np.array([entry.id for entry in self.classes], dtype=np.uint8)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each score."""
        return tuple(entry.name for entry in self.classes)

    @property
    def colormap(self) -> dict[int, tuple[int, int, int, int]]:
        """Red, green, blue and alpha of each code, and of nodata: transparent."""
        return {entry.id: (*entry.rgb, 255) for entry in self.classes} | {NODATA: (0, 0, 0, 0)}

    @property
    def by_code(self) -> tuple[ClassInfo, ...]:
        """The classes by rising code."""
        return tuple(sorted(self.classes, key=lambda entry: entry.id))

    def to_json(self) -> str:
        """Codes, names and colours as JSON, for a tag."""
        return json.dumps([entry.model_dump() for entry in self.by_code], ensure_ascii=False)


def read_legend(raster: Path) -> Legend:
    """The classes of a map: from its tags, else from its side file .aux.xml and its palette.

    Raises:
        FormatError: if it is no map of classes, or nothing names them.
    """
    try:
        with rasterio.open(raster) as dataset:
            tags, kind = dataset.tags(), dataset.dtypes[0]
            colors = dataset.colormap(1) if dataset.colorinterp[0].name == "palette" else {}
    except (RasterioError, OSError) as error:
        raise FormatError(f"{raster}: cannot be read as a map ({str(error).splitlines()[0]})") from error
    if kind != "uint8":
        raise FormatError(f"{raster}: is no class map, which would be uint8, but {kind}")
    if "GEOMIX_CLASSES" in tags:
        return Legend(tuple(ClassInfo(**entry) for entry in json.loads(tags["GEOMIX_CLASSES"])))
    side = raster.with_name(raster.name + ".aux.xml")
    names = _categories(side) if side.is_file() else []
    entries = [
        ClassInfo(id=code, name=name, color="#{:02x}{:02x}{:02x}".format(*colors.get(code, (0, 0, 0))[:3]))
        for code, name in enumerate(names)
        if name
    ]
    if not entries:
        raise FormatError(f"{raster}: neither its tags nor {side.name} name its classes")
    return Legend(tuple(entries))


def _categories(side: Path) -> list[str]:
    try:
        root = etree.parse(side).getroot()
    except etree.XMLSyntaxError as error:
        raise FormatError(f"{side}: is damaged ({error})") from error
    return [node.text or "" for node in root.findall(".//CategoryNames/Category")]
