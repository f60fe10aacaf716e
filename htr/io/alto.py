"""ALTO in and out: versions 2 to 4 are read, 4.3 is written, and a given file keeps what is not ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import geomix
from geomix.files import new_file
from htr.io.derive import complete
from htr.io.words import Word, words_of
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

NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_DIRECTIONS: dict[str, Direction] = {"ltr": "ltr", "rtl": "rtl"}


def alto_from_root(root: Element, origin: Origin, size: tuple[int, int] | None) -> Page:
    """The page of a parsed ALTO document."""
    name = origin.path
    pages = list(descendants(root, "Page"))
    if not pages:
        log.warning("%s: holds no Page element, so no lines", name)
        return Page(width=(size or (0, 0))[0], height=(size or (0, 0))[1], origin=origin)
    if len(pages) > 1:
        log.warning("%s: holds %d pages; only the first is read", name, len(pages))
    tags = {
        tag.get("ID", ""): tag.get("LABEL")
        for tag in descendants(root, "OtherTag", "LayoutTag", "StructureTag")
    }
    blocks = _named(pages[0], "TextBlock", "block")
    block_names: dict[Element | None, str] = {block: key for key, block in blocks}
    lines = [
        _line(line, key, block_names.get(line.getparent()), tags)
        for key, line in _named(pages[0], "TextLine", "line")
    ]
    order = _order(root, pages[0])
    page = Page(
        width=int(number(pages[0].get("WIDTH")) or 0),
        height=int(number(pages[0].get("HEIGHT")) or 0),
        lines=tuple(lines[index] for index in order),
        regions=tuple(_region(block, key, tags) for key, block in blocks),
        source=next((read_text(file.text) for file in descendants(root, "fileName")), ""),
        origin=origin,
    )
    return complete(_in_pixels(page, root, size, name), name)


def alto_xml(page: Page) -> bytes:
    """The page as ALTO: the file that it came from with new texts, or a new document."""
    if page.origin is not None and page.origin.format == "alto":
        root = parse_bytes(page.origin.xml, page.origin.path)
        _update(root, page)
    else:
        root = _new_document(page)
    return serialise(root)


def write_alto(page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write the page as ALTO 4.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    with new_file(path, overwrite) as temporary:
        temporary.write_bytes(alto_xml(page))


def _named(page: Element, tag: str, otherwise: str) -> list[tuple[str, Element]]:
    names = Names()
    return [(names.take(found.get("ID"), otherwise), found) for found in descendants(page, tag)]


def _order(root: Element, page: Element) -> list[int]:
    """The lines by ReadingOrder, which may name blocks, lines or words; the rest follows as it stands."""
    lines = list(descendants(page, "TextLine"))
    position = {line: index for index, line in enumerate(lines)}
    by_name = {found.get("ID", ""): found for found in page.iter() if isinstance(found.tag, str)}
    order: dict[int, None] = {}
    reading = child(root, "ReadingOrder")
    for reference in descendants(reading, "ElementRef") if reading is not None else ():
        target = by_name.get(reference.get("REF", ""))
        if target is not None:
            order.update({position[line]: None for line in _lines_at(target)})
    order.update(dict.fromkeys(range(len(lines))))
    return list(order)


def _lines_at(element: Element) -> Iterator[Element]:
    """The line that an element belongs to, or the lines that it holds."""
    if local_name(element) in {"String", "Glyph", "SP", "HYP"}:
        yield from (found for found in element.iterancestors() if local_name(found) == "TextLine")
    else:
        yield from descendants(element, "TextLine")


def _in_pixels(page: Page, root: Element, size: tuple[int, int] | None, name: str) -> Page:
    unit = next((read_text(found.text) for found in descendants(root, "MeasurementUnit")), "pixel")
    has_size = page.width > 0 and page.height > 0
    if unit not in {"pixel", ""} and has_size and size is not None:
        return page.scaled(size[0] / page.width, size[1] / page.height, *size)
    if unit not in {"pixel", ""}:
        log.warning("%s: measures in %s, and the size of the image is not known; taken as pixels", name, unit)
    if not has_size:
        bounds = bounds_of(page.lines)
        page = replace(
            page, width=int(bounds[2]) + 1 if bounds else 1, height=int(bounds[3]) + 1 if bounds else 1
        )
        page = replace(page, size_known=size is not None)
        if size is None:
            log.warning("%s: gives no size of the image; the extent of its lines serves", name)
        else:
            page = replace(page, width=size[0], height=size[1])
    far = [line.id for line in page.lines if outside(line.polygon, page.width, page.height)]
    if far:
        log.warning("%s: %d lines reach beyond the page (%s ...); cut at its edge", name, len(far), far[0])
    return page


def _box(element: Element) -> Points:
    values = [number(element.get(key)) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
    if any(value is None for value in values):
        return points_of(None)
    x, y, width, height = (value or 0.0 for value in values)
    return box_polygon(x, y, x + width, y + height)


def _outline(element: Element) -> Points:
    shape = child(element, "Shape")
    polygon = child(shape, "Polygon") if shape is not None else None
    points = points_of(polygon.get("POINTS") if polygon is not None else None)
    return points if len(points) >= 3 else _box(element)


def _label(element: Element, tags: dict[str, str | None]) -> str | None:
    return next((tags[tag] for tag in element.get("TAGREFS", "").split() if tags.get(tag)), None)


def _region(element: Element, key: str, tags: dict[str, str | None]) -> Region:
    return Region(
        id=key,
        polygon=_outline(element),
        kind=_label(element, tags),
        direction=_DIRECTIONS.get(element.get("BASEDIRECTION", "")),
    )


def _line(element: Element, key: str, region: str | None, tags: dict[str, str | None]) -> Line:
    polygon = _outline(element)
    baseline = points_of(element.get("BASELINE"))
    height = number(element.get("BASELINE"))
    if height is not None and len(polygon):
        # Up to ALTO 4.1 a baseline is one height.
        baseline = np.array([[polygon[:, 0].min(), height], [polygon[:, 0].max(), height]])
    text, confidence = _text(element)
    return Line(
        id=key,
        baseline=baseline,
        polygon=polygon,
        text=text,
        confidence=confidence,
        region=region,
        direction=_DIRECTIONS.get(element.get("BASEDIRECTION", "")),
        kind=_label(element, tags),
    )


def _text(element: Element) -> tuple[str | None, float | None]:
    parts = children(element, "String", "HYP")
    if not parts:
        return None, None
    text = ""
    for part in parts:
        gap = "" if local_name(part) == "HYP" else " "
        text += gap + part.get("CONTENT", "")
    weights = [number(part.get("WC")) for part in parts]
    known = [weight for weight in weights if weight is not None]
    confidence = float(np.exp(np.mean(np.log(np.clip(known, 1e-9, 1.0))))) if known else None
    return read_text(text), confidence


def _update(root: Element, page: Page) -> None:
    """Put texts and missing places into the document; everything else stays as it is."""
    found_pages = list(descendants(root, "Page"))
    lines = {line.id: line for line in page.lines}
    for key, found in _named(found_pages[0], "TextLine", "line") if found_pages else []:
        if key in lines:
            line = lines[key]
            if child(found, "Shape") is None and not len(_box(found)):
                _set_place(found, line.polygon, page)
            if not found.get("BASELINE") and len(line.baseline):
                found.set("BASELINE", _points(line.baseline, page))
            _update_text(found, line)


def _update_text(element: Element, line: Line) -> None:
    if line.text is None or line.text == _text(element)[0]:
        return
    strings = children(element, "String")
    if len(strings) == 1:
        # One String a line is this file's habit: its name, tags and place stay.
        string = strings[0]
        string.set("CONTENT", clean_text(line.text))
        for stale in children(string, "ALTERNATIVE", "Glyph"):
            string.remove(stale)
        for key in ("CC", "WC", "SUBS_TYPE", "SUBS_CONTENT"):
            if key in string.attrib:
                del string.attrib[key]
        if line.confidence is not None:
            string.set("WC", f"{line.confidence:.4f}")
        for rest in children(element, "SP", "HYP"):
            element.remove(rest)
        return
    for old in children(element, "String", "SP", "HYP"):
        element.remove(old)
    _add_words(element, line)


def _new_document(page: Page) -> Element:
    root = parse_bytes(f'<alto xmlns="{NAMESPACE}"/>'.encode(), "new document")
    description = new_child(root, "Description")
    new_child(description, "MeasurementUnit").text = "pixel"
    new_child(new_child(description, "sourceImageInformation"), "fileName").text = clean_text(page.source)
    names = Names()
    processing = new_child(description, "Processing", {"ID": names.take(None, "processing_1")})
    software = new_child(processing, "processingSoftware")
    new_child(software, "softwareName").text = "geomix"
    new_child(software, "softwareVersion").text = geomix.__version__
    labels = sorted(
        {kind for kind in [item.kind for item in page.regions] + [line.kind for line in page.lines] if kind}
    )
    tags = {label: names.take(None, f"tag_{index}") for index, label in enumerate(labels)}
    if labels:
        holder = new_child(root, "Tags")
        for label, key in tags.items():
            new_child(holder, "OtherTag", {"ID": key, "LABEL": clean_text(label)})
    layout = new_child(root, "Layout")
    size = {"WIDTH": str(page.width), "HEIGHT": str(page.height)}
    element = new_child(layout, "Page", {"ID": names.take(None, "page_1"), **size})
    element.set("PHYSICAL_IMG_NR", str(page.frame + 1))
    space = new_child(element, "PrintSpace", {"HPOS": "0", "VPOS": "0", **size})
    known = {region.id: region for region in page.regions}
    keys = list(
        dict.fromkeys([line.region if line.region in known else "" for line in page.lines] + list(known))
    )
    line_keys: dict[str, str] = {}
    for key in keys:
        region = known.get(key or "", Region(id="block_1"))
        lines = [line for line in page.lines if (line.region if line.region in known else "") == key]
        line_keys |= _add_block(space, region, lines, page, names, tags)
    written = [
        line for key in keys for line in page.lines if (line.region if line.region in known else "") == key
    ]
    if [line.id for line in written] != [line.id for line in page.lines]:
        _add_order(root, [line_keys[line.id] for line in page.lines], names)
    return root


def _add_order(root: Element, keys: list[str], names: Names) -> None:
    order = new_child(root, "ReadingOrder", after=("Description", "Styles", "Tags"))
    group = new_child(order, "OrderedGroup", {"ID": names.take(None, "order_1")})
    for index, key in enumerate(keys):
        new_child(group, "ElementRef", {"ID": names.take(None, f"order_1_{index}"), "REF": key})


def _add_block(
    parent: Element, region: Region, lines: list[Line], page: Page, names: Names, tags: dict[str, str]
) -> dict[str, str]:
    """Add a block with its lines; gives the name of each line in the document."""
    block = new_child(parent, "TextBlock", {"ID": names.take(region.id, "block")})
    bounds = bounds_of(lines)
    outline = region.polygon if len(region.polygon) else box_polygon(*(bounds or (0, 0, 0, 0)))
    _set_place(block, outline, page)
    if region.kind:
        block.set("TAGREFS", tags[region.kind])
    if page.orientation:
        # ALTO counts against the clock.
        block.set("ROTATION", str(-page.orientation))
    if region.direction or page.direction:
        block.set("BASEDIRECTION", str(region.direction or page.direction))
    keys = {}
    for line in lines:
        element = new_child(block, "TextLine", {"ID": names.take(line.id, "line")})
        keys[line.id] = element.get("ID", "")
        _set_place(element, line.polygon, page)
        if len(line.baseline):
            element.set("BASELINE", _points(line.baseline, page))
        if line.kind:
            element.set("TAGREFS", tags[line.kind])
        if line.direction:
            element.set("BASEDIRECTION", line.direction)
        _add_words(element, line)
    return keys


def _add_words(element: Element, line: Line) -> None:
    """A String for each word with SP between; a line that says nothing gets one empty String, as it must."""
    for index, word in enumerate(words_of(line) or [Word("", line.confidence, None)]):
        if index:
            new_child(element, "SP")
        string = new_child(element, "String", {"CONTENT": clean_text(word.text)})
        if word.box is not None:
            x0, y0, x1, y1 = (round(value) for value in word.box)
            place = {"HPOS": x0, "VPOS": y0, "WIDTH": x1 - x0, "HEIGHT": y1 - y0}
            for key, value in place.items():
                string.set(key, str(max(value, 0)))
        if word.confidence is not None:
            string.set("WC", f"{min(max(word.confidence, 0.0), 1.0):.4f}")


def _points(points: Points, page: Page) -> str:
    return " ".join(f"{x} {y}" for x, y in whole_points(points, page.width, page.height))


def _set_place(element: Element, polygon: Points, page: Page) -> None:
    whole = whole_points(polygon, page.width, page.height)
    if not whole:
        return
    xs, ys = zip(*whole, strict=True)
    place = {"HPOS": min(xs), "VPOS": min(ys), "WIDTH": max(xs) - min(xs), "HEIGHT": max(ys) - min(ys)}
    for key, value in place.items():
        element.set(key, str(value))
    if len(whole) >= 3:
        shape = new_child(element, "Shape", after=())
        new_child(shape, "Polygon", {"POINTS": " ".join(f"{x} {y}" for x, y in whole)})
