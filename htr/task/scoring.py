"""How well lines are found and read, on pages and on line images with known text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from geomix.errors import InputError
from geomix.learn.metrics import EditDistance
from geomix.progress import progress
from htr.bidi import as_seen
from htr.charset import clean_label
from htr.data.convention import conventional
from htr.data.inputs import Sample
from htr.data.pages import TruePage
from htr.io.images import PageImage, read_images
from htr.io.options import PageOptions
from htr.io.pages import read_lines
from htr.layout.score import match_lines
from htr.layout.sheet import as_sheet
from htr.page import Line, Page
from htr.predict.pages import LineReader, find_page
from htr.predict.transcribe import read_given

log = logging.getLogger(__name__)


class TextScore:
    """Errors added up over texts, as transcribed and in one convention.

    `cer_normalised` compares what is left when both texts are mapped to the convention of the bundled models
    (`htr.data.convention`): how a transcriber writes apostrophes, superior letters or broken words plays no
    part in it. All other rates compare the texts as they stand.
    """

    def __init__(self) -> None:
        self._strict, self._normalised = EditDistance(), EditDistance()

    @property
    def lines(self) -> int:
        """How many texts were added."""
        return self._strict.lines

    def add(self, truth: str, read: str) -> None:
        """Count one text."""
        self._strict.add(truth, read)
        self._normalised.add(conventional(truth), conventional(read))

    def scores(self) -> dict[str, float | int]:
        """The rates so far; NaN where there is nothing to divide by."""
        return {**self._strict.scores(), "cer_normalised": self._normalised.scores()["cer"]}


class PageScore:
    """Errors and matches, added up over pages.

    `cer`, `cer_normalised`, `wer` and `wer_punctuation` compare the whole text of each page in reading order,
    so that a missed, an invented, a split and a displaced line all count. `cer_matched` compares the true
    lines alone with what was read there: a line that was not found counts as all wrong, found lines that the
    truth leaves out, such as printed headings, do not count.
    """

    def __init__(self) -> None:
        self.pages = 0
        self._text = TextScore()
        self._matched = EditDistance()
        self._pairs = self._found = self._true = 0

    def add(self, found: Page, truth: Page) -> None:
        """Count one page."""
        match = match_lines(found.lines, truth.lines)
        self.pages += 1
        self._pairs += len(match.pairs)
        self._found += match.found
        self._true += match.true
        self._text.add(_whole(truth), _whole(found))
        read = {true: found.lines[index].text or "" for index, true in match.pairs}
        for number, line in enumerate(truth.lines):
            self._matched.add(clean_label(line.text or ""), clean_label(read.get(number, "")))

    def scores(self) -> dict[str, float | int]:
        """The rates over all pages added; NaN where there is nothing to divide by."""
        total = self._found + self._true
        text = self._text.scores()
        return {
            "cer": text["cer"],
            "cer_normalised": text["cer_normalised"],
            "wer": text["wer"],
            "wer_punctuation": text["wer_punctuation"],
            "cer_matched": self._matched.scores()["cer"],
            "pages": self.pages,
            "lines": self._true,
            "characters": text["characters"],
            "words": text["words"],
            "lines_found": self._found,
            "recall_lines": self._pairs / self._true if self._true else float("nan"),
            "precision_lines": self._pairs / self._found if self._found else float("nan"),
            "f1_lines": 2.0 * self._pairs / total if total else float("nan"),
        }

    def line_scores(self) -> dict[str, float | int]:
        """What concerns the places of lines alone."""
        keys = ("pages", "lines", "lines_found", "recall_lines", "precision_lines", "f1_lines")
        scores = self.scores()
        return {key: scores[key] for key in keys}


def evaluate_pages(
    pages: Sequence[TruePage],
    reader: LineReader | None,
    options: PageOptions | None = None,
    given_lines: bool = False,
) -> dict[str, Any]:
    """Find and read the lines of pages and compare them with the truth.

    Args:
        pages: images with their truth.
        reader: what reads line images; None compares the places of lines alone.
        options: how lines are found.
        given_lines: read the true lines instead of finding any, which leaves the reading alone.

    Returns:
        The scores of all pages together, and under `by_page` those of each.
    """
    total = PageScore()
    by_page: dict[str, dict[str, float | int]] = {}
    for page in progress(pages, "Pages"):
        single = PageScore()
        image, truth = _read(page, options)
        given = replace(truth, lines=_unread(truth)) if given_lines else None
        if reader is None:
            found = find_page(image, given, options)
        else:
            found = read_given(image, reader, given, options)
        for score in (total, single):
            score.add(found, truth)
        by_page[page.image.name] = single.line_scores() if reader is None else single.scores()
    return {**(total.line_scores() if reader is None else total.scores()), "by_page": by_page}


def evaluate_lines(
    samples: Iterable[Sample], reader: LineReader, also: Callable[[Sample], str | None] | None = None
) -> dict[str, Any]:
    """Read line images and compare them with their texts as seen, the lines of a page together.

    Args:
        samples: lines with their texts.
        reader: what reads line images.
        also: names a group of lines that gets scores of its own besides its set; None for no group.

    Returns:
        `cer`, `cer_normalised`, `wer`, `wer_punctuation` and counts over all lines, and under `by_set` those
        of each set.
    """
    total = TextScore()
    groups: dict[str, TextScore] = {}
    for lines in progress(list(_pages(samples)), "Pages"):
        texts = [read.text for read in reader([sample.image for sample in lines])]
        for sample, text in zip(lines, texts, strict=True):
            names = [sample.source, also(sample) if also is not None else None]
            scores = [total, *(groups.setdefault(name, TextScore()) for name in names if name is not None)]
            for score in scores:
                score.add(as_seen(clean_label(sample.text)), clean_label(text))
    if not total.lines:
        raise InputError("there are no lines of this split in the data; choose another --split")
    return {**total.scores(), "by_set": {name: score.scores() for name, score in sorted(groups.items())}}


def _read(page: TruePage, options: PageOptions | None) -> tuple[PageImage, Page]:
    truth = read_lines(page.truth)
    limit = (options or PageOptions()).max_pixels
    size = (truth.width, truth.height) if truth.size_known else None
    sheet = as_sheet(next(read_images(page.image, limit, size)), options)
    return sheet, find_page(sheet, truth, options)


def _unread(page: Page) -> tuple[Line, ...]:
    return tuple(replace(line, text=None, confidence=None) for line in page.lines)


def _whole(page: Page) -> str:
    return " ".join(filter(None, (clean_label(line.text or "") for line in page.lines if not line.is_aside)))


def _pages(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """The lines of each page together, in their order."""
    pages: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        pages.setdefault((sample.source, sample.page), []).append(sample)
    yield from pages.values()
