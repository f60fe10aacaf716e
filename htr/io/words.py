"""The words of a line that was read, with their places and confidences."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htr.page import Line


@dataclass(frozen=True)
class Word:
    """A run of characters between spaces."""

    text: str
    confidence: float | None
    """Geometric mean over its characters, 0 to 1; the line's where single characters have none."""
    box: tuple[float, float, float, float] | None
    """x0, y0, x1, y1 in page px, approximate."""


def words_of(line: Line) -> list[Word]:
    """The words of a line in logical order; nothing for an empty line."""
    text = line.text or ""
    has_boxes = len(line.char_boxes) == len(text)
    has_confidences = len(line.char_confidences) == len(text)
    words = []
    for match in re.finditer(r"\S+", text):
        start, end = match.span()
        confidence = geometric_mean(line.char_confidences[start:end]) if has_confidences else line.confidence
        box = None
        if has_boxes:
            x0, y0 = line.char_boxes[start:end, :2].min(axis=0)
            x1, y1 = line.char_boxes[start:end, 2:].max(axis=0)
            box = (float(x0), float(y0), float(x1), float(y1))
        words.append(Word(match.group(), confidence, box))
    return words


def geometric_mean(confidences: tuple[float, ...]) -> float | None:
    """The geometric mean of probabilities; None of none."""
    if not confidences:
        return None
    return float(np.exp(np.mean(np.log(np.clip(confidences, 1e-9, 1.0)))))
