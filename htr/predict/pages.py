"""From a page image to a page with its text: lines found or given, cut out, read, and put in their slots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from geomix.checkpoint import bundled_models, load_model
from geomix.device import choose_device
from geomix.errors import InputError, MissingFileError
from htr.bidi import base_direction, logical_order, to_logical
from htr.io.images import Grey, PageImage
from htr.io.options import PageOptions
from htr.layout.crop import HEIGHT, Crop, cut, holds_several_lines
from htr.layout.detect import Found, detect_lines
from htr.layout.given import outline_from_ink
from htr.layout.order import reading_order
from htr.layout.printed import PRINT, are_print, mark_print, print_odds
from htr.page import Direction, Line, Page, box_polygon
from htr.predict.lines import Transcription, transcribe_lines
from htr.predict.lm import CharacterModel, find_lm

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

ImageLike = str | Path | Image.Image | NDArray[np.generic] | PageImage
LineReader = Callable[[Sequence[Grey]], Sequence[Transcription]]
"""Line images, dark on light, to what they say: one result an image, in the order of the image."""

DEFAULT_MODEL = "small"


def default_model() -> str:
    """The name of the bundled model that is used where none is asked for.

    Raises:
        MissingFileError: if no model is bundled.
    """
    names = [name for name, _ in bundled_models("htr")]
    if not names:
        raise MissingFileError("no model for handwriting is bundled; give one with --model FILE")
    return DEFAULT_MODEL if DEFAULT_MODEL in names else names[0]


def load(model: nn.Module | str | Path, device: Literal["auto", "cpu", "cuda"] = "auto") -> nn.Module:
    """A model for handwriting, by name, by file or as it is."""
    return load_model(model, choose_device(device), domain="htr") if isinstance(model, str | Path) else model


def model_reader(
    model: nn.Module, lm: CharacterModel | str | Path | None = None, beam: int | None = None
) -> LineReader:
    """A function that reads all lines of a page with a model and perhaps a language model."""
    language = find_lm(lm)

    def read(images: Sequence[Grey]) -> Sequence[Transcription]:
        return transcribe_lines(model, images, lm=language, beam=beam)  # type: ignore[arg-type]

    return read


def find_page(image: PageImage, given: Page | None = None, options: PageOptions | None = None) -> Page:
    """The lines of a page, found or as a file gives them, in reading order and page pixels.

    Args:
        image: the page as `as_sheet` gives it.
        given: lines from a file; scaled where the file describes the image at another size.
        options: how lines are found and put in order.
    """
    chosen = options or PageOptions()
    name = Path(image.path).name
    direction = None if chosen.direction == "auto" else chosen.direction
    if given is not None:
        page = _outlined(_fitted(given, image), image)
        if chosen.order == "columns":
            lines, regions = reading_order(page.lines, direction or page.direction)
            page = replace(page, lines=tuple(lines), regions=tuple(regions), origin=None)
        return replace(
            page, source=page.source or name, frame=image.frame, direction=direction or page.direction
        )
    height, width = image.pixels.shape
    empty = Page(width=width, height=height, source=name, frame=image.frame, direction=direction)
    if chosen.single_line:
        whole = box_polygon(0, 0, width, height)
        base = np.array([[0.0, 0.78 * height], [float(width), 0.78 * height]])
        found = Found([Line(id="line_0001", polygon=whole, baseline=base)], [])
    else:
        found = detect_lines(image.pixels, chosen.merge)
    lines, regions = reading_order(found.lines, direction)
    lines = [replace(line, id=f"line_{number + 1:04d}") for number, line in enumerate(lines)]
    page = replace(
        empty,
        lines=tuple(lines),
        regions=tuple(regions),
        dropped=tuple(found.dropped),
        is_found=not chosen.single_line,
        is_sideways=found.is_sideways,
    )
    return page.scaled(image.width / width, image.height / height, image.width, image.height)


def read_page(image: PageImage, reader: LineReader, page: Page, options: PageOptions | None = None) -> Page:
    """Read the lines of a page; a line that cannot be cut out keeps its slot and says why.

    Args:
        image: the page as `as_sheet` gives it.
        reader: what reads line images.
        page: its lines in page pixels.
        options: how its text runs.
    """
    chosen = options or PageOptions()
    pixels = image.pixels
    height, width = pixels.shape
    there = page.scaled(width / max(page.width, 1), height / max(page.height, 1), width, height)
    crops: list[Crop | str | None] = [_cut(pixels, line, image.path) for line in there.lines]
    if page.is_found:
        odds = [print_odds(crop.pixels) if isinstance(crop, Crop) else None for crop in crops]
        page = mark_print(page, are_print(odds), chosen.printed)
    elif page.origin is not None or chosen.single_line:
        # Only of lines that somebody chose: advice to let them be found is no use for those that were.
        _warn_of_paragraphs(there.lines, crops, image.path)
    if chosen.printed == "skip" and page.is_found:
        crops = [None if line.kind == PRINT else crop for line, crop in zip(page.lines, crops, strict=True)]
    texts = iter(reader([crop.pixels for crop in crops if isinstance(crop, Crop)]))
    read: list[tuple[Line, Crop | None, Transcription | None]] = []
    for line, crop in zip(page.lines, crops, strict=True):
        if isinstance(crop, str):
            read.append((replace(line, error=crop), None, None))
        else:
            read.append((line, crop, next(texts) if crop is not None else None))
    fallback = base_direction(" ".join(text.text for _, _, text in read if text is not None))
    size = np.array([page.width, page.height] * 2)
    back = size / np.array([width, height] * 2)
    lines = tuple(
        _with_text(line, crop, text, page.direction_of(line) or fallback, back, size)
        for line, crop, text in read
    )
    return replace(page, lines=lines)


def _with_text(
    line: Line,
    crop: Crop | None,
    said: Transcription | None,
    direction: Direction,
    back: NDArray[np.float64],
    size: NDArray[np.int64],
) -> Line:
    """The line with its text in logical order and the places of its characters in the page."""
    if crop is None or said is None:
        return replace(line, text="", confidence=None, char_confidences=(), char_boxes=np.empty((0, 4)))
    order, _ = logical_order(said.text, direction)
    height = crop.pixels.shape[0]
    boxes = np.array([[char.start_px, 0.0, char.end_px, height] for char in said.chars]).reshape(-1, 4)
    # What a crop shows beyond the edge of the page is painted, not seen.
    placed = np.clip(crop.boxes_to_page(boxes) * back, 0, size) if len(boxes) else boxes
    return replace(
        line,
        text=to_logical(said.text, direction),
        confidence=said.confidence if said.text else None,
        char_confidences=tuple(said.chars[i].confidence for i in order),
        char_boxes=placed[order] if len(order) else placed,
        error=None,
    )


def _cut(pixels: Grey, line: Line, path: str) -> Crop | str:
    """The line cut out, or why that cannot be done."""
    try:
        crop = cut(pixels, line, HEIGHT)
    except InputError as error:
        log.warning("%s: %s; its text stays empty", path, error)
        return line.error or str(error)
    return crop


def _warn_of_paragraphs(lines: Sequence[Line], crops: Sequence[Crop | str | None], path: str) -> None:
    thick = [
        line.id
        for line, crop in zip(lines, crops, strict=True)
        if isinstance(crop, Crop) and holds_several_lines(crop.pixels)
    ]
    if thick:
        named = ", ".join(thick[:5]) + (", ..." if len(thick) > 5 else "")
        log.warning(
            "%s: %d of %d lines look like several lines each (%s); draw them anew, or let them be found",
            *(path, len(thick), len(lines), named),
        )


def _outlined(page: Page, image: PageImage) -> Page:
    """Lines of which only the baseline is known get their outline from the ink."""
    if not any(line.is_band for line in page.lines):
        return page
    height, width = image.pixels.shape
    there = page.scaled(width / page.width, height / page.height, width, height)
    drawn = replace(there, lines=tuple(outline_from_ink(image.pixels, there.lines)))
    return drawn.scaled(page.width / width, page.height / height, page.width, page.height)


def _fitted(given: Page, image: PageImage) -> Page:
    """Lines in pixels of the image, where their file describes it at another size."""
    if (given.width, given.height) == (image.width, image.height):
        return given
    if not given.size_known:
        return replace(given, width=image.width, height=image.height, size_known=True)
    factors = image.width / max(given.width, 1), image.height / max(given.height, 1)
    name = given.origin.path if given.origin is not None else "the lines"
    if abs(factors[0] / factors[1] - 1) > 0.02:
        raise InputError(
            f"{name}: describes an image of {given.width} x {given.height} pixels, but {image.path} has "
            f"{image.width} x {image.height}, which is another shape; give the file that belongs to the image"
        )
    log.warning(
        "%s: describes %d x %d pixels, the image has %d x %d; its coordinates are scaled",
        *(name, given.width, given.height, image.width, image.height),
    )
    return replace(given.scaled(*factors, image.width, image.height), origin=None)
