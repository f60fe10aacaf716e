"""Quality figures, counted over batches, blocks and pages before they become rates.

A rate with a denominator of 0 is NaN, never 0: a class that a scene does not contain is no failure.
"""

import math
import unicodedata
from collections.abc import Sequence

import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from geomix.errors import InputError


def confusion(pred: Tensor, target: Tensor, classes: int, ignore: int | None = None) -> Tensor:
    """Count how often class i was called class j.

    Args:
        pred: class numbers, any shape.
        target: the true class numbers, same shape.
        classes: how many classes there are, K.
        ignore: positions with this target do not count.

    Returns:
        Counts, int64, [K, K]; rows are the truth, columns the prediction. Confusion matrices can be summed.

    Raises:
        InputError: if the shapes differ or a number that counts is outside 0 to K - 1.
    """
    if pred.shape != target.shape:
        raise InputError(
            f"prediction and target differ in shape: {list(pred.shape)} and {list(target.shape)}"
        )
    counted = torch.ones_like(target, dtype=torch.bool) if ignore is None else target != ignore
    pred, target = pred[counted].long(), target[counted].long()
    for name, values in (("prediction", pred), ("target", target)):
        outside = (values < 0) | (values >= classes)
        if outside.any():
            raise InputError(
                f"the {name} holds class {int(values[outside][0])} at {int(outside.sum())} positions, "
                f"but there are only classes 0 to {classes - 1}"
            )
    return torch.bincount(target * classes + pred, minlength=classes * classes).reshape(classes, classes)


def scores(matrix: Tensor) -> dict[str, float | list[float]]:
    """Compute accuracy, IoU and F1 from a confusion matrix.

    Args:
        matrix: counts with the truth in rows, [K, K].

    Returns:
        `oa`, the share of correct positions; `miou` and `macro_f1`, the means over the classes that occur in
        the truth or in the prediction; and the lists `iou`, `f1`, `precision`, `recall` with one value per
        class, NaN if the denominator is 0.
    """
    counts = matrix.double()
    hit, truth, called = counts.diagonal(), counts.sum(1), counts.sum(0)
    iou = hit / (truth + called - hit)
    f1 = 2 * hit / (truth + called)
    return {
        "oa": (hit.sum() / counts.sum()).item(),
        "miou": iou.nanmean().item(),
        "macro_f1": f1.nanmean().item(),
        "iou": iou.tolist(),
        "f1": f1.tolist(),
        "precision": (hit / called).tolist(),
        "recall": (hit / truth).tolist(),
    }


class EditDistance:
    """Character and word error rates over all added lines: all edits divided by all reference lengths."""

    def __init__(self) -> None:
        self.lines = 0
        self._characters = _Rate()
        self._words = _Rate()
        self._tokens = _Rate()

    def add(self, reference: str, hypothesis: str) -> None:
        """Count one line; white space counts as one space, and not at all at the ends."""
        reference, hypothesis = " ".join(reference.split()), " ".join(hypothesis.split())
        self.lines += 1
        self._characters.add(reference, hypothesis)
        self._words.add(reference.split(), hypothesis.split())
        self._tokens.add(_apart(reference).split(), _apart(hypothesis).split())

    def scores(self) -> dict[str, float | int]:
        """The rates so far.

        Returns:
            `cer`; `wer` over words between spaces; `wer_punctuation`, where each punctuation mark is a word
            of its own, as the handwriting literature counts; and the counts `lines`, `characters`, `words`.
        """
        return {
            "cer": self._characters.value,
            "wer": self._words.value,
            "wer_punctuation": self._tokens.value,
            "lines": self.lines,
            "characters": self._characters.length,
            "words": self._words.length,
        }


class _Rate:
    def __init__(self) -> None:
        self.edits = 0
        self.length = 0

    def add(self, reference: Sequence[str], hypothesis: Sequence[str]) -> None:
        self.edits += Levenshtein.distance(reference, hypothesis)
        self.length += len(reference)

    @property
    def value(self) -> float:
        return self.edits / self.length if self.length else math.nan


def _apart(text: str) -> str:
    return "".join(f" {c} " if unicodedata.category(c).startswith("P") else c for c in text)
