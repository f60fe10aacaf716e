"""Space-filling curves: one integer a voxel, near in code means near in space.

Codes are int64 with up to 21 bits an axis, so 63 bits in all: none is left for a batch number. Clouds of a
batch are kept apart by sorting on (batch, code) instead.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from geomix.errors import InputError

BITS = 21
"""Bits an axis: a code of three axes fills 63 bits of an int64."""

# Spread 21 bits three apart: each step doubles the gap (shift, mask of the bits that are in place).
_SPREAD = (
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def check_grid(grid_coord: Tensor, bits: int = BITS, voxel_size: float | None = None) -> None:
    """Refuse voxels that a code of `bits` bits an axis cannot hold.

    Args:
        grid_coord: voxel coordinates, integer, [N, 3].
        bits: bits an axis, 1 to 21.
        voxel_size: edge of a voxel in metres, to name sizes in the message.

    Raises:
        InputError: naming the extent, the voxel size and the smallest voxel size that works.
    """
    if not 1 <= bits <= BITS:
        raise InputError(f"a curve has 1 to {BITS} bits an axis, got {bits}")
    if grid_coord.ndim != 2 or grid_coord.shape[1] != 3 or grid_coord.is_floating_point():
        raise InputError(
            f"voxel coordinates are integers [N, 3], got {grid_coord.dtype} {[*grid_coord.shape]}"
        )
    if len(grid_coord) == 0:
        return
    low, high = int(grid_coord.min()), int(grid_coord.max())
    if low >= 0 and high < 1 << bits:
        return
    extent = high - min(low, 0) + 1
    size = f"voxels of {voxel_size:g} m" if voxel_size else "voxels (size unknown)"
    # The smallest size that works scales with the extent; in metres when the size is known.
    least = _round_up(extent / (1 << bits) * (voxel_size or 1.0))
    way_out = f"{least:g} m" if voxel_size else f"{least:g} times as large"
    what = "negative voxel coordinates" if low < 0 else "too many voxels for the curve"
    raise InputError(
        f"{what}: coordinates from {low} to {high}, an extent of {extent:,} {size}, but {bits} bits an axis "
        f"hold 0 to {(1 << bits) - 1:,}; subtract the minimum and use voxels of at least {way_out}"
    )


def _round_up(value: float) -> float:
    """To three digits, upwards: a size that is printed must work."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / step) * step:.3g}")


def _spread(x: Tensor) -> Tensor:
    for shift, mask in _SPREAD:
        x = (x | (x << shift)) & mask
    return x


def _gather(x: Tensor) -> Tensor:
    x = x & _SPREAD[-1][1]
    masks = [mask for _, mask in _SPREAD[-2::-1]] + [0x1FFFFF]
    for (shift, _), mask in zip(reversed(_SPREAD), masks, strict=True):
        x = (x | (x >> shift)) & mask
    return x


