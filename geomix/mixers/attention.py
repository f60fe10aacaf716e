"""Softmax attention under the mixers' common call: the baseline, and half of every hybrid.

Source: Vaswani et al., arXiv 1706.03762; computed by torch's scaled_dot_product_attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.mixers.base import Mixer
from geomix.mixers.quadratic import (
    Visible,
    at_least_one,
    by_query,
    check_quadratic,
    hide_invalid,
    mix_rows,
    split_heads,
)
from geomix.mixers.state import State
from geomix.segments import Segments


class Attention(Mixer):
    """Mix tokens by softmax attention with several heads; O(n^2)."""

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
        self.dim, self.heads, self.head_dim = dim, heads, split_heads(dim, heads, head_dim)
        self.qkv = nn.Linear(dim, 3 * heads * self.head_dim, bias=qkv_bias)
        self.out = nn.Linear(heads * self.head_dim, dim, bias=out_bias)

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor:
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
        segments = check_quadratic("attention", self.dim, x, segments, state, return_state)
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.heads, self.head_dim)
        mixed = mix_rows(qkv, segments, softmax_attention)
        return hide_invalid(self.out(mixed.flatten(-2)), segments)


def softmax_attention(qkv: Tensor, visible: Visible) -> Tensor:
    """Compute softmax(q k^T / sqrt(d)) v over the keys that each query sees.

    Args:
        qkv: [B, N, 3, heads, d].
        visible: which token of a row sees which.

    Returns:
        [B, N, heads, d].
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, N, d] each
    if visible.is_whole_row or (visible.is_causal and visible.valid is None):
        mask = None if visible.valid is None else at_least_one(visible.valid[:, None, None, :])
        is_causal = visible.block is not None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal).transpose(1, 2)

    def attend(queries: slice) -> Tensor:
        mask = visible.mask(queries)
        seen = None if mask is None else at_least_one(mask)[:, None]
        mixed = F.scaled_dot_product_attention(q[:, :, queries], k, v, attn_mask=seen)
        if visible.own is not None:
            # Somebody reads these rows: a query that sees nothing takes nothing.
            mixed = mixed.masked_fill(~visible.own[:, None, queries].any(-1, keepdim=True), 0.0)
        return mixed

    rows = [part for (part,) in by_query(q.shape[2], attend)]
    return torch.cat(rows, dim=2).transpose(1, 2)
