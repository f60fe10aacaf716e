"""Lines for training beside real ones: known texts in many fonts, some of them in capitals."""

import logging
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from textwrap import wrap
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError, MissingFileError
from htr.charset import clean_label
from htr.data.inputs import Sample
from htr.synthetic.draw import draw_line, open_font

log = logging.getLogger(__name__)

SUFFIXES = {".ttf", ".otf", ".woff", ".woff2"}

LONGEST = 80
"""Longer texts are broken into several lines, characters."""

SWASH = 1.12
"""Fonts whose capitals are wider than their room by more than this write no line of capitals: they tangle."""

ALIKE = 0.7
"""Correlation from which on a small letter has the form of its capital."""

_NOWHERE = "\uffff"
_TELLING = "abdeghnqrt"


class _Pen(NamedTuple):
    """A font and what it can write."""

    font: Path
    usual: list[str]
    large: list[str]


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
    """Write lines, each a text and a font at random.

    A text with a character that a font lacks is not drawn with it. Fonts whose small letters are capitals
    write capitals only; those whose capitals run into each other never write a whole line of them.

    Args:
        texts: what to write; long ones are broken into lines of at most `LONGEST` characters.
        fonts: their files.
        count: how many lines.
        capitals: share of the lines that are in capitals throughout.
        seed: the same seed gives the same lines.

    Returns:
        Samples of the set `fonts`, all of one page of the split train: none of them is ever held out.

    Raises:
        InputError: if there is no text, no font can write any, or a number makes no sense.
    """
    if count < 1 or not 0 <= capitals <= 1 or seed < 0:
        raise InputError(
            f"lines must be 1 or more, the share of capitals 0 to 1 and the seed 0 or more, got {count}, "
            f"{capitals} and {seed}"
        )
    lines = [line for text in texts for line in wrap(clean_label(text), LONGEST)]
    pens = _pens(lines, fonts)
    pools = {True: [pen for pen in pens if pen.large], False: [pen for pen in pens if pen.usual]}
    rng = np.random.default_rng(seed)
    for number in range(count):
        large = bool(rng.random() < capitals)
        # Fonts of one kind alone: all lines are of that kind then.
        large = large if pools[large] else not large
        pen = pools[large][int(rng.integers(len(pools[large])))]
        choice = pen.large if large else pen.usual
        text = choice[int(rng.integers(len(choice)))]
        image = draw_line(text, rng, int(rng.integers(28, 44)), pen.font)
        name = re.sub(r"[^\w-]", "_", pen.font.stem)
        yield Sample(f"{number:06d}_{name}", "fonts", "fonts", "train", text, image)


def _pens(lines: Sequence[str], fonts: Sequence[Path]) -> list[_Pen]:
    """The fonts that can write a line, with the lines that they can write."""
    if not lines:
        raise InputError("there is no text to write")
    needs = [(line, frozenset(line), line.upper()) for line in dict.fromkeys(lines)]
    alphabet = sorted(set().union(*(need | set(upper) for _, need, upper in needs)))
    pens, useless = [], []
    for font in fonts:
        there = {char for char in alphabet if has(font, char)}
        small = not unicase(font)
        usual = [line for line, need, _ in needs if small and need <= there]
        plain = not small or overhang(font) < SWASH
        large = [upper for _, _, upper in needs if plain and set(upper) <= there]
        pens.append(_Pen(font, usual, large))
        if not usual and not large:
            missing = "".join(char for char in alphabet if char not in there)
            useless.append(f"{font.name} (lacks {missing[:20]})")
    if len(useless) == len(fonts):
        raise InputError(f"no font can write any of the texts: {', '.join(useless[:5])}")
    if useless:
        log.warning(
            "left out %d fonts that can write none of the texts: %s", len(useless), ", ".join(useless)
        )
    return pens


@cache
def overhang(font: Path) -> float:
    """How wide the capitals of a font are over the room that each takes on a line, a mean from A to Z."""
    opened = open_font(font, 64)
    boxes = [opened.getbbox(char) for char in ascii_uppercase]
    rooms = [max(1.0, opened.getlength(char)) for char in ascii_uppercase]
    return sum((box[2] - box[0]) / room for box, room in zip(boxes, rooms, strict=True)) / len(rooms)


@cache
def unicase(font: Path) -> bool:
    """Whether the small letters of a font have the forms of its capitals."""
    pairs = [(_form(font, char), _form(font, char.upper())) for char in _TELLING]
    return float(np.median([np.corrcoef(small, large)[0, 1] for small, large in pairs])) > ALIKE


def _form(font: Path, char: str) -> NDArray[np.float64]:
    """The form of a letter whatever its size, a row of numbers."""
    mask = open_font(font, 64).getmask(char)
    width, height = mask.size
    if not width or not height:
        return np.arange(576.0)
    image = np.frombuffer(bytes(mask), np.uint8).reshape(height, width)
    small = cv2.resize(image, (24, 24), interpolation=cv2.INTER_AREA)
    return cv2.GaussianBlur(small, (0, 0), 1.0).astype(np.float64).ravel()


@cache
def has(font: Path, char: str) -> bool:
    """Whether a font can draw a character: it then looks unlike the box for those that it lacks."""
    if char == " ":
        return True
    opened = open_font(font, 24)
    mask, box = opened.getmask(char), opened.getmask(_NOWHERE)
    return mask.size != (0, 0) and (mask.size != box.size or bytes(mask) != bytes(box))