def _interleave(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (_spread(x) << 2) | (_spread(y) << 1) | _spread(z)


def morton_encode(grid_coord: Tensor) -> Tensor:
    """Z-order code of voxels: the bits of x, y and z interleaved, x first.

    Args:
        grid_coord: voxel coordinates from 0 to 2^21 - 1, integer, [N, 3].

    Returns:
        Codes, int64, [N].

    Raises:
        InputError: if a coordinate is out of range.
    """
    check_grid(grid_coord)
    x, y, z = grid_coord.long().unbind(1)
    return _interleave(x, y, z)


def morton_decode(code: Tensor) -> Tensor:
    """Voxel coordinates [N, 3] of Z-order codes [N]."""
    code = code.long()
    return torch.stack([_gather(code >> 2), _gather(code >> 1), _gather(code)], dim=1)


def hilbert_encode(grid_coord: Tensor, bits: int = BITS) -> Tensor:
    """Hilbert code of voxels: neighbours on the curve are neighbours in space.

    The orientation of the curve depends on `bits`; with the default it does not depend on the extent of the
    cloud. The codes of the parents (`grid_coord >> 1`) at `bits - 1` are these codes shifted by 3.

    Args:
        grid_coord: voxel coordinates from 0 to 2^bits - 1, integer, [N, 3].
        bits: bits an axis, 1 to 21.

    Returns:
        Codes, int64, [N].

    Raises:
        InputError: if a coordinate is out of range.

    Source: Skilling, Programming the Hilbert curve, AIP Conf. Proc. 707, 2004.
    """
    check_grid(grid_coord, bits)
    axes = [axis.clone() for axis in grid_coord.to(torch.int32).unbind(1)]  # 21 bits fit in 32
    for bit in range(bits - 1, 0, -1):
        low = (1 << bit) - 1
        for i in range(3):
            high = -((axes[i] >> bit) & 1)  # all ones where the bit is set
            swap = (axes[0] ^ axes[i]) & low & ~high
            axes[0] = axes[0] ^ (low & high) ^ swap
            if i:
                axes[i] = axes[i] ^ swap
    axes[1] = axes[1] ^ axes[0]
    axes[2] = axes[2] ^ axes[1]
    flip = torch.zeros_like(axes[2])
    for bit in range(bits - 1, 0, -1):
        flip ^= -((axes[2] >> bit) & 1) & ((1 << bit) - 1)
    x, y, z = ((axis ^ flip).long() for axis in axes)
    return _interleave(x, y, z)


def hilbert_decode(code: Tensor, bits: int = BITS) -> Tensor:
    """Voxel coordinates [N, 3] of Hilbert codes [N] of `bits` bits an axis."""
    axes = [axis.to(torch.int32) for axis in morton_decode(code).unbind(1)]
    top = axes[2] >> 1
    axes[2] = axes[2] ^ axes[1]
    axes[1] = axes[1] ^ axes[0]
    axes[0] = axes[0] ^ top
    for bit in range(1, bits):
        low = (1 << bit) - 1
        for i in (2, 1, 0):
            high = -((axes[i] >> bit) & 1)
            swap = (axes[0] ^ axes[i]) & low & ~high
            axes[0] = axes[0] ^ (low & high) ^ swap
            if i:
                axes[i] = axes[i] ^ swap
    return torch.stack(axes, dim=1).long()


def _transposed(encode_curve: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    return lambda grid_coord, bits: encode_curve(grid_coord[:, [1, 0, 2]], bits)


def _morton(grid_coord: Tensor, bits: int) -> Tensor:
    check_grid(grid_coord, bits)
    return morton_encode(grid_coord)


_CURVES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "z": _morton,
    "z-trans": _transposed(_morton),
    "hilbert": hilbert_encode,
    "hilbert-trans": _transposed(hilbert_encode),
}

ORDERS = tuple(_CURVES)
"""The four serialisations; "trans" swaps x and y."""


def encode(grid_coord: Tensor, order: str, bits: int = BITS) -> Tensor:
    """Code of each voxel on the curve named `order` (one of `ORDERS`), int64, [N].

    Raises:
        InputError: for an unknown order or coordinates out of range.
    """
    if order not in _CURVES:
        raise InputError(f"unknown order {order!r}; the orders are {', '.join(ORDERS)}")
    return _CURVES[order](grid_coord, bits)


def serialize(grid_coord: Tensor, batch: Tensor, order: str, bits: int = BITS) -> Tensor:
    """The permutation that sorts voxels by (batch, code).

    Args:
        grid_coord: voxel coordinates, integer, [N, 3].
        batch: number of the cloud of each voxel, integer, [N].
        order: one of `ORDERS`.
        bits: bits an axis.

    Returns:
        Indices into the voxels, int64, [N]; voxels of equal code keep their order.
    """
    by_code = torch.argsort(encode(grid_coord, order, bits), stable=True)
    return by_code[torch.argsort(batch[by_code], stable=True)]
