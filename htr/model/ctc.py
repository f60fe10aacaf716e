"""Connectionist temporal classification: its loss, which labels fit, and the best path with its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from htr.charset import BLANK


@dataclass(frozen=True)
class Symbol:
    """One character on the best path."""

    number: int
    """Its class."""
    start: int
    """The first token of its run."""
    end: int
    """One past the last token of its run."""
    peak: int
    """The token of its run where it is most probable."""
    confidence: float
    """The highest probability in its run, 0 to 1."""


def tokens_needed(label: Sequence[int] | str) -> int:
    """How many tokens a label needs: one a character and a blank between doubled ones."""
    return len(label) + sum(left == right for left, right in pairwise(label))


def loss(logits: Tensor, counts: Tensor, labels: Sequence[Sequence[int]]) -> Tensor:
    """Mean over the lines of the negative log-likelihood of a line, divided by its length.

    Args:
        logits: [B, T, classes].
        counts: how many of the T tokens belong to each line, int64 [B].
        labels: the classes of each line; a label that does not fit its tokens counts as 0, not as infinite.
    """
    lengths = torch.tensor([len(label) for label in labels], device=logits.device)
    target = torch.tensor([number for label in labels for number in label], device=logits.device)
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # [T, B, classes]
    each = functional.ctc_loss(
        *(log_probs, target, counts.to(logits.device), lengths),
        blank=BLANK,
        reduction="none",
        zero_infinity=True,
    )
    return (each / lengths.clamp(min=1)).mean()


def best_path(probabilities: NDArray[np.float32]) -> list[Symbol]:
    """Follow the most probable class of each token; equal neighbours are one character, blanks part them.

    Args:
        probabilities: of one line alone, [tokens, classes]: runs never cross the edge of a line.
    """
    if not len(probabilities):
        return []
    best = probabilities.argmax(axis=1)
    edges = np.flatnonzero(np.diff(best)) + 1
    starts, ends = np.r_[0, edges], np.r_[edges, len(best)]
    symbols = []
    for start, end in zip(starts, ends, strict=True):
        number = int(best[start])
        if number == BLANK:
            continue
        run = probabilities[start:end, number]
        peak = int(start) + int(run.argmax())
        symbols.append(Symbol(number, int(start), int(end), peak, float(run.max())))
    return symbols


def line_confidence(confidences: Sequence[float]) -> float:
    """The geometric mean of the confidences of the characters; 1 for a line without characters."""
    if not confidences:
        return 1.0
    return float(np.exp(np.mean(np.log(np.clip(confidences, 1e-12, 1.0)))))
