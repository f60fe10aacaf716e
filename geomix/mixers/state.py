"""What a mixer remembers of the tokens that it has seen: one sum and one count a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.errors import SegmentsError


@dataclass(frozen=True)
class State:
    """Sum of features and number of tokens of each sequence; states add up in any order.

    The sum is kept in fp32 (fp64 for fp64 models) as a pair: what rounding would lose goes to `lost`, so a
    state that is stepped a million times is as exact as one that is built at once. Gradients flow through
    `sum`.
    """

    sum: Tensor
    """Sum of the features of each sequence, [S, D]."""
    count: Tensor
    """Number of tokens in that sum, int64, [S]."""
    lost: Tensor | None = None
    """Low-order part of the sum, [S, D], without gradient; None where there is none yet."""

    @classmethod
    def empty(
        cls,
        sequences: int,
        width: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> State:
        """Return the state of `sequences` sequences that have seen nothing; `width` is D."""
        total = torch.zeros(sequences, width, dtype=dtype, device=device)
        return cls(total, torch.zeros(sequences, dtype=torch.int64, device=device))

    @property
    def total(self) -> Tensor:
        """The sum with its low-order part added, [S, D]."""
        return self.sum if self.lost is None else self.sum + self.lost

    def merge(self, other: State) -> State:
        """Add another state row by row: the state of both runs of tokens.

        Raises:
            SegmentsError: if the two do not hold the same sequences and width.
        """
        if self.sum.shape != other.sum.shape or self.sum.device != other.sum.device:
            raise SegmentsError(
                f"states merge row by row and need one shape and device, got {list(self.sum.shape)} on "
                f"{self.sum.device} and {list(other.sum.shape)} on {other.sum.device}"
            )
        total = self.sum + other.sum
        with torch.no_grad():
            # Knuth's two-sum: the exact rounding error of the addition above.
            back = total - self.sum
            lost = (self.sum - (total - back)) + (other.sum - back)
            for part in (self.lost, other.lost):
                lost = lost if part is None else lost + part
        return State(total, self.count + other.count, lost)

    def detach(self) -> State:
        """Return the same state without its history of gradients."""
        return State(self.sum.detach(), self.count, self.lost)

    def to(self, device: torch.device) -> State:
        """Return the same state on another device."""
        return State(
            self.sum.to(device), self.count.to(device), None if self.lost is None else self.lost.to(device)
        )
