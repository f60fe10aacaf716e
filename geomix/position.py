"""Position codes that exist for any length, place and time gap.

Mixers do not know the order of their tokens. These codes are computed, not looked up, so a longer page, a
larger scene or a year that was not trained on needs no new weights.

Source: Vaswani et al., arXiv 1706.03762, section 3.5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geomix.errors import UnsupportedError


def sincos(
    position: Tensor, dim: int, *, min_period: float = 2 * math.pi, max_period: float = 2 * math.pi * 1e4
) -> Tensor:
    """Encode positions by sines and cosines whose periods grow geometrically.

    Args:
        position: integers or reals (tokens, metres, days), [...].
        dim: width of the code, even.
        min_period: shortest period, in the unit of `position`.
        max_period: longest period, in the unit of `position`.

    Returns:
        [..., dim], fp32 (fp64 for fp64 positions): sines in the first half, cosines in the second.

    Raises:
        UnsupportedError: if `dim` is odd.
    """
    if dim < 2 or dim % 2:
        raise UnsupportedError(f"a sine-cosine code needs an even width, got {dim}")
    half = dim // 2
    # float64: position 1,000,000 over a period of 6 must keep its phase.
    share = torch.arange(half, dtype=torch.float64, device=position.device) / max(half - 1, 1)
    period = min_period * (max_period / min_period) ** share
    angle = position.double()[..., None] * (2 * math.pi / period)
    code = torch.cat([angle.sin(), angle.cos()], dim=-1)
    return code if position.dtype == torch.float64 else code.float()


def sincos_2d(
    yx: Tensor, dim: int, *, min_period: float = 2 * math.pi, max_period: float = 2 * math.pi * 1e4
) -> Tensor:
    """Encode places in the plane: the first half of the channels tells y, the second x.

    Args:
        yx: [..., 2], (y, x).
        dim: width of the code, a multiple of 4.
        min_period: shortest period, in the unit of `yx`.
        max_period: longest period, in the unit of `yx`.

    Returns:
        [..., dim], fp32 (fp64 for fp64 positions).

    Raises:
        UnsupportedError: if `dim` is not a multiple of 4.
    """
    if dim < 4 or dim % 4:
        raise UnsupportedError(f"a code of two axes needs a width that 4 divides, got {dim}")
    return sincos(yx, dim // 2, min_period=min_period, max_period=max_period).flatten(-2)


def grid_yx(shape: tuple[int, int], device: torch.device | None = None) -> Tensor:
    """List the (y, x) of every cell of a grid in row-major order, float32, [h * w, 2]."""
    y = torch.arange(shape[0], dtype=torch.float32, device=device)
    x = torch.arange(shape[1], dtype=torch.float32, device=device)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).reshape(-1, 2)
