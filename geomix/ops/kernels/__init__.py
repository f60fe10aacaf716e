"""The mixer in fused Triton kernels: `op.mix` and `op.observe`, for tokens on a CUDA device.

`why_not` says whether they serve a call. Nothing here imports triton until they do.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from geomix.ops.params import MixerParams
from geomix.segments import Segments

MOST_POWERS = 16
"""Degree up to which there are kernels."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def why_not(x: Tensor, params: MixerParams, segments: Segments) -> str | None:
    """Say why the kernels do not serve a call, or return None where they do."""
    if x.device.type != "cuda":
        return f"the tokens lie on {x.device.type}, the kernels run on CUDA"
    return why_not_here() or why_not_these(x, params, segments)


@cache
def why_not_here() -> str | None:
    """Say why the kernels cannot run in this installation, or return None where they can."""
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if find_spec("triton") is None:
        return "triton is not installed"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the CUDA device is older than compute capability 8.0"
    return None


# What `torch.compiler.assume_constant_result` does; to call it would import the whole compiler.
why_not_here._dynamo_marked_constant = True  # type: ignore[attr-defined]


def why_not_these(x: Tensor, params: MixerParams, segments: Segments) -> str | None:
    """Say why the kernels do not serve such tokens, weights and segments, or return None where they do."""
    if x.dtype not in _DTYPES:
        return f"the kernels take fp32, bf16 and fp16, not {x.dtype}"
    if any(weight.dtype != x.dtype for weight in (params.w_h, params.w_s, params.w_o)):
        return "tokens and projections differ in type"
    if params.coeff.shape[1] > MOST_POWERS:
        return f"the kernels take degrees up to {MOST_POWERS}"
    if segments.window is not None or segments.mask is not None:
        return "local windows and masks have no kernel"
    if segments.total == 0:
        return "there are no tokens"
    return None
