"""Sentences with a label for each word, and batches of them."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from geomix.config import Config
from geomix.errors import MissingFileError
from geomix.learn.splits import Splits

LETTERS = 8
Sentence = list[tuple[str, str]]
"""Words and their labels, which are empty where they are not known."""


class TextData(Config):
    """One text file, of which every so many sentences are held out."""

    every: int = 4


class Batch(NamedTuple):
    """Sentences end to end: letters [N, LETTERS], where sentences begin and end [S + 1], classes [N]."""

    letters: Tensor
    offsets: Tensor
    labels: Tensor
    names: list[str]


def read_sentences(path: Path) -> list[Sentence]:
    """Read a text file with a sentence per line, each word as `word` or `word/label`."""
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such text file")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[word.partition("/")[::2] for word in line.split()] for line in lines]


def divide(data: TextData, path: Path) -> Splits[Sentence]:
    """Deal the sentences out to training, validation and test."""
    items, every = read_sentences(path), data.every
    train = [item for number, item in enumerate(items) if number % every > 1]
    return Splits(train, val=items[::every], test=items[1::every])


def collate(sentences: list[Sentence], classes: list[str]) -> Batch:
    """Put sentences end to end."""
    words = [pair for sentence in sentences for pair in sentence]
    letters = [[ord(char) % 128 for char in word[:LETTERS].ljust(LETTERS)] for word, _ in words]
    labels = [classes.index(label) if label in classes else 0 for _, label in words]
    offsets = torch.tensor([0, *map(len, sentences)]).cumsum(0)
    return Batch(torch.tensor(letters), offsets, torch.tensor(labels), [word for word, _ in words[:3]])
