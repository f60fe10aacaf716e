"""The Polynomial Mixer in plain torch, one equation a line: slow, exact, differentiable, any dtype.

Every fast path is held against this file, outputs and gradients. It is linear in the number of tokens too.

Source: Picard et al., "PoM: A Linear-Time Replacement for Attention with the Polynomial Mixer",
arXiv 2604.06129, equations 1, 2, 5 to 8; the mean in place of the sum is that of the published code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.ops.elementwise import ACTIVATIONS, GATES, pick
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype
from geomix.segments import Segments


def features(x: Tensor, params: MixerParams, functions: MixerFunctions) -> Tensor:
    """Map tokens to what the state sums: phi_j = sum_p alpha_p * h(W_h x_j)^p.

    Args:
        x: tokens, [T, C].

    Returns:
        Features, at least fp32, [T, D].
    """
    z = (x @ params.w_h.T).to(sum_dtype(x.dtype))
    h = pick(ACTIVATIONS, functions.activation, "activation").forward(z)
    coeff = params.coeff.to(h.dtype)
    phi = torch.zeros_like(h)
    for p in range(1, coeff.shape[1] + 1):
        phi = phi + coeff[:, p - 1] * h**p
    return phi


def gate(x: Tensor, params: MixerParams, functions: MixerFunctions) -> Tensor:
    """Ask how much of each state channel a token takes: s_i = sigma(W_s x_i + b), [T, D]."""
    s = pick(GATES, functions.gate, "gate").forward((x @ params.w_s.T).to(sum_dtype(x.dtype)) + params.b_s)
    return s.repeat_interleave(params.w_h.shape[0] // s.shape[1], dim=1)


def visible_sum(phi: Tensor, segments: Segments) -> Tensor:
    """Sum what each token sees: C_i = sum of the phi_j with block(j) <= block(i), same sequence, j valid.

    With a mask of its own, C_i = sum of the phi_j with M_ij = 1 (equation 4).

    Args:
        phi: features, [T, D].

    Returns:
        Sums in float64, [T, D].
    """
    phi = phi.double()
    if segments.valid is not None:
        phi = torch.where(segments.valid[:, None], phi, 0.0)
    if segments.window is not None:
        return _box_sum(phi, segments)
    if segments.mask is not None:
        return (segments.mask.double() @ phi.view(*segments.shape, -1)).view(phi.shape)
    blocks = phi.new_zeros(segments.num_blocks, phi.shape[1]).index_add(0, segments.block_of_token, phi)
    before = torch.nn.functional.pad(blocks.cumsum(0), (0, 0, 1, 0))  # [blocks + 1, D]
    first_block = torch.searchsorted(segments.cu_blocks, segments.cu_seqlens[:-1])  # [sequences]
    block, sequence = segments.block_of_token, segments.sequence_of_token
    return before[block + 1] - before[first_block[sequence]]


def visible_count(segments: Segments) -> Tensor:
    """Count the valid tokens that each token sees, float64, [T]."""
    ones = torch.ones(segments.total, 1, dtype=torch.float64, device=segments.device)
    return visible_sum(ones, segments).squeeze(1).round()


def sequence_sum(phi: Tensor, segments: Segments) -> Tensor:
    """Sum the features of each sequence over its valid tokens, float64, [sequences, D]."""
    phi = phi.double()
    if segments.valid is not None:
        phi = torch.where(segments.valid[:, None], phi, 0.0)
    return phi.new_zeros(segments.num_sequences, phi.shape[1]).index_add(0, segments.sequence_of_token, phi)


def mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Let each token read the mean of the features that it sees.

    H_i = C_i / n_i ; y_i = W_o( s_i * H_i ) + b_o. A token that sees nothing has H_i = 0.

    Args:
        x: tokens, [T, C].
        params: weights of the mixer.
        segments: which token sees which.
        functions: activation, gate and normalisation by name.
        initial_sum: features seen before by each sequence, [sequences, D], or None.
        initial_count: how many tokens those were, [sequences], or None.

    Returns:
        Outputs [T, C], 0 where a token is not valid, and the sum of each sequence's features
        (without `initial_sum`), [sequences, D].
    """
    phi = features(x, params, functions)
    c, n = visible_sum(phi, segments), visible_count(segments)
    if initial_sum is not None and initial_count is not None:
        c = c + initial_sum.double()[segments.sequence_of_token]
        n = n + initial_count[segments.sequence_of_token]
    h = (c / n.clamp(min=1)[:, None] if functions.normalize == "mean" else c).to(phi.dtype)
    y = (gate(x, params, functions) * h).to(x.dtype) @ params.w_o.T
    if params.b_o is not None:
        y = y + params.b_o
    if segments.valid is not None:
        y = torch.where(segments.valid[:, None], y, 0.0)
    return y, sequence_sum(phi, segments).to(phi.dtype)


def read(
    x: Tensor,
    params: MixerParams,
    functions: MixerFunctions,
    segments: Segments,
    total: Tensor,
    count: Tensor,
) -> Tensor:
    """Let each token read the state of its sequence: y_i = W_o( s_i * total / count ) + b_o.

    Args:
        x: tokens, [T, C].
        total: sum of features of each sequence, [sequences, D].
        count: how many tokens that sum holds, [sequences].

    Returns:
        Outputs, [T, C].
    """
    mean = total / count.clamp(min=1)[:, None].to(total.dtype) if functions.normalize == "mean" else total
    y = (gate(x, params, functions) * mean[segments.sequence_of_token]).to(x.dtype) @ params.w_o.T
    if params.b_o is not None:
        y = y + params.b_o
    return y if segments.valid is None else torch.where(segments.valid[:, None], y, 0.0)


def _box_sum(phi: Tensor, segments: Segments) -> Tensor:
    """Sum over the box around each token of a grid, shrunk at the border, by prefix sums along each axis."""
    if segments.grid_shape is None or segments.window is None:
        raise ValueError("a box sum needs segments with a grid and a window")
    value = phi.reshape(segments.num_sequences, *segments.grid_shape, phi.shape[1])
    for axis, size in enumerate(segments.window, start=1):
        length, reach = value.shape[axis], size // 2
        before = torch.cat(
            [torch.zeros_like(value.narrow(axis, 0, min(1, length))), value.cumsum(axis)], axis
        )
        place = torch.arange(length, device=value.device)
        stop, start = (place + reach + 1).clamp(max=length), (place - reach).clamp(min=0)
        value = before.index_select(axis, stop) - before.index_select(axis, start)
    return value.reshape(phi.shape)
