"""What PAGE and ALTO files share: safe parsing, text that XML can hold, names, points."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from lxml import etree

from geomix.errors import FormatError, MissingFileError
from htr.page import Points, as_points, clip_points, parse_points

log = logging.getLogger(__name__)

Element = etree._Element

# XML 1.0 cannot hold these, not even escaped; a lone surrogate cannot be encoded at all.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_BYTES = 200_000_000


def parse_xml(path: str | Path) -> tuple[Element, bytes]:
    """The root and the bytes of an XML file; no entity is expanded and nothing is fetched.

    Raises:
        MissingFileError: if there is no such file.
        FormatError: if it is not well-formed XML.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"{file}: no such PAGE or ALTO file")
    if file.stat().st_size > _MAX_BYTES:
        raise FormatError(
            f"{file}: larger than {_MAX_BYTES // 1_000_000} MB, so no PAGE or ALTO file of a page"
        )
    data = file.read_bytes()
    return parse_bytes(data, str(file)), data


def parse_bytes(data: bytes, name: str) -> Element:
    """The root of an XML document; `name` is what a message calls it."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_blank_text=False)
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise FormatError(f"{name}: not well-formed XML ({error.msg}); export the file again") from error


def xml_format(root: Element) -> Literal["page", "alto"] | None:
    """Which of the two formats a document is; None for any other."""
    name = local_name(root)
    return "page" if name == "PcGts" else "alto" if name.lower() == "alto" else None


def local_name(element: Element) -> str:
    """The tag without its namespace; empty for comments and processing instructions."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def children(element: Element, *names: str) -> list[Element]:
    """The children of these names, whatever their namespace."""
    return [child for child in element if local_name(child) in names]


def child(element: Element, name: str) -> Element | None:
    """The first child of a name, whatever its namespace."""
    return next(iter(children(element, name)), None)


def descendants(element: Element, *names: str) -> Iterator[Element]:
    """All elements of these names below one, in document order."""
    return (found for found in element.iter() if local_name(found) in names)


def new_child(
    parent: Element,
    name: str,
    attributes: Mapping[str, str] | None = None,
    *,
    after: tuple[str, ...] | None = None,
) -> Element:
    """Add a child in the parent's namespace; `after` names the siblings that must precede it.

    Without `after` it goes to the end.
    """
    namespace = etree.QName(parent).namespace
    element = etree.Element(f"{{{namespace}}}{name}" if namespace else name, dict(attributes or {}))
    if after is None:
        parent.append(element)
    else:
        before = [index for index, sibling in enumerate(parent) if local_name(sibling) in after]
        parent.insert(before[-1] + 1 if before else 0, element)
    return element


def clean_text(text: str) -> str:
    """Text without the characters that XML cannot hold, NFC, on one line."""
    return unicodedata.normalize("NFC", _ILLEGAL.sub("", text).replace("\n", " ").replace("\r", " "))


def read_text(text: str | None) -> str:
    """Text of a file as this package keeps it: NFC, white space collapsed to single spaces."""
    return " ".join(unicodedata.normalize("NFC", text or "").split())


def number(value: str | None) -> float | None:
    """The finite number that an attribute holds; None where it holds none."""
    try:
        found = float(value) if value else None
    except ValueError:
        return None
    return found if found is not None and np.isfinite(found) else None


def points_of(value: str | None) -> Points:
    """The points of an attribute that may be absent."""
    return parse_points(value) if value else as_points(None)


def whole_points(points: Points, width: int, height: int) -> list[tuple[int, int]]:
    """Points on the page as whole pixels, without repetitions, as both schemas ask for."""
    whole = [(int(x), int(y)) for x, y in np.rint(clip_points(points, width, height))]
    kept = [point for index, point in enumerate(whole) if index == 0 or point != whole[index - 1]]
    # The schema of PAGE wants two points at least, even for a line that is only one.
    return kept * 2 if len(kept) == 1 else kept


def outside(points: Points, width: int, height: int) -> bool:
    """Whether a point lies beyond the page."""
    return bool(len(points)) and bool((points < 0).any() or (points > [width, height]).any())


class Names:
    """Unique XML names: the one that is wanted where it is free and legal, else one like it."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str | None, otherwise: str) -> str:
        """A name for an element that asks for `wanted`, or has no name and would be called `otherwise`."""
        name = re.sub(r"[^\w.-]", "_", wanted) if wanted else otherwise
        if not re.match(r"[^\W\d]", name):
            name = f"_{name}"
        unique, count = name, 1
        while unique in self._taken:
            count += 1
            unique = f"{name}_{count}"
        self._taken.add(unique)
        return unique


def serialise(root: Element) -> bytes:
    """A document as UTF-8 with an XML declaration."""
    data: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return data
