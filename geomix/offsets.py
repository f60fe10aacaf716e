"""Runs of items that lie one after another, told by where each starts and the last one ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geomix.errors import SegmentsError


def check_offsets(values: Tensor | Sequence[int], name: str) -> Tensor:
    """Check offsets and return them as int64.

    Raises:
        SegmentsError: if they are not integers that start at 0 and never decrease.
    """
    cu = torch.as_tensor(values)
    if (
        cu.ndim != 1
        or cu.numel() < 1
        or cu.dtype.is_floating_point
        or cu.dtype in (torch.bool, torch.complex64)
    ):
        raise SegmentsError(
            f"{name} must be a list of integers that starts at 0, got {cu.dtype} {list(cu.shape)}"
        )
    cu = cu.to(torch.int64)
    if cu[0] != 0:
        raise SegmentsError(f"{name} must start at 0, got {short(cu)}")
    if cu.numel() > 1 and bool((cu.diff() < 0).any()):
        raise SegmentsError(f"{name} must not decrease, got {short(cu)}")
    return cu


def split_runs(cu: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cut the runs between offsets into pieces of at most `size`: their offsets, and the run of each."""
    pieces = (cu.diff() + size - 1).div(size, rounding_mode="floor")
    run = torch.repeat_interleave(torch.arange(pieces.numel(), device=cu.device), pieces)
    first = pieces.cumsum(0) - pieces
    place = torch.arange(run.numel(), device=cu.device) - first[run]
    return torch.cat([cu[:-1][run] + place * size, cu[-1:]]), run


def members(cu: Tensor, total: int) -> Tensor:
    """The run of each of `total` items, given the runs' offsets."""
    runs = torch.arange(cu.numel() - 1, device=cu.device)
    return torch.repeat_interleave(runs, cu.diff(), output_size=total)


def short(cu: Tensor) -> str:
    """Write the first offsets for a message."""
    values = cu[:6].tolist()
    return f"[{', '.join(map(str, values))}{', ...' if cu.numel() > 6 else ''}]"
