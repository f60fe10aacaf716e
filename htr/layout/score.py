"""How well found lines match those of a ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htr.page import Line


@dataclass(frozen=True)
class Match:
    """Which found line is which true one."""

    pairs: tuple[tuple[int, int], ...]
    """(found, true), one to one, by falling overlap."""
    found: int
    true: int

    @property
    def precision(self) -> float:
        """The share of the found lines that are true; 1 where nothing was found."""
        return len(self.pairs) / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """The share of the true lines that were found; 1 where there are none."""
        return len(self.pairs) / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """Twice the matches by the sum of both counts; 1 where both are empty."""
        total = self.found + self.true
        return 2.0 * len(self.pairs) / total if total else 1.0


def match_lines(found: Sequence[Line], true: Sequence[Line], threshold: float = 0.4) -> Match:
    """Pair lines one to one, best first, where their boxes overlap by `threshold` (IoU)."""
    pairs = []
    for i, a in enumerate(found):
        for j, b in enumerate(true):
            overlap = box_iou(a.bounds(), b.bounds())
            if overlap >= threshold:
                pairs.append((overlap, i, j))
    used_found: set[int] = set()
    used_true: set[int] = set()
    kept = []
    for _, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1:])):
        if i not in used_found and j not in used_true:
            kept.append((i, j))
            used_found.add(i)
            used_true.add(j)
    return Match(tuple(kept), len(found), len(true))


def box_iou(a: tuple[float, ...] | None, b: tuple[float, ...] | None) -> float:
    """Intersection over union of two boxes x0, y0, x1, y1; 0 where one has no place."""
    if a is None or b is None:
        return 0.0
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return float(width * height / np.maximum(area - width * height, 1e-9))
