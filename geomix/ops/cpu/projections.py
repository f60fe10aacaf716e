"""Projections of the tokens of a slice into reused buffers: features and gates."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from geomix.ops.cpu import lowrank
from geomix.ops.cpu.plan import SLICE_ELEMENTS, Slice
from geomix.ops.elementwise import ACTIVATIONS, GATES, Pointwise, pick, polynomial
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype


class _Scratch(threading.local):
    """Buffers that outlive a call: the pages of fresh memory cost more than the arithmetic on them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, torch.dtype, torch.device, bool], Tensor] = {}


_scratch = _Scratch()


class Projections:
    """What one call computes of the tokens of a slice, in memory that the next slice overwrites."""

    def __init__(
        self, x: Tensor, params: MixerParams, functions: MixerFunctions, slices: Sequence[Slice]
    ) -> None:
        self.x, self.params = x, params
        self.activation: Pointwise = pick(ACTIVATIONS, functions.activation, "activation")
        self.gate: Pointwise = pick(GATES, functions.gate, "gate")
        self.dtype = sum_dtype(x.dtype)
        self.coeff, self.b_s = params.coeff.to(self.dtype), params.b_s.to(self.dtype)
        self.longest = max((part.length for part in slices), default=0)

    def buffer(self, name: str, rows: int, width: int) -> Tensor:
        """Return memory of [rows, width] that is used again for every slice, and by the next call."""
        # Memory of inference mode may not be written to outside it.
        key = (name, self.dtype, self.x.device, torch.is_inference_mode_enabled())
        size = self.longest * width
        memory = _scratch.kept.get(key)
        if memory is None or memory.numel() < size:
            memory = self.x.new_empty(size, dtype=self.dtype)
            if size <= 2 * SLICE_ELEMENTS:
                _scratch.kept[key] = memory
        return memory[: rows * width].view(rows, width)

    def matmul(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        """Multiply into a named buffer, in the type of `a`, and return it in the type of the sums."""
        out = self.buffer(name, a.shape[0], b.shape[1])
        return torch.mm(a, b, out=out) if a.dtype == out.dtype else out.copy_(a @ b)

    def activate(self, part: Slice) -> tuple[Tensor, Tensor]:
        """Return h and what its backward needs (h itself, or z), [L, D]."""
        z = self.matmul(self.x[part.start : part.stop], self.params.w_h.T, "z")
        h = self.activation.forward_(z)
        return h, z if self.activation.keeps_input else h

    def features(self, part: Slice) -> Tensor:
        """Return phi of a slice, [L, D]."""
        h, _ = self.activate(part)
        return polynomial(h, self.coeff, out=self.like(h, "phi"))

    def like(self, rows: Tensor, name: str) -> Tensor:
        """Return memory of the shape of `rows`, as `buffer` does."""
        return self.buffer(name, *rows.shape)

    def gates(self, part: Slice) -> Tensor:
        """Return s of a slice, [L, G]."""
        a = self.matmul(self.x[part.start : part.stop], self.params.w_s.T, "s")
        return self.gate.forward_(a.add_(self.b_s))

    def gated(self, s: Tensor, mean: Tensor) -> Tensor:
        """Return g = s * H in the type of the tokens; `mean` has one row for each L / n tokens, [L, D]."""
        g = self.buffer("g", s.shape[0], mean.shape[1])
        torch.mul(
            by_head(s, mean.shape[0], s.shape[1]),
            by_head(mean, mean.shape[0], s.shape[1]),
            out=by_head(g, mean.shape[0], s.shape[1]),
        )
        return g.to(self.x.dtype)

    def is_low_rank(self, mean: Tensor, part: Slice) -> bool:
        """Tell whether the gates are few enough for the short way of `lowrank`."""
        return lowrank.pays(part.length, mean.shape[0], self.params.w_s.shape[0], mean.shape[1])


def by_head(rows: Tensor, groups: int, heads: int) -> Tensor:
    """View [L, heads * w] as [groups, L / groups, heads, w]; one row a group broadcasts over its tokens."""
    return rows.view(groups, -1, heads, rows.shape[1] // heads)
