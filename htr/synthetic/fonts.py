"""Lines for a first training: known texts in many fonts, some of them in capitals."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import ascii_uppercase

import numpy as np

from geomix.errors import InputError, MissingFileError
from htr.charset import normalize_text
from htr.data import Sample
from htr.synthetic.draw import draw_line, open_font

SUFFIXES = {".ttf", ".otf", ".woff", ".woff2"}

SWASH = 1.12
"""Fonts whose capitals are wider than their room by more than this write no line of capitals: they tangle."""

_NOWHERE = "\uffff"
_TRIES = 50


def find_fonts(paths: Sequence[Path]) -> list[Path]:
    """Give the font files among paths and folders, in order.

    Raises:
        MissingFileError: if a path is not there.
        InputError: if there is none.
    """
    fonts: list[Path] = []
    for path in paths:
        if not path.exists():
            raise MissingFileError(f"{path}: there is no such font or folder")
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        fonts += [file for file in files if file.suffix.lower() in SUFFIXES]
    if not fonts:
        raise InputError(
            f"no font in {', '.join(map(str, paths))}; fonts end in {', '.join(sorted(SUFFIXES))}"
        )
    return fonts


def font_lines(
    texts: Sequence[str], fonts: Sequence[Path], count: int, *, capitals: float = 0.2, seed: int = 0
) -> Iterator[Sample]:
    """Write lines, each a text and a font at random; texts with characters that the font lacks are not drawn.

    Args:
        texts: what to write.
        fonts: their files.
        count: how many lines.
        capitals: share of the lines that are in capitals throughout.
        seed: the same seed gives the same lines.

    Returns:
        Samples of the set `fonts`, all of one page of the split train: none of them is ever held out.

    Raises:
        InputError: if there is no text, hardly a text that a font can write, or the count or the share of
            capitals makes no sense.
    """
    if not texts:
        raise InputError("there is no text to write")
    if count < 1 or not 0 <= capitals <= 1:
        raise InputError(
            f"lines must be 1 or more and the share of capitals 0 to 1, got {count} and {capitals}"
        )
    known = set().union(*texts)
    rng = np.random.default_rng(seed)
    for number in range(count):
        font = fonts[int(rng.integers(len(fonts)))]
        text = _drawable(texts, font, known, capitals, rng)
        image = draw_line(text, rng, int(rng.integers(28, 44)), font)
        yield Sample(f"{number:06d}_{font.stem}", "fonts", "fonts", "train", text, image)


def _drawable(
    texts: Sequence[str], font: Path, known: set[str], capitals: float, rng: np.random.Generator
) -> str:
    for _ in range(_TRIES):
        text = normalize_text(texts[int(rng.integers(len(texts)))])
        large = text.upper()
        # No character that the texts do not have: it would be a class of its own.
        if rng.random() < capitals and set(large) <= known and overhang(font) < SWASH:
            text = large
        if text and all(has(font, char) for char in set(text)):
            return text
    raise InputError(f"{font}: lacks a character of each of {_TRIES} texts; leave the font out")


@cache
def overhang(font: Path) -> float:
    """How wide the capitals of a font are over the room that each takes on a line, a mean from A to Z."""
    opened = open_font(font, 64)
    boxes = [opened.getbbox(char) for char in ascii_uppercase]
    rooms = [max(1.0, opened.getlength(char)) for char in ascii_uppercase]
    return sum((box[2] - box[0]) / room for box, room in zip(boxes, rooms, strict=True)) / len(rooms)


@cache
def has(font: Path, char: str) -> bool:
    """Whether a font can draw a character: it then looks unlike the box for those that it lacks."""
    if char == " ":
        return True
    opened = open_font(font, 24)
    mask, box = opened.getmask(char), opened.getmask(_NOWHERE)
    return mask.size != (0, 0) and (mask.size != box.size or bytes(mask) != bytes(box))
