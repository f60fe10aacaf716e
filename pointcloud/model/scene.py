"""The geometry of a batch of clouds, computed once and shared by all blocks of a stage.

Voxels lie in Z-order within their cloud, so the eight children of a coarse voxel lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from geomix import Segments
from pointcloud.serialization import BITS, encode
from pointcloud.sparse import NeighbourTable, build_table


@dataclass(frozen=True)
class Context:
    """Which voxels a mixer sees together."""

    segments: Segments
    """The windows, one after another."""
    gather: Tensor | None = None
    """The voxel at each place of the windows; None where windows run along the voxels as they lie."""
    scatter: Tensor | None = None
    """The place of each voxel in the windows."""


@dataclass
class Stage:
    """The voxels of one resolution."""

    grid_coord: Tensor
    """[M, 3], sorted by (cloud, Morton code)."""
    batch: Tensor
    """The cloud of each voxel, [M]."""
    cu_seqlens: Tensor
    """Where each cloud starts and the last one ends, [clouds + 1]."""
    codes: dict[str, Tensor]
    """Code of each voxel on each curve in use, and always on "z"."""
    published: bool = False
    _tables: dict[int, NeighbourTable] = field(default_factory=dict)
    _orders: dict[str, tuple[Tensor, Tensor] | None] = field(default_factory=dict)
    _contexts: dict[tuple[str, int | None], Context] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.batch)

    def table(self, kernel_size: int) -> NeighbourTable:
        """Neighbours under a kernel, found once."""
        if kernel_size not in self._tables:
            self._tables[kernel_size] = build_table(self.grid_coord, self.batch, kernel_size)
        return self._tables[kernel_size]

    def forget_table(self, kernel_size: int) -> None:
        """Free the neighbours under a kernel that no other layer needs."""
        self._tables.pop(kernel_size, None)

    def context(self, order: str, patch_size: int | None) -> Context:
        """Windows of at most `patch_size` voxels along a curve, or each cloud whole.

        The windows of a cloud differ by one voxel at most: nothing is padded and nothing borrowed.
        """
        # Inside a whole cloud the order is free: mixers do not see it.
        key = ("z" if patch_size is None else order, patch_size)
        if key not in self._contexts:
            self._contexts[key] = self._context(*key)
        return self._contexts[key]

    def _context(self, order: str, patch_size: int | None) -> Context:
        if patch_size is None:
            return Context(Segments.packed(self.cu_seqlens))
        along = self._along(order)
        if self.published:
            return self._borrowing(along, patch_size)
        segments = Segments.packed(even_windows(self.cu_seqlens, patch_size))
        return Context(segments) if along is None else Context(segments, *along)

    def _along(self, order: str) -> tuple[Tensor, Tensor] | None:
        """The permutation to a curve and back; None for the curve on which the voxels lie already."""
        if order == "z":
            return None
        if order not in self._orders:
            gather = torch.argsort(self.codes[order], stable=True)
            gather = gather[torch.argsort(self.batch[gather], stable=True)]
            scatter = torch.empty_like(gather)
            scatter[gather] = torch.arange(len(gather), device=gather.device)
            self._orders[order] = (gather, scatter)
        return self._orders[order]

    def _borrowing(self, along: tuple[Tensor, Tensor] | None, patch_size: int) -> Context:
        """The published windows: all full, the last one of a cloud filled up with the voxels before it."""
        count = self.cu_seqlens.diff()
        windows = (count + patch_size - 1) // patch_size
        padded = torch.where(count > patch_size, windows * patch_size, count)
        start = torch.nn.functional.pad(padded.cumsum(0), (1, 0))
        cloud = torch.repeat_interleave(torch.arange(len(count), device=count.device), padded)
        place = torch.arange(len(cloud), device=count.device) - start[cloud]
        borrowed = place - patch_size
        place = torch.where(place < count[cloud], place, borrowed)
        gather = self.cu_seqlens[cloud] + place
        moved = start[:-1] - self.cu_seqlens[:-1]
        scatter = torch.arange(len(self), device=count.device) + moved[self.batch]
        if along is not None:
            gather, scatter = along[0][gather], scatter[along[1]]
        return Context(Segments.packed(even_windows(start, patch_size)), gather, scatter)


def even_windows(cu_seqlens: Tensor, patch_size: int) -> Tensor:
    """Cut each sequence into the fewest windows of at most `patch_size` tokens, as even as can be.

    Args:
        cu_seqlens: where each sequence starts and the last one ends, [sequences + 1].
        patch_size: the longest window.

    Returns:
        Where each window starts and the last one ends; an empty sequence has no window.
    """
    count = cu_seqlens.diff()
    windows = (count + patch_size - 1) // patch_size
    cloud = torch.repeat_interleave(torch.arange(len(count), device=count.device), windows)
    number = torch.arange(len(cloud), device=count.device) - (windows.cumsum(0) - windows)[cloud]
    starts = cu_seqlens[cloud] + number * count[cloud] // windows[cloud]
    return torch.cat([starts, cu_seqlens[-1:]])


@dataclass(frozen=True)
class Pooling:
    """From a stage to the next coarser one."""

    cluster: Tensor
    """The coarse voxel of each voxel, ascending, [M]."""
    sizes: Tensor
    """Voxels in each coarse voxel, 1 to 8."""


def first_stage(
    grid_coord: Tensor, cu_seqlens: Tensor, orders: tuple[str, ...], published: bool = False
) -> tuple[Stage, Tensor]:
    """Sort voxels into Z-order within their clouds.

    Args:
        grid_coord: distinct voxels of each cloud, int64, [M, 3].
        cu_seqlens: where each cloud starts and the last one ends, [clouds + 1].
        orders: the curves that windows will follow.
        published: take the depth of the curve from the extent, as the published code does.

    Returns:
        The finest stage, and the index of each of its voxels in the input, [M].
    """
    count = cu_seqlens.diff()
    batch = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    bits = BITS
    if published and len(grid_coord):
        bits = max(int(grid_coord.max()).bit_length(), 1)
    codes = {order: encode(grid_coord, order, bits) for order in ("z", *orders)}
    order = torch.argsort(codes["z"], stable=True)
    order = order[torch.argsort(batch[order], stable=True)]
    codes = {name: code[order] for name, code in codes.items()}
    return Stage(grid_coord[order], batch, cu_seqlens, codes, published), order


def coarser(stage: Stage) -> tuple[Stage, Pooling]:
    """Halve the resolution: the eight voxels of a coarse voxel share all but three bits of their codes."""
    parent = stage.codes["z"] >> 3
    is_first = torch.ones_like(parent, dtype=torch.bool)
    is_first[1:] = (parent.diff() != 0) | (stage.batch.diff() != 0)
    first = is_first.nonzero()[:, 0]
    cluster = is_first.cumsum(0) - 1
    sizes = first.diff(append=first.new_tensor([len(parent)]))
    batch = stage.batch[first]
    count = torch.bincount(batch, minlength=len(stage.cu_seqlens) - 1)
    coarse = Stage(
        stage.grid_coord[first] >> 1,
        batch,
        torch.nn.functional.pad(count.cumsum(0), (1, 0)),
        {name: code[first] >> 3 for name, code in stage.codes.items()},
        stage.published,
    )
    return coarse, Pooling(cluster, sizes)
