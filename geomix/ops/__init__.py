"""The Polynomial Mixer as functions of tokens and weights: one call, two fast ways to compute it.

`mix` and `observe` run fused kernels (`kernels/`) where they serve, as `kernels.why_not` says, and work in
slices (`cpu/`) everywhere else. `reference.py` is the slow truth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.ops import cpu, kernels, reference
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype
from geomix.segments import Segments

__all__ = ["MixerFunctions", "MixerParams", "mix", "observe", "read", "sum_dtype"]


def mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Let each token read the mean of the features that it sees; equations stand in `reference.mix`.

    Args:
        x: tokens, [T, C].
        params: weights of the mixer.
        segments: which token sees which; its offsets lie on the device of `x`.
        functions: activation, gate and normalisation by name.
        initial_sum: features seen before by each sequence, [sequences, D], or None.
        initial_count: how many tokens those were, int64, [sequences], or None.

    Returns:
        Outputs [T, C] and the sum of each sequence's own features, at least fp32, [sequences, D].
    """
    x, params = _autocast(x, params)
    if kernels.why_not(x, params, segments) is None:
        from geomix.ops.kernels import op

        return op.mix(x, params, segments, functions, initial_sum, initial_count)
    if initial_sum is not None:
        initial_sum = initial_sum.to(sum_dtype(x.dtype))
    if torch.compiler.is_compiling():
        return cpu.compiled.mix(x, params, segments, functions, initial_sum, initial_count)
    return cpu.mix(x, params, segments, functions, initial_sum, initial_count)


def observe(x: Tensor, params: MixerParams, segments: Segments, functions: MixerFunctions) -> Tensor:
    """Sum the features of each sequence over its valid tokens, at least fp32, [sequences, D]."""
    x, params = _autocast(x, params)
    if kernels.why_not(x, params, segments) is None:
        from geomix.ops.kernels import op

        return op.observe(x, params, segments, functions)
    if torch.compiler.is_compiling():
        return cpu.compiled.observe(x, params, segments, functions)
    return cpu.observe(x, params, segments, functions)


def read(
    x: Tensor,
    params: MixerParams,
    functions: MixerFunctions,
    segments: Segments,
    total: Tensor,
    count: Tensor,
) -> Tensor:
    """Let each token read the state of its sequence; equations and arguments stand in `reference.read`."""
    x, params = _autocast(x, params)
    return reference.read(x, params, functions, segments, total, count)


def _autocast(x: Tensor, params: MixerParams) -> tuple[Tensor, MixerParams]:
    """Cast tokens and matrices to the type that autocast asks for; sums stay in fp32 or wider."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x, params
    dtype = torch.get_autocast_dtype(kind)
    b_o = None if params.b_o is None else params.b_o.to(dtype)
    cast = params._replace(
        w_h=params.w_h.to(dtype), w_s=params.w_s.to(dtype), w_o=params.w_o.to(dtype), b_o=b_o
    )
    return x.to(dtype), cast
