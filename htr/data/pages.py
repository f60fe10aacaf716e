"""Lines with their texts out of page images and the PAGE or ALTO beside them, for training and judging."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from geomix.errors import InputError, MissingFileError
from htr.charset import clean_label
from htr.data.inputs import Sample
from htr.io.images import MAX_PIXELS, SUFFIXES, read_images
from htr.io.pages import read_lines
from htr.layout.crop import HEIGHT, crop
from htr.layout.given import outline_from_ink
from htr.layout.sheet import as_sheet

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
"""Folders of these names say what their pages serve for."""


@dataclass(frozen=True)
class TruePage:
    """A page image and the XML with its true lines and texts."""

    image: Path
    truth: Path

    @property
    def split(self) -> str:
        """The folder that holds the page where that is called train, val or test; else train."""
        return self.image.parent.name if self.image.parent.name in SPLITS else "train"


def true_pages(paths: Iterable[str | Path]) -> list[TruePage]:
    """The page images in folders, or given one by one, that have an XML file of the same name beside them.

    Folders are searched with all that is in them.

    Raises:
        MissingFileError: if a path does not exist, or an image given by name has no XML.
        InputError: if a folder holds no such pair.
    """
    pages: list[TruePage] = []
    for given in map(Path, paths):
        if given.is_dir():
            images = sorted(file for file in given.rglob("*") if file.suffix.lower() in SUFFIXES)
            found = [TruePage(image, image.with_suffix(".xml")) for image in images]
            found = [page for page in found if page.truth.is_file()]
            if not found:
                raise InputError(
                    f"{given}: holds no page image with a PAGE or ALTO file of its name beside it"
                )
            pages += found
        elif not given.is_file():
            raise MissingFileError(f"{given}: there is no such file or folder")
        elif not given.with_suffix(".xml").is_file():
            raise MissingFileError(
                f"{given}: has no truth beside it; put a PAGE or ALTO file of its name there"
            )
        else:
            pages.append(TruePage(given, given.with_suffix(".xml")))
    return pages


def page_samples(paths: Iterable[str | Path]) -> list[Sample]:
    """Cut the lines with text out of pages; a line that covers no part of its image is left out and named."""
    return [sample for page in true_pages(paths) for sample in _lines_of(page)]


def _lines_of(page: TruePage) -> Iterator[Sample]:
    truth = read_lines(page.truth)
    size = (truth.width, truth.height) if truth.size_known else None
    pixels = as_sheet(next(read_images(page.image, MAX_PIXELS, size))).pixels
    height, width = pixels.shape
    there = (
        truth.scaled(width / truth.width, height / truth.height, width, height) if truth.size_known else truth
    )
    for line in outline_from_ink(pixels, there.lines):
        text = clean_label(line.text or "")
        if not text:
            continue
        try:
            strip = crop(pixels, line, HEIGHT)
        except InputError as error:
            log.warning("%s: %s; left out", page.image, error)
            continue
        yield Sample(
            f"{page.image.stem}/{line.id}", str(page.image), page.image.parent.name, page.split, text, strip
        )
