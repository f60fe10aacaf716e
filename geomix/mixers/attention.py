"""Softmax attention under the mixers' common call: the baseline, and half of every hybrid.

Source: Vaswani et al., arXiv 1706.03762; computed by torch's scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers.state import State
from geomix.segments import Segments

MASK_ROWS = 1024
"""Queries that share one explicit mask: block-causal attention needs memory for MASK_ROWS x n, not n x n."""


class Attention(nn.Module):
    """Mix tokens by softmax attention with several heads."""

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 8,
        head_dim: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
    ) -> None:
        """Build the projections.

        Args:
            dim: width of the tokens, C.
            heads: number of heads.
            head_dim: width of a head; None: dim / heads.
            qkv_bias: bias of the query, key and value projection.
            out_bias: bias of the output projection.

        Raises:
            UnsupportedError: if `heads` does not divide `dim` and `head_dim` is not given.
        """
        super().__init__()
        if head_dim is None:
            if heads < 1 or dim % heads:
                raise UnsupportedError(f"heads must divide the width {dim}, got {heads}; or give head_dim")
            head_dim = dim // heads
        self.dim, self.heads, self.head_dim = dim, heads, head_dim
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=qkv_bias)
        self.out = nn.Linear(heads * head_dim, dim, bias=out_bias)

    @overload
    def forward(
        self, x: Tensor, segments: Segments | None = None, *, state: State | None = None
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool,
    ) -> Tensor | tuple[Tensor, State]: ...

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        """Mix tokens.

        Args:
            x: tokens, [B, N, C], or [T, C] when packed.
            segments: which token sees which; None: every token of a row sees the whole row.
            state: must be None.
            return_state: must be False.

        Returns:
            Outputs of the shape of `x`, 0 where a token is not valid.

        Raises:
            UnsupportedError: if a state or a local window is asked for.
        """
        if state is not None or return_state:
            raise UnsupportedError(
                "attention has no state of fixed size; use the mixer 'pom' to stream or to step"
            )
        if segments is None:
            segments = Segments.packed([0, x.shape[0]]) if x.ndim == 2 else Segments.dense(*x.shape[:2])
        if segments.window is not None:
            raise UnsupportedError(
                "attention has no local window on a grid; use the mixer 'pom', or window=None"
            )
        if x.shape[-1] != self.dim:
            raise SegmentsError(f"this mixer takes tokens of width {self.dim}, got {list(x.shape)}")
        segments.check(x)
        segments = segments.to(x.device)
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.heads, self.head_dim)
        mixed = self._dense(qkv, segments) if x.ndim == 3 else self._packed(qkv, segments)
        y: Tensor = self.out(mixed.flatten(-2))
        if segments.valid is not None:
            y = torch.where(segments.valid.view(segments.shape)[..., None], y, 0.0)
        return y

    def _dense(self, qkv: Tensor, segments: Segments) -> Tensor:
        """Attend within rows of one length, [B, N, 3, heads, d] to [B, N, heads, d]."""
        valid = None if segments.valid is None else segments.valid.view(segments.shape)
        block = None if segments.is_full else segments.block_of_token.view(segments.shape)
        return _attend(qkv, valid, block, segments.is_causal)

    def _packed(self, qkv: Tensor, segments: Segments) -> Tensor:
        """Attend within ragged sequences, [T, 3, heads, d] to [T, heads, d], like lengths together."""
        pieces, places = [qkv.new_zeros(0, self.heads, self.head_dim)], [segments.cu_seqlens[:0]]
        for index, inside in _buckets(segments):
            valid = None if inside.all() else inside
            block = None if segments.is_full else segments.block_of_token[index]
            mixed = _attend(qkv[index], valid, block, segments.is_causal)
            pieces.append(mixed[inside])
            places.append(index[inside])
        order = torch.cat(places).argsort()
        return torch.cat(pieces)[order]


def _buckets(segments: Segments) -> Iterator[tuple[Tensor, Tensor]]:
    """Group sequences of like length: token positions and which of them are inside the sequence, [b, n]."""
    lengths = segments.cu_seqlens.diff()
    bucket = torch.where(lengths > 0, lengths, 1).sub(1).clamp(min=1).log2().floor().to(torch.int64)
    for key in torch.unique(bucket[lengths > 0]).tolist():
        members = ((bucket == key) & (lengths > 0)).nonzero().squeeze(1)
        span = torch.arange(int(lengths[members].max()), device=lengths.device)
        inside = span < lengths[members, None]
        index = segments.cu_seqlens[members, None] + span
        yield torch.where(inside, index, segments.cu_seqlens[members, None]), inside


def _attend(qkv: Tensor, valid: Tensor | None, block: Tensor | None, is_causal: bool) -> Tensor:
    """Attend where the key is valid and its block not later than the query's.

    Args:
        qkv: [B, N, 3, heads, d].
        valid: bool [B, N], or None for all.
        block: block of each token, [B, N], or None for one block a row.
        is_causal: every token is a block of its own.

    Returns:
        [B, N, heads, d].
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, N, d] each
    if block is None or (is_causal and valid is None):
        mask = None if valid is None else _at_least_one(valid[:, None, None, :])
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=is_causal and block is not None
        )
        return mixed.transpose(1, 2)
    rows = []
    for start in range(0, q.shape[2], MASK_ROWS):
        part = slice(start, start + MASK_ROWS)
        mask = block[:, None, part, None] >= block[:, None, None, :]
        if valid is not None:
            mask = mask & valid[:, None, None, :]
        rows.append(F.scaled_dot_product_attention(q[:, :, part], k, v, attn_mask=_at_least_one(mask)))
    return torch.cat(rows, dim=2).transpose(1, 2) if rows else q.transpose(1, 2)


def _at_least_one(mask: Tensor) -> Tensor:
    """Let a query that sees nothing see everything: softmax over nothing is NaN. Nobody reads such a row."""
    return mask | ~mask.any(-1, keepdim=True)
