"""What a Polynomial Mixer is made of: its weights and the names of its elementwise functions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class MixerParams(NamedTuple):
    """Weights of one mixer; C is the width of the tokens, D that of the state, G the number of gates."""

    w_h: Tensor
    """Projection of the tokens, [D, C]."""
    coeff: Tensor
    """Coefficients of the polynomial, power p in column p - 1, [D, k]."""
    w_s: Tensor
    """Projection of the gates, [G, C]; G divides D."""
    b_s: Tensor
    """Bias of the gates, [G]."""
    w_o: Tensor
    """Output projection, [C, D]."""
    b_o: Tensor | None = None
    """Output bias, [C], or None."""


class MixerFunctions(NamedTuple):
    """The elementwise functions of one mixer, by name."""

    activation: str = "clamped_leaky_relu"
    """h, a key of `elementwise.ACTIVATIONS`."""
    gate: str = "sigmoid"
    """sigma, a key of `elementwise.GATES`."""
    normalize: str = "mean"
    """"mean": a state is a mean, so that lengths may change; "sum": as the paper's text writes it."""


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type that features and sums are kept in for tokens of `dtype`: at least fp32."""
    return torch.promote_types(dtype, torch.float32)
