"""One door for all the formats in which a page with its lines comes in or goes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from geomix.errors import FormatError, InputError
from htr.io.alto import alto_from_root, write_alto
from htr.io.pagexml import page_from_root, write_page
from htr.io.text import read_json, write_json, write_text
from htr.io.xmlfile import parse_xml, xml_format
from htr.page import Origin, Page

FORMATS: dict[str, Callable[[Page, str | Path, bool], None]] = {
    "txt": write_text,
    "page": write_page,
    "alto": write_alto,
    "json": write_json,
}
SUFFIX = {"txt": ".txt", "page": ".xml", "alto": ".xml", "json": ".json"}


def read_lines(path: str | Path, size: tuple[int, int] | None = None) -> Page:
    """Read a page with its lines from PAGE XML, ALTO or our JSON, whichever it is.

    Args:
        path: the file.
        size: width and height of the image, for files that give none.

    Raises:
        MissingFileError: if there is no such file.
        FormatError: if it is none of the three.
    """
    if Path(path).suffix.lower() == ".json":
        return read_json(path)
    root, data = parse_xml(path)
    kind = xml_format(root)
    if kind is None:
        raise FormatError(f"{path}: the root element is {root.tag}; give PAGE XML (PcGts) or ALTO (alto)")
    origin = Origin(kind, data, str(path))
    return page_from_root(root, origin, size) if kind == "page" else alto_from_root(root, origin, size)


def write(page: Page, path: str | Path, format: str, overwrite: bool = False) -> None:
    """Write a page in one of `FORMATS`.

    Raises:
        InputError: if there is no such format.
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    FORMATS[format](page, path, overwrite)
