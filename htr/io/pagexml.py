"""PAGE XML in and out: any version is read, 2019 is written, and a given file keeps what is not ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import geomix
from geomix.files import new_file
from htr.io.derive import complete
from htr.io.xmlfile import (
    Element,
    Names,
    child,
    children,
    clean_text,
    descendants,
    local_name,
    new_child,
    number,
    outside,
    parse_bytes,
    points_of,
    read_text,
    serialise,
    whole_points,
)
from htr.page import Direction, Line, Origin, Page, Points, Region, bounds_of, box_polygon

log = logging.getLogger(__name__)

NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
_DIRECTIONS: dict[str, Direction] = {"left-to-right": "ltr", "right-to-left": "rtl"}
_WORDS: dict[str | None, str] = {"ltr": "left-to-right", "rtl": "right-to-left"}
_BEFORE_TEXT = ("AlternativeImage", "Coords", "Baseline", "Word", "TextEquiv")


def page_from_root(root: Element, origin: Origin, size: tuple[int, int] | None) -> Page:
    """The page of a parsed PAGE document."""
    name = origin.path
    element = child(root, "Page")
    if element is None:
        log.warning("%s: holds no Page element, so no lines", name)
        return Page(width=(size or (0, 0))[0], height=(size or (0, 0))[1], origin=origin)
    width, height, size_known = _size(element, size, name)
    regions, lines = [], []
    line_names = {line: key for key, line in _named_lines(element)}
    for key, region in _ordered_regions(element):
        regions.append(_region(region, key))
        lines += [_line(line, line_names[line], key) for line in _ordered_lines(region)]
    far = [
        line.id
        for line in lines
        if outside(line.polygon, width, height) or outside(line.baseline, width, height)
    ]
    if far:
        log.warning("%s: %d lines reach beyond the page (%s ...); cut at its edge", name, len(far), far[0])
    page = Page(
        width=width,
        height=height,
        size_known=size_known,
        lines=tuple(lines),
        regions=tuple(regions),
        source=element.get("imageFilename", ""),
        direction=_DIRECTIONS.get(element.get("readingDirection", "")),
        origin=origin,
    )
    return complete(page, name)


def page_xml(page: Page) -> bytes:
    """The page as PAGE XML: the file that it came from with new texts, or a new document."""
    if page.origin is not None and page.origin.format == "page":
        root = parse_bytes(page.origin.xml, page.origin.path)
        _update(root, page)
    else:
        root = _new_document(page)
    return serialise(root)


def write_page(page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write the page as PAGE XML.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    with new_file(path, overwrite) as temporary:
        temporary.write_bytes(page_xml(page))


def _size(element: Element, size: tuple[int, int] | None, name: str) -> tuple[int, int, bool]:
    """Width and height, and whether they are those of the image."""
    width, height = (int(number(element.get(key)) or 0) for key in ("imageWidth", "imageHeight"))
    if width > 0 and height > 0:
        return width, height, True
    if size is not None:
        return *size, True
    points = [points_of(coords.get("points")) for coords in descendants(element, "Coords", "Baseline")]
    far = [part.max(axis=0) for part in points if len(part)]
    log.warning("%s: gives no size of the image; the extent of its lines serves", name)
    width, height = (int(max((point[axis] for point in far), default=0)) + 1 for axis in (0, 1))
    return width, height, False


def _named_regions(page: Element) -> list[tuple[str, Element]]:
    names = Names()
    return [(names.take(region.get("id"), "region"), region) for region in descendants(page, "TextRegion")]


def _named_lines(page: Element) -> list[tuple[str, Element]]:
    names = Names()
    return [(names.take(line.get("id"), "line"), line) for line in descendants(page, "TextLine")]


def _ordered_regions(page: Element) -> list[tuple[str, Element]]:
    """Regions by ReadingOrder, else by the index in their `custom` attribute, else as they stand."""
    regions = _named_regions(page)
    order = child(page, "ReadingOrder")
    if order is not None:
        references = list(dict.fromkeys(_references(order)))
        position = {reference: index for index, reference in enumerate(references)}
        return sorted(regions, key=lambda item: position.get(item[1].get("id", ""), len(position)))
    return sorted(regions, key=lambda item: _custom_index(item[1]))


def _references(group: Element) -> Iterator[str]:
    """The region names of a reading order, groups within groups included."""
    items = [item for item in group if local_name(item) != "UserDefined" and isinstance(item.tag, str)]
    for item in sorted(items, key=lambda item: number(item.get("index")) or 0.0):
        if item.get("regionRef"):
            yield item.get("regionRef", "")
        yield from _references(item)


def _ordered_lines(region: Element) -> list[Element]:
    return sorted(children(region, "TextLine"), key=_custom_index)


def _custom_index(element: Element) -> int:
    """The place that Transkribus writes as `readingOrder {index:3;}`; 0 for all where there is none."""
    found = re.search(r"readingOrder\s*\{[^}]*index\s*:\s*(\d+)", element.get("custom", ""))
    return int(found.group(1)) if found else 0


def _structure(element: Element) -> str | None:
    found = re.search(r"structure\s*\{[^}]*type\s*:\s*([^;}]+)", element.get("custom", ""))
    return found.group(1).strip() if found else element.get("type")


def _region(element: Element, key: str) -> Region:
    coords = child(element, "Coords")
    return Region(
        id=key,
        polygon=_coords(coords),
        kind=_structure(element),
        direction=_DIRECTIONS.get(element.get("readingDirection", "")),
    )


def _coords(element: Element | None) -> Points:
    """Points of Coords or Baseline; PAGE 2010 writes them as Point elements."""
    if element is None:
        return points_of(None)
    inner = " ".join(f"{point.get('x')},{point.get('y')}" for point in children(element, "Point"))
    return points_of(element.get("points") or inner)


def _line(element: Element, key: str, region: str) -> Line:
    text, confidence = _text(element)
    return Line(
        id=key,
        baseline=_coords(child(element, "Baseline")),
        polygon=_coords(child(element, "Coords")),
        text=text,
        confidence=confidence,
        region=region,
        direction=_DIRECTIONS.get(element.get("readingDirection", "")),
        kind=_structure(element),
    )


def _text(element: Element) -> tuple[str | None, float | None]:
    """The first text of an element, or that of its words."""
    equivalents = sorted(children(element, "TextEquiv"), key=lambda item: number(item.get("index")) or 0.0)
    for equivalent in equivalents:
        content = child(equivalent, "Unicode")
        content = child(equivalent, "PlainText") if content is None else content
        if content is not None:
            return read_text("".join(str(part) for part in content.itertext())), number(
                equivalent.get("conf")
            )
    words = [_text(word)[0] for word in children(element, "Word")]
    return (" ".join(word for word in words if word), None) if any(words) else (None, None)


def _update(root: Element, page: Page) -> None:
    """Put texts and missing places into the document; everything else stays as it is."""
    element = child(root, "Page")
    if element is None:
        return
    lines = {line.id: line for line in page.lines}
    for key, found in _named_lines(element):
        found.set("id", key)
        if key in lines:
            _update_line(found, lines[key], page)
    regions = {region.id: region for region in page.regions}
    for key, found in _named_regions(element):
        found.set("id", key)
        if key in regions:
            _set_points(found, "Coords", regions[key].polygon, page, after=("AlternativeImage",))
        equivalent = child(found, "TextEquiv")
        if equivalent is not None:
            # A copy of the texts of its lines; left alone it would contradict them.
            texts = [line.text or "" for line in page.lines if line.region == key]
            _set_unicode(equivalent, "\n".join(clean_text(text) for text in texts))
    metadata = child(root, "Metadata")
    changed = child(metadata, "LastChange") if metadata is not None else None
    if changed is not None:
        changed.text = _now()


def _update_line(element: Element, line: Line, page: Page) -> None:
    _set_points(element, "Coords", line.polygon, page, after=("AlternativeImage",))
    _set_points(element, "Baseline", line.baseline, page, after=("AlternativeImage", "Coords"))
    if line.text is None or line.text == _text(element)[0]:
        return
    for word in children(element, "Word"):
        element.remove(word)  # They spell the text that is replaced.
    others = children(element, "TextEquiv")
    equivalent = others[0] if others else new_child(element, "TextEquiv", after=_BEFORE_TEXT)
    for other in others[1:]:
        element.remove(other)
    _set_text(equivalent, line)


def _set_points(element: Element, name: str, points: Points, page: Page, after: tuple[str, ...]) -> None:
    """Write points where the file has none or has some that the schema forbids."""
    existing = child(element, name)
    given = _coords(existing)
    legal = (
        existing is not None and re.fullmatch(r"(\d+,\d+ )+\d+,\d+", existing.get("points", "")) is not None
    )
    if legal and not outside(given, page.width, page.height):
        return
    whole = whole_points(points if len(points) else given, page.width, page.height)
    if not whole:
        if name == "Baseline":
            if existing is not None:
                element.remove(existing)
            return
        whole = [(0, 0), (0, 0)]  # Coords must be there; a box without area says that nobody knows.
    target = existing if existing is not None else new_child(element, name, after=after)
    for point in children(target, "Point"):
        target.remove(point)
    target.set("points", " ".join(f"{x},{y}" for x, y in whole))


def _set_text(equivalent: Element, line: Line) -> None:
    if line.confidence is not None:
        equivalent.set("conf", f"{min(max(line.confidence, 0.0), 1.0):.4f}")
    elif "conf" in equivalent.attrib:
        del equivalent.attrib["conf"]
    _set_unicode(equivalent, clean_text(line.text or ""))


def _set_unicode(equivalent: Element, text: str) -> None:
    content = child(equivalent, "Unicode")
    if content is None:
        content = new_child(equivalent, "Unicode", after=("PlainText",))
    for plain in children(equivalent, "PlainText"):
        equivalent.remove(plain)
    content.text = text


def _new_document(page: Page) -> Element:
    root = parse_bytes(f'<PcGts xmlns="{NAMESPACE}"/>'.encode(), "new document")
    metadata = new_child(root, "Metadata")
    new_child(metadata, "Creator").text = f"geomix {geomix.__version__}"
    new_child(metadata, "Created").text = _now()
    new_child(metadata, "LastChange").text = _now()
    size = {"imageWidth": str(page.width), "imageHeight": str(page.height)}
    element = new_child(root, "Page", {"imageFilename": clean_text(page.source), **size})
    if page.orientation:
        element.set("orientation", str(page.orientation))
    if page.direction:
        element.set("readingDirection", _WORDS[page.direction])
    groups = _groups(page)
    names = Names()
    keys = [names.take(region.id, "region") for region, _ in groups]
    if keys:
        order = new_child(
            new_child(element, "ReadingOrder"), "OrderedGroup", {"id": names.take(None, "reading_order")}
        )
        for index, key in enumerate(keys):
            new_child(order, "RegionRefIndexed", {"index": str(index), "regionRef": key})
    for key, (region, lines) in zip(keys, groups, strict=True):
        _add_region(element, key, region, lines, page, names)
    return root


def _groups(page: Page) -> list[tuple[Region, list[Line]]]:
    """The regions in reading order with their lines; lines without a region share one."""
    known = {region.id: region for region in page.regions}
    groups: dict[str, list[Line]] = {}
    for line in page.lines:
        groups.setdefault(line.region if line.region in known else "", []).append(line)
    groups.update({key: [] for key in known if key not in groups})
    return [(known.get(key, Region(id="region_1")), lines) for key, lines in groups.items()]


def _add_region(
    parent: Element, key: str, region: Region, lines: list[Line], page: Page, names: Names
) -> None:
    element = new_child(parent, "TextRegion", {"id": key})
    if region.direction:
        element.set("readingDirection", _WORDS[region.direction])
    if region.kind == "print":
        element.set("production", "printed")
    if region.kind:
        element.set("custom", f"structure {{type:{clean_text(region.kind)};}}")
    bounds = bounds_of(lines)
    outline = region.polygon if len(region.polygon) else box_polygon(*(bounds or (0, 0, 0, 0)))
    _set_points(element, "Coords", outline, page, after=("AlternativeImage",))
    for line in lines:
        found = new_child(element, "TextLine", {"id": names.take(line.id, "line")})
        if line.direction:
            found.set("readingDirection", _WORDS[line.direction])
        if line.kind:
            found.set("custom", f"structure {{type:{clean_text(line.kind)};}}")
        _set_points(found, "Coords", line.polygon, page, after=("AlternativeImage",))
        _set_points(found, "Baseline", line.baseline, page, after=("AlternativeImage", "Coords"))
        if line.text is not None:
            _set_text(new_child(found, "TextEquiv", after=_BEFORE_TEXT), line)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
