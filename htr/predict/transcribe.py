"""The whole way from an image to its text, as users call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from geomix.errors import InputError
from htr.io.images import PageImage, array_to_grey, read_images, to_grey
from htr.io.options import PageOptions
from htr.io.pages import read_lines
from htr.layout.sheet import as_sheet
from htr.page import Page
from htr.predict.pages import LineReader, default_model, find_page, load, model_reader, read_page
from htr.predict.turn import read_sheet

if TYPE_CHECKING:
    from torch import nn

    from htr.predict.lm import CharacterModel

ImageLike = str | Path | Image.Image | NDArray[np.generic] | PageImage


def transcribe(
    image: ImageLike,
    model: nn.Module | str | Path | None = None,
    *,
    lines: Page | str | Path | None = None,
    options: PageOptions | None = None,
    lm: CharacterModel | str | Path | None = None,
    beam: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Page:
    """Read a handwritten page.

    Args:
        image: a file with one page, a Pillow image, or an array [H, W] or [H, W, 3].
        model: the name of a bundled model, a .safetensors file, or a loaded model; bundled if None.
        lines: where the lines are, as a page or a PAGE, ALTO or JSON file; found in the image if not given.
        options: how lines are found and put in order.
        lm: a language model for the beam search: loaded, by name (`french`), a `.lm` file, or a text.
        beam: texts kept from token to token; 1 follows the best path.
        device: where a model given by name runs.

    Returns:
        The page with one entry a line, in reading order, in pixels of the upright image.

    Raises:
        GeomixError: if the image, the lines or the model cannot be read.
    """
    chosen = options or PageOptions()
    reader = model_reader(load(default_model() if model is None else model, device), lm=lm, beam=beam)
    given = _given(lines)
    sheet = as_sheet(_one_page(image, chosen.max_pixels, given), chosen)
    return read_given(sheet, reader, given, chosen)


def transcribe_file(
    path: str | Path,
    reader: LineReader,
    *,
    lines: str | Path | None = None,
    options: PageOptions | None = None,
) -> Iterator[tuple[PageImage, Page]]:
    """Read all pages of an image file or PDF, one after another.

    Args:
        path: the file.
        reader: what reads line images, see `model_reader`.
        lines: PAGE, ALTO or JSON with the lines of the first page.
        options: how lines are found and put in order.
    """
    chosen = options or PageOptions()
    given = _given(lines)
    size = (given.width, given.height) if given is not None and given.size_known else None
    for image in read_images(path, chosen.max_pixels, size):
        if given is not None and image.frames > 1:
            raise InputError(f"{path}: has {image.frames} pages, but {lines} describes one; split the file")
        sheet = as_sheet(image, chosen)
        yield image, read_given(sheet, reader, given, chosen)


def read_given(
    sheet: PageImage, reader: LineReader, given: Page | None, options: PageOptions | None = None
) -> Page:
    """Read the lines of a page that a file gives, or those that are found where it gives none.

    Args:
        sheet: the page as `as_sheet` gives it.
        reader: what reads line images.
        given: lines from a file.
        options: how lines are found and read.
    """
    if given is None:
        return read_sheet(sheet, reader, options)
    return read_page(sheet, reader, find_page(sheet, given, options), options)


def _given(lines: Page | str | Path | None) -> Page | None:
    return lines if isinstance(lines, Page) or lines is None else read_lines(lines)


def _one_page(image: ImageLike, max_pixels: int, given: Page | None) -> PageImage:
    if isinstance(image, PageImage):
        return image
    if isinstance(image, str | Path):
        size = (given.width, given.height) if given is not None and given.size_known else None
        pages = read_images(image, max_pixels, size)
        first = next(pages)
        if first.frames > 1:
            raise InputError(f"{image}: has {first.frames} pages; read them with `transcribe_file`")
        return first
    if not isinstance(image, Image.Image | np.ndarray):
        raise InputError(f"an image is a path, a Pillow image or an array, got {type(image).__name__}")
    pixels = to_grey(image) if isinstance(image, Image.Image) else array_to_grey(image)
    return PageImage(pixels, pixels.shape[1], pixels.shape[0], "image", 0, 1)
