"""Relative positions for the Polynomial Mixer: pairs of channels turned by the token's position.

Features and gates are read as complex numbers, one a pair of channels. Token j contributes phi_j e^(i w p_j),
token i takes conj(s_i e^(i w p_i)) of the mean: only differences p_j - p_i remain, exactly. (An elementwise
product of rotated gate and rotated mean, as published, is not relative.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.ops import reference
from geomix.ops.params import MixerFunctions, MixerParams
from geomix.segments import Segments

BASE = 10000.0


def rotate(rows: Tensor, position: Tensor) -> Tensor:
    """Turn each pair of channels (c, c + D / 2) by position * BASE^(-2c / D).

    Args:
        rows: [T, D], D even.
        position: [T].

    Returns:
        [T, D], in the dtype of `rows`.
    """
    half = rows.shape[1] // 2
    # float64: the angle of token 1,000,000 must not lose its fraction.
    rate = BASE ** (-torch.arange(half, dtype=torch.float64, device=rows.device) / max(half, 1))
    angle = position.double()[:, None] * rate
    cos, sin = angle.cos().to(rows.dtype), angle.sin().to(rows.dtype)
    real, imaginary = rows[:, :half], rows[:, half:]
    return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=1)


def rotary_mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Do what `ops.mix` does with rotated features and gates.

    A token's position is its place in its sequence; with a state, places go on from the tokens that it holds.
    """
    position = segments.position
    if initial_count is not None:
        position = position + initial_count[segments.sequence_of_token]
    phi = rotate(reference.features(x, params, functions), position)
    total, count = reference.visible_sum(phi, segments), reference.visible_count(segments)
    if initial_sum is not None and initial_count is not None:
        total = total + initial_sum.double()[segments.sequence_of_token]
        count = count + initial_count[segments.sequence_of_token]
    mean = (total / count.clamp(min=1)[:, None] if functions.normalize == "mean" else total).to(phi.dtype)
    g = conjugate_product(rotate(reference.gate(x, params, functions), position), mean)
    y = g.to(x.dtype) @ params.w_o.T
    if params.b_o is not None:
        y = y + params.b_o
    if segments.valid is not None:
        y = torch.where(segments.valid[:, None], y, 0.0)
    return y, reference.sequence_sum(phi, segments).to(phi.dtype)


def conjugate_product(gate: Tensor, mean: Tensor) -> Tensor:
    """Multiply conj(gate) by mean, both complex with real parts in the first half of the channels, [T, D]."""
    half = gate.shape[1] // 2
    s1, s2, h1, h2 = gate[:, :half], gate[:, half:], mean[:, :half], mean[:, half:]
    return torch.cat([s1 * h1 + s2 * h2, s1 * h2 - s2 * h1], dim=1)
