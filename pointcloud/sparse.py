"""Submanifold convolution: a dense kernel over the occupied voxels alone.

The CPU path is our own (gather, multiply, add): spconv on the CPU is wrong with more than one thread. On
CUDA spconv serves where it is installed, and our own path where it is not. Only about three of 27 neighbours
exist in a LiDAR scan, so work follows the pairs that exist and not the kernel volume.
"""

from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from geomix.errors import InputError, MissingPackageError

Backend = Literal["auto", "native", "spconv"]

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class NeighbourTable:
    """Which voxels see which under a cubic kernel; built once a stage and shared by its blocks.

    `before[k]` and `after[k]` are the pairs of half the kernel, the other half are the same pairs swapped:
    voxel `after[k][i]` is voxel `before[k][i]` moved by `steps[k]`.
    """

    kernel_size: int
    grid_coord: Tensor = field(repr=False)
    batch: Tensor = field(repr=False)
    before: tuple[Tensor, ...] = field(repr=False)
    after: tuple[Tensor, ...] = field(repr=False)

    @property
    def tokens(self) -> int:
        return len(self.grid_coord)

    @property
    def pairs(self) -> int:
        """Number of (voxel, neighbour) pairs, each voxel with itself included."""
        return self.tokens + 2 * sum(len(pairs) for pairs in self.before)

    @cached_property
    def spconv_pairs(self) -> tuple[Tensor, Tensor]:
        """The same table as spconv wants it: pairs int32 [2, k^3, N] and their number [k^3]."""
        from spconv.core import ConvAlgo
        from spconv.pytorch import ops

        indices = torch.cat([self.batch[:, None], self.grid_coord], dim=1).int().contiguous()
        size = [self.kernel_size] * 3
        shape = [int(axis) + self.kernel_size for axis in self.grid_coord.amax(0)]
        _, pairs, number = ops.get_indice_pairs(
            indices, int(self.batch.max()) + 1, shape, ConvAlgo.Native, size, [1] * 3,
            [self.kernel_size // 2] * 3, [1] * 3, [0] * 3, subm=True,
        )  # fmt: skip
        return pairs, number


def build_table(grid_coord: Tensor, batch: Tensor, kernel_size: int) -> NeighbourTable:
    """Find the neighbours of every voxel within its own cloud.

    Args:
        grid_coord: distinct voxels, integer, [N, 3].
        batch: number of the cloud of each voxel, integer, [N].
        kernel_size: edge of the kernel in voxels, odd.

    Raises:
        InputError: for an even kernel, or if a voxel occurs twice in a cloud.
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise InputError(f"a submanifold kernel has an odd edge, got {kernel_size}")
    radius = kernel_size // 2
    before: list[Tensor] = []
    after: list[Tensor] = []
    if len(grid_coord) == 0:
        before = after = [batch.long()] * (kernel_size**3 // 2)
    else:
        key, stride_x, stride_y = _keys(grid_coord.long(), batch.long(), radius)
        key, order = torch.sort(key)
        if bool((key.diff() == 0).any()):
            raise InputError("a voxel occurs twice in a cloud; voxelize merges the points of a voxel")
        rows = [(x, y) for x in range(-radius, radius + 1) for y in range(-radius, radius + 1)]
        for x, y in rows[len(rows) // 2 :]:
            base = key + (x * stride_x + y * stride_y)
            # One search a row of the kernel, then a walk along z.
            steps = range(-radius, radius + 1) if (x, y) != (0, 0) else range(1, radius + 1)
            place = torch.searchsorted(key, base + steps.start) if len(steps) else base
            for z in steps:
                found = key[place.clamp(max=len(key) - 1)] == base + z
                hit = found.nonzero()[:, 0]
                before.append(order[hit])
                after.append(order[place[hit]])
                place = place + found
    return NeighbourTable(kernel_size, grid_coord, batch, tuple(before), tuple(after))


def touching(grid: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the groups of cells that touch, also at a corner.

    Args:
        grid: cells, each once, [M, 3], or [M, 2] for a plane.

    Returns:
        The group of each cell, from 0, [M].
    """
    cells = torch.from_numpy(np.pad(grid, ((0, 0), (0, 3 - grid.shape[1]))))
    table = build_table(cells, torch.zeros(len(cells), dtype=torch.long), 3)
    before, after = torch.cat(table.before).numpy(), torch.cat(table.after).numpy()
    links = coo_array((np.ones(len(before), dtype=np.int8), (before, after)), shape=(len(cells),) * 2)
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def _keys(grid_coord: Tensor, batch: Tensor, radius: int) -> tuple[Tensor, int, int]:
    """A key a voxel so that a step in space is a constant step in the key; and the steps in x and y."""
    axes = [axis - axis.min() for axis in grid_coord.unbind(1)]
    for attempt in (0, 1):
        spans = [int(axis.max()) + 1 + 2 * radius for axis in axes]
        # Clouds lie side by side along x, a radius apart.
        x = axes[0] + batch * spans[0] if attempt == 0 else axes[0]
        stride_y = spans[2]
        stride_x = stride_y * spans[1]
        if (int(x.max()) + 1 + 2 * radius) * stride_x <= _INT64_MAX:
            return x * stride_x + axes[1] * stride_y + axes[2], stride_x, stride_y
        # Vast and almost empty: close the gaps that no kernel can bridge.
        axes = [_close_gaps(axis, radius) for axis in (x, axes[1], axes[2])]
    raise InputError(
        f"{len(grid_coord):,} voxels are spread over too large a grid for 63-bit keys; use larger voxels"
    )


def _close_gaps(axis: Tensor, radius: int) -> Tensor:
    values, inverse = torch.unique(axis, return_inverse=True)
    closed: Tensor = values.diff(prepend=values[:1]).clamp(max=radius + 1).cumsum(0)
    return closed[inverse]


class _SubmanifoldConv(torch.autograd.Function):
    """Forward and backward over the pairs; weight is [k^3, C_in, C_out]."""

    @staticmethod
    def forward(ctx: Any, feat: Tensor, weight: Tensor, table: NeighbourTable) -> Tensor:
        ctx.save_for_backward(feat, weight)
        ctx.table = table
        return _apply(feat, weight, table)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, Tensor | None, None]:
        (grad,) = grads
        feat, weight = ctx.saved_tensors
        table: NeighbourTable = ctx.table
        grad = grad.contiguous()
        grad_feat = grad_weight = None
        if ctx.needs_input_grad[0]:
            # The neighbour at +s sees this voxel at -s: the same sum with the kernel turned round.
            grad_feat = _apply(grad, weight.flip(0).transpose(1, 2), table)
        if ctx.needs_input_grad[1]:
            grad_weight = _weight_grad(feat, grad, table)
        return grad_feat, grad_weight, None


