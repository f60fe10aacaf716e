"""Texts that a language model learns from, in lines as on a page."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from geomix.errors import FormatError, InputError, MissingFileError
from htr.data.convention import conventional
from htr.data.sources import read_labelled_lines

WIDTH = 60
"""Characters to which long lines of running text are broken."""

_PIECE = re.compile(rf".{{1,{WIDTH}}}(?:\s+|$)|\S{{{WIDTH}}}")


def read_texts(paths: Sequence[str | Path]) -> Iterator[str]:
    """Read lines in the convention of the bundled models.

    Args:
        paths: text files in UTF-8, whose long lines are broken at spaces, and tars or folders of labelled
            lines, of which those of the split `train` are taken.

    Raises:
        InputError: if no path is given.
        MissingFileError: if a file is not there.
        FormatError: if a file is not UTF-8.
    """
    if not paths:
        raise InputError("there is no text to learn from; name a text file or tars of lines")
    for path in map(Path, paths):
        if path.suffix == ".tar" or path.is_dir():
            lines = (sample.text for sample in read_labelled_lines([path]) if sample.split == "train")
            yield from map(conventional, lines)
        else:
            yield from _lines_of(path)


def _lines_of(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such text file")
    try:
        with path.open(encoding="utf-8") as file:
            for paragraph in file:
                for piece in _PIECE.findall(paragraph):
                    yield conventional(piece)
    except UnicodeDecodeError:
        raise FormatError(f"{path}: is not a text file in UTF-8") from None
