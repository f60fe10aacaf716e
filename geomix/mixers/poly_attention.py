"""Attention with a polynomial in place of softmax.

    y_i = sum over the N tokens j that i sees of phi(q_i . k_j / sqrt(d)) v_j        phi(s) = s^p / sqrt(N)

The weights may be negative and need not sum to 1; dividing by sqrt(N) keeps the Frobenius norm of the weights
at O(sqrt(N)), where softmax keeps it. Cost: O(N^2 d) for p = 2 and 3; O(N d^2) for p = 1, where
(q k^T) v = q (k^T v).

Source: Saratchandran et al., "Rethinking Softmax: Self-Attention with Polynomial Activations",
arXiv 2410.18613, theorems 4.1 and 4.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.errors import UnsupportedError
from geomix.mixers.base import Mixer
from geomix.mixers.quadratic import Visible, by_query, check_quadratic, hide_invalid, mix_rows, split_heads
from geomix.mixers.state import State
from geomix.segments import Segments

CHUNK = 64
"""Tokens of one causal step of the linear form."""


class PolyAttention(Mixer):
    """Mix tokens by attention whose weights are powers of the scores."""

    def __init__(
        self,
        dim: int,
        *,
        degree: int = 3,
        heads: int = 8,
        head_dim: int | None = None,
        scale: float | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
    ) -> None:
        """Build the projections.

        Args:
            dim: width of the tokens, C.
            degree: p, 1 to 3; larger powers have no gradient near 0.
            heads: number of heads.
            head_dim: width of a head; None: dim / heads.
            scale: a fixed factor in place of 1 / sqrt(N), such as 1 / 14; None: each row's own N.
            qkv_bias: bias of the query, key and value projection.
            out_bias: bias of the output projection.

        Raises:
            UnsupportedError: if the degree is not 1, 2 or 3, or `heads` does not divide `dim`.
        """
        super().__init__()
        if degree not in (1, 2, 3):
            raise UnsupportedError(f"the degree of poly_attention must be 1, 2 or 3, got {degree}")
        self.dim, self.degree, self.scale = dim, degree, scale
        self.heads, self.head_dim = heads, split_heads(dim, heads, head_dim)
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
        """Mix tokens; arguments and results as for `Attention`."""
        segments = check_quadratic("poly_attention", self.dim, x, segments, state, return_state)
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.heads, self.head_dim)
        mixed = mix_rows(
            qkv, segments, lambda rows, visible: poly_attention(rows, visible, self.degree, self.scale)
        )
        return hide_invalid(self.out(mixed.flatten(-2)), segments)


def poly_attention(qkv: Tensor, visible: Visible, degree: int, scale: float | None = None) -> Tensor:
    """Compute sum_j phi(q_i . k_j / sqrt(d)) v_j over the keys that each query sees.

    Args:
        qkv: [B, N, 3, heads, d].
        visible: which token of a row sees which; masks apply after phi.
        degree: p of phi(s) = s^p / sqrt(N).
        scale: a factor in place of 1 / sqrt(N), N being the number of keys that a query sees.

    Returns:
        [B, N, heads, d], 0 where nothing is seen.
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, N, d] each
    q = q / q.shape[-1] ** 0.5
    if visible.valid is not None:
        hidden = ~visible.valid[:, None, :, None]
        k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    if degree == 1 and (visible.is_whole_row or visible.is_causal):
        mixed = q @ (k.mT @ v) if visible.block is None else _linear_causal(q, k, v)
    else:

        def attend(queries: slice) -> Tensor:
            weights = (q[:, :, queries] @ k.mT) ** degree
            mask = None if visible.is_whole_row else visible.mask(queries)
            if mask is not None:
                weights = weights.masked_fill(~mask[:, None], 0.0)
            part: Tensor = weights @ v
            return part

        mixed = torch.cat([part for (part,) in by_query(q.shape[2], attend)], dim=2)
    result: Tensor = mixed * _factor(q, visible, scale)
    return result.transpose(1, 2)


def _factor(q: Tensor, visible: Visible, scale: float | None) -> Tensor | float:
    """Return the scale, or 1 / sqrt of the number of keys that each query sees, [B or 1, 1, N or 1, 1]."""
    if scale is not None:
        return scale
    length = q.shape[2]
    if visible.own is not None:
        return visible.own.sum(-1).clamp(min=1).to(q.dtype).rsqrt()[:, None, :, None]
    if visible.block is None and visible.valid is None:
        return float(max(length, 1) ** -0.5)
    exists = torch.ones(1, length, device=q.device) if visible.valid is None else visible.valid.float()
    if visible.block is None:
        count = exists.sum(1, keepdim=True)
    else:
        # The keys of block b and before: the running count at the last token of b.
        last = torch.searchsorted(visible.block.contiguous(), visible.block.contiguous(), right=True) - 1
        count = exists.cumsum(1).expand(len(last), -1).gather(1, last)
    return count.clamp(min=1).to(q.dtype).rsqrt()[:, None, :, None]


def _linear_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute sum_{j <= i} (q_i . k_j) v_j: earlier chunks as one d x d sum, the own one by pairs."""
    batch, heads, length, width = q.shape
    size = max(1, min(CHUNK, length))
    extra = -length % size
    q, k, v = (nn.functional.pad(t, (0, 0, 0, extra)).view(batch, heads, -1, size, width) for t in (q, k, v))
    sums = k.mT @ v  # [B, heads, chunks, d, d]
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums.cumsum(2)[:, :, :-1]], dim=2)
    mixed: Tensor = q @ before + (q @ k.mT).tril() @ v
    return mixed.flatten(2, 3)[:, :, :length]


def poly_attention_reference(qkv: Tensor, sees: Tensor, degree: int, scale: float | None = None) -> Tensor:
    """Compute `poly_attention` from its definition, in any dtype.

    Args:
        qkv: [N, 3, heads, d].
        sees: which token sees which, bool [N, N].
        degree: p.
        scale: a factor in place of 1 / sqrt(N).

    Returns:
        [N, heads, d].
    """
    q, k, v = qkv.permute(1, 2, 0, 3)
    s = q @ k.mT / q.shape[-1] ** 0.5
    count = sees.sum(1).clamp(min=1).to(s.dtype)[:, None]
    phi = s**degree * (count**-0.5 if scale is None else scale)
    mixed: Tensor = (phi * sees) @ v
    return mixed.transpose(0, 1)
