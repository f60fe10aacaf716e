"""The short way out for few gates: the output of a block lies in a space of as many dimensions as gates.

    y_i = W_o( s_i * H ) = sum over gates g of s_ig U_g        U_g = W_o[:, g's channels] H[g's channels]

U costs one small product a block, and saves the wide product a token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pays(tokens: int, blocks: int, gates: int, width: int) -> bool:
    """Tell whether the short way is the cheaper one for `blocks` blocks that share `tokens` tokens evenly."""
    return 2 * gates <= width and tokens >= 4 * blocks


def forward(s: Tensor, mean: Tensor, w_o: Tensor) -> Tensor:
    """Compute W_o(s * H).

    Args:
        s: gates of the tokens of n blocks of one length, [L, G].
        mean: what each block reads, [n, D].
        w_o: output projection, [C, D].

    Returns:
        [L, C], in the dtype of `w_o`.
    """
    u = _per_block(mean, w_o, s.shape[1])
    return torch.bmm(_by_block(s.to(w_o.dtype), len(mean)), u.to(w_o.dtype)).flatten(0, 1)


def backward(dy: Tensor, s: Tensor, mean: Tensor, w_o: Tensor, dw_o: Tensor) -> tuple[Tensor, Tensor]:
    """Go back through `forward`; adds the gradient of `w_o` to `dw_o`.

    Args:
        dy: gradient of the output, [L, C].
        s: gates, [L, G].
        mean: what each block reads, [n, D].
        w_o: output projection, [C, D].
        dw_o: running gradient of `w_o`, [C, D].

    Returns:
        Gradients of `s`, [L, G], and of `mean`, [n, D].
    """
    blocks, gates, channels = len(mean), s.shape[1], w_o.shape[0]
    dtype = s.dtype
    u = _per_block(mean, w_o, gates)
    dy = _by_block(dy, blocks)
    ds = torch.bmm(dy, u.to(dy.dtype).mT).flatten(0, 1).to(dtype)
    du = torch.bmm(_by_block(s.to(dy.dtype), blocks).mT, dy).to(dtype).transpose(0, 1)  # [G, n, C]
    rows = mean.view(blocks, gates, -1).transpose(0, 1)  # [G, n, w]
    dw_o += torch.bmm(rows.mT, du).reshape(-1, channels).T
    dmean = torch.bmm(du, _by_gate(w_o.to(dtype), gates).mT).transpose(0, 1).reshape(mean.shape)
    return ds, dmean


def _per_block(mean: Tensor, w_o: Tensor, gates: int) -> Tensor:
    """Return U of each block, [n, G, C]."""
    rows = mean.view(len(mean), gates, -1).transpose(0, 1)  # [G, n, w]
    return torch.bmm(rows, _by_gate(w_o.to(mean.dtype), gates)).transpose(0, 1)


def _by_gate(w_o: Tensor, gates: int) -> Tensor:
    """View the output projection as [G, w, C]."""
    return w_o.T.reshape(gates, -1, w_o.shape[0])


def _by_block(rows: Tensor, blocks: int) -> Tensor:
    return rows.view(blocks, -1, rows.shape[1])