# Pairs multiplied at once: bounds the temporaries of a scene of any size.
_PAIRS_AT_ONCE = 1 << 18


def _apply(feat: Tensor, weight: Tensor, table: NeighbourTable) -> Tensor:
    half = len(table.before)
    out = feat @ weight[half]
    for k, (before, after) in enumerate(zip(table.before, table.after, strict=True)):
        ahead, behind = weight[half + 1 + k], weight[half - 1 - k]
        for start in range(0, len(before), _PAIRS_AT_ONCE):
            here, there = (pairs[start : start + _PAIRS_AT_ONCE] for pairs in (before, after))
            out.index_add_(0, here, feat.index_select(0, there) @ ahead)
            out.index_add_(0, there, feat.index_select(0, here) @ behind)
    return out


def _weight_grad(feat: Tensor, grad: Tensor, table: NeighbourTable) -> Tensor:
    half = len(table.before)
    out = feat.new_zeros(2 * half + 1, feat.shape[1], grad.shape[1])
    out[half] = feat.t() @ grad
    for k, (before, after) in enumerate(zip(table.before, table.after, strict=True)):
        out[half + 1 + k] = feat.index_select(0, after).t() @ grad.index_select(0, before)
        out[half - 1 - k] = feat.index_select(0, before).t() @ grad.index_select(0, after)
    return out


def submanifold_conv(
    feat: Tensor, weight: Tensor, table: NeighbourTable, backend: Backend = "auto"
) -> Tensor:
    """Convolve the occupied voxels: out[i] = sum over kernel steps s of weight[s] applied to feat[i + s].

    Computed in float32 also under autocast, because sums over neighbours lose bits in bfloat16.

    Args:
        feat: one row a voxel, [N, C_in].
        weight: as spconv lays it out, [C_out, k, k, k, C_in], axes x, y, z.
        table: neighbours of these voxels for a kernel of this size.
        backend: "native" is our own path, "spconv" needs that package (and one thread on the CPU), "auto"
            takes spconv on CUDA where it is installed.

    Returns:
        Features, [N, C_out].

    Raises:
        InputError: if shapes disagree.
        MissingPackageError: if spconv is asked for and not installed.
    """
    size = table.kernel_size
    if (
        weight.shape[1:4] != (size, size, size)
        or weight.shape[4] != feat.shape[1]
        or len(feat) != table.tokens
    ):
        raise InputError(
            f"a convolution of {table.tokens} voxels with a kernel of edge {size} cannot take features "
            f"{[*feat.shape]} and a weight {[*weight.shape]}"
        )
    with torch.autocast(feat.device.type, enabled=False):
        kind = feat.dtype if feat.dtype == torch.float64 else torch.float32
        feat, weight = feat.to(kind), weight.to(kind)
        if use_spconv(feat, table, backend):
            return _spconv(feat, weight, table)
        flat = weight.permute(1, 2, 3, 4, 0).reshape(size**3, feat.shape[1], len(weight))
        out: Tensor = _SubmanifoldConv.apply(feat, flat, table)  # type: ignore[no-untyped-call]
        return out


def use_spconv(feat: Tensor, table: NeighbourTable, backend: Backend) -> bool:
    """Whether spconv computes this convolution."""
    if backend == "native" or table.tokens == 0:
        return False
    installed = find_spec("spconv") is not None
    if backend == "spconv":
        if not installed:
            raise MissingPackageError(
                "spconv is not installed; use the backend native, or pip install geomix[cuda]"
            )
        return True
    # spconv counts N * k^3 pairs in 32 bits and reads outside its memory beyond.
    fits = table.tokens * table.kernel_size**3 <= _INT32_MAX
    return installed and fits and feat.is_cuda and feat.dtype == torch.float32


def _spconv(feat: Tensor, weight: Tensor, table: NeighbourTable) -> Tensor:
    from spconv.core import ConvAlgo
    from spconv.pytorch import functional

    pairs, number = table.spconv_pairs
    out: Tensor = functional.indice_subm_conv(feat, weight, pairs, number, len(feat), ConvAlgo.Native)
    return out


class SubmanifoldConv(nn.Module):
    """A layer of `submanifold_conv` with its weight in spconv's layout and initial scale.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: edge of the kernel in voxels, odd.
        bias: add a bias a channel.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(out_channels, kernel_size, kernel_size, kernel_size, in_channels)
        )
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.backend: Backend = "auto"
        bound = (in_channels * kernel_size**3) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, feat: Tensor, table: NeighbourTable) -> Tensor:
        out = submanifold_conv(feat, self.weight, table, self.backend)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        channels_out, size, _, _, channels_in = self.weight.shape
        return f"{channels_in}, {channels_out}, kernel_size={size}, bias={self.bias is not None}"
