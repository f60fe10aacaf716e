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


def repeat_offsets(cu: Tensor, times: int) -> Tensor:
    """Offsets of the same runs `times` times one after another."""
    shift = torch.arange(times, device=cu.device)[:, None] * cu[-1]
    return torch.cat([cu[:1], (shift + cu[1:]).flatten()])


def seen_runs(mask: Tensor) -> tuple[Tensor, Tensor] | None:
    """Tell the run of keys that each query of a mask sees.

    Args:
        mask: which key each query sees, bool, [B, N, N], not empty.

    Returns:
        The first key of each query and one past the last, [B, N]; None where a query sees none, or sees keys
        with a gap.
    """
    count, length = mask.sum(-1), mask.shape[-1]
    first = mask.to(torch.uint8).argmax(-1)
    stop = length - mask.flip(-1).to(torch.uint8).argmax(-1)
    return (first, stop) if bool(((stop - first == count) & (count > 0)).all()) else None


def nested_offsets(first: Tensor, stop: Tensor) -> tuple[Tensor, Tensor] | None:
    """Read sequences and blocks off the runs of `seen_runs`, as if rows lay one after another.

    Returns:
        `cu_seqlens` and `cu_blocks`; None where the runs do not go from the start of a sequence to the end of
        one of its blocks.
    """
    rows, length = first.shape
    shift = torch.arange(rows, device=first.device)[:, None] * length
    first, stop = (first + shift).flatten(), (stop + shift).flatten()
    place = torch.arange(rows * length, device=first.device)
    end = place.new_full((1,), rows * length)
    opens_sequence, closes_block = first == place, stop == place + 1
    seqlens = torch.cat([place[opens_sequence], end])
    blocks = torch.cat([place[:1], stop[closes_block]])
    sequence = torch.searchsorted(seqlens, place, right=True) - 1
    block = torch.searchsorted(blocks, place, right=True)
    fits = (
        bool(torch.isin(torch.arange(rows + 1, device=place.device) * length, seqlens).all())
        and bool(torch.isin(seqlens, blocks).all())
        and bool((seqlens[sequence] == first).all())
        and bool((blocks[block] == stop).all())
    )
    return (seqlens, blocks) if fits else None


def band_of(first: Tensor, stop: Tensor) -> int | None:
    """The window centred on each query, shrunk at both ends, that the runs of `seen_runs` form, or None."""
    length = first.shape[1]
    reach = int(stop[0, 0]) - 1
    place = torch.arange(length, device=first.device)
    fits = (first == (place - reach).clamp(min=0)) & (stop == (place + reach + 1).clamp(max=length))
    return 2 * reach + 1 if bool(fits.all()) else None
