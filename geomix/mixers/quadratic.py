"""Quadratic mixers work on rows of one length; ragged sequences come in buckets of like length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers.state import State
from geomix.segments import Segments

ROWS = 1024
"""Queries worked on at a time: a quadratic mixer needs memory for ROWS x n scores, not n x n."""


@dataclass(frozen=True)
class Visible:
    """Which token of a row sees which, for rows of one length."""

    valid: Tensor | None
    """Which tokens exist, bool [B, N], or None for all."""
    block: Tensor | None
    """Block of each token, [B, N], or None for one block per row."""
    is_causal: bool
    """Whether every token is a block of its own."""
    own: Tensor | None = None
    """A mask of its own, bool [B or 1, N, N], or None."""

    @property
    def is_whole_row(self) -> bool:
        """Whether every token sees all valid tokens of its row."""
        return self.block is None and self.own is None

    def mask(self, queries: slice) -> Tensor | None:
        """Return who sees whom, bool, broadcastable to [B, queries, N], or None for everybody."""
        seen = None if self.valid is None else self.valid[:, None, :]
        if self.own is not None:
            seen = self.own[:, queries]
        if self.block is not None:
            earlier = self.block[:, queries, None] >= self.block[:, None, :]
            seen = earlier if seen is None else earlier & seen
        return seen


RowMixer = Callable[[Tensor, Visible], Tensor]
"""Mixes projected tokens [B, N, ...] to [B, N, ...]."""


def mix_rows(projected: Tensor, segments: Segments, mix: RowMixer) -> Tensor:
    """Run a mixer of rows over any segments.

    Args:
        projected: projections of the tokens, [B, N, ...], or [T, ...] when packed.
        segments: which token sees which, without a window.
        mix: what to do with rows of one length.

    Returns:
        What `mix` returns, in the layout of `projected`.
    """
    if len(segments.shape) == 2:
        valid = None
        if segments.valid is not None:
            valid = segments.valid.view(segments.shape)
            shape = (*valid.shape, *[1] * (projected.ndim - 2))
            projected = projected.masked_fill(~valid.view(shape), 0.0)  # a weight of 0 does not stop a NaN
        is_one_block = segments.is_full or segments.mask is not None
        block = None if is_one_block else segments.block_of_token.view(segments.shape)
        return mix(projected, Visible(valid, block, segments.is_causal, segments.mask))
    pieces, places = [], []
    for index, inside in _buckets(segments):
        valid = None if bool(inside.all()) else inside
        block = None if segments.is_full else segments.block_of_token[index]
        pieces.append(mix(projected[index], Visible(valid, block, segments.is_causal))[inside])
        places.append(index[inside])
    if not pieces:
        return mix(projected[None], Visible(None, None, False))[0]
    return torch.cat(pieces)[torch.cat(places).argsort()]


def by_query(length: int, part: Callable[[slice], Tensor | tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Call `part` for one slice of queries after another; backward computes each slice again.

    Args:
        length: number of queries.
        part: computes the rows of a slice of queries.
    """
    done = []
    for start in range(0, max(length, 1), ROWS):
        queries = slice(start, start + ROWS)
        long = length > ROWS and torch.is_grad_enabled()
        rows = checkpoint(part, queries, use_reentrant=False) if long else part(queries)
        done.append(rows if isinstance(rows, tuple) else (rows,))
    return done


def check_quadratic(
    name: str, dim: int, x: Tensor, segments: Segments | None, state: State | None, return_state: bool
) -> Segments:
    """Make sure that a quadratic mixer can serve the call, and return its segments on the device of `x`.

    Raises:
        UnsupportedError: if a state or a local window is asked for.
        SegmentsError: if tokens and segments do not fit.
    """
    if state is not None or return_state:
        raise UnsupportedError(f"{name} has no state of fixed size; use the mixer 'pom' to stream or to step")
    if segments is None:
        segments = Segments.of(x)
    if segments.window is not None:
        raise UnsupportedError(f"{name} has no local window on a grid; use the mixer 'pom', or window=None")
    if x.shape[-1] != dim:
        raise SegmentsError(f"this mixer takes tokens of width {dim}, got {list(x.shape)}")
    segments.check(x)
    return segments.to(x.device)


def hide_invalid(y: Tensor, segments: Segments) -> Tensor:
    """Set outputs of tokens that are not valid to 0."""
    if segments.valid is None:
        return y
    return torch.where(segments.valid.view(segments.shape)[..., None], y, 0.0)


def at_least_one(mask: Tensor) -> Tensor:
    """Let a query that sees nothing see everything: softmax over nothing is NaN. Nobody reads such a row."""
    return mask | ~mask.any(-1, keepdim=True)


def split_heads(dim: int, heads: int, head_dim: int | None) -> int:
    """Return the width of a head.

    Raises:
        UnsupportedError: if `heads` does not divide `dim` and `head_dim` is not given.
    """
    if head_dim is not None:
        return head_dim
    if heads < 1 or dim % heads:
        raise UnsupportedError(f"heads must divide the width {dim}, got {heads}; or give head_dim")
    return dim // heads


def _buckets(segments: Segments) -> Iterator[tuple[Tensor, Tensor]]:
    """Group sequences of like length: token positions and which of them are inside the sequence, [b, n]."""
    lengths = segments.cu_seqlens.diff()
    bucket = lengths.clamp(min=1).sub(1).clamp(min=1).log2().floor().to(torch.int64)
    for key in torch.unique(bucket[lengths > 0]).tolist():
        members = ((bucket == key) & (lengths > 0)).nonzero().squeeze(1)
        span = torch.arange(int(lengths[members].max()), device=lengths.device)
        inside = span < lengths[members, None]
        start = segments.cu_seqlens[members, None]
        # Beyond its end a row repeats its last token, so that blocks stay in order.
        yield start + span.minimum(lengths[members, None] - 1), inside
