"""Grid sampling: points to voxels and back, the same wherever on earth the cloud lies."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from geomix.errors import InputError
from pointcloud.serialization import BITS, check_grid, morton_encode

# Steps a metre and a voxel to which float64 is trusted: a cloud at 6,000,000 m carries noise of 1e-9 m, and
# a point on the border of two voxels would otherwise change its voxel with the place of the cloud.
_STEPS_PER_METRE = 1 << 20
_STEPS_PER_VOXEL = 1 << 16


class Voxels(NamedTuple):
    """The occupied voxels of a cloud, in Z-order."""

    grid_coord: NDArray[np.int64]
    """Voxel coordinates, from 0, [M, 3]."""
    inverse: NDArray[np.int64]
    """The voxel of each point, [N]."""
    representative: NDArray[np.int64]
    """The point nearest to the centre of each voxel, [M]."""


def relative(coord: NDArray[Any]) -> NDArray[np.float64]:
    """Coordinates from the lower corner of the cloud, rounded to a micrometre.

    Adding a constant to all coordinates changes nothing, as long as float64 holds the sum to 1e-7.

    Args:
        coord: finite coordinates in metres, [N, 3].

    Raises:
        InputError: for another shape, or if a coordinate is NaN or infinite.
    """
    coord = np.asarray(coord, dtype=np.float64)
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise InputError(f"coordinates are [N, 3], got {list(coord.shape)}")
    if len(coord) == 0:
        return coord.copy()
    if not np.isfinite(coord).all():
        bad = int((~np.isfinite(coord)).any(axis=1).sum())
        raise InputError(
            f"{bad} of {len(coord)} points have a NaN or infinite coordinate; mask them out first"
        )
    local = coord - coord.min(axis=0)
    snapped: NDArray[np.float64] = np.round(local * _STEPS_PER_METRE) / _STEPS_PER_METRE
    return snapped


def voxelize(coord: NDArray[Any], size: float) -> Voxels:
    """Group points by voxels of edge `size`.

    Args:
        coord: finite coordinates in metres, float64, [N, 3]; any origin.
        size: edge of a voxel in metres.

    Returns:
        The occupied voxels, counted from the lower corner of the cloud.

    Raises:
        InputError: if a coordinate is not finite, or the cloud has more than 2^21 voxels along an axis.
    """
    if not (np.isfinite(size) and size > 0):
        raise InputError(f"a voxel has an edge above 0 m, got {size}")
    steps = relative(coord) / size * _STEPS_PER_VOXEL
    if len(steps) and steps.max() >= 2.0**62:
        extent = float(steps.max()) / _STEPS_PER_VOXEL * size
        raise InputError(f"an extent of {extent:.3g} m has too many voxels of {size:g} m; check the units")
    exact = np.round(steps).astype(np.int64)
    grid = exact >> 16
    check_grid(torch.from_numpy(grid), BITS, size)
    code = morton_encode(torch.from_numpy(grid))
    sorted_code, by_code = torch.sort(code, stable=True)
    order = by_code.numpy()
    first = np.ones(len(order), dtype=bool)
    first[1:] = (sorted_code.diff() != 0).numpy()
    start = np.flatnonzero(first)
    rank = np.cumsum(first) - 1
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = rank
    return Voxels(grid[order[start]], inverse, _nearest_to_centre(exact, order, start, rank))


def _nearest_to_centre(
    exact: NDArray[np.int64], order: NDArray[np.int64], start: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Index of the point nearest to the centre of each voxel; the earliest of equals."""
    if len(order) == 0:
        return np.zeros(0, dtype=np.int64)
    offset = (exact[order] & (_STEPS_PER_VOXEL - 1)) - _STEPS_PER_VOXEL // 2
    distance = (offset**2).sum(axis=1)
    is_least = distance == np.minimum.reduceat(distance, start)[rank]
    candidates = np.flatnonzero(is_least)
    _, earliest = np.unique(rank[candidates], return_index=True)
    nearest: NDArray[np.int64] = order[candidates[earliest]]
    return nearest


def voxel_mean(values: NDArray[Any], inverse: NDArray[np.int64], voxels: int) -> NDArray[np.float32]:
    """Mean of the points of each voxel.

    Args:
        values: one row a point, [N, F].
        inverse: the voxel of each point, [N].
        voxels: number of voxels M; each has at least one point.

    Returns:
        Float32, [M, F].
    """
    if voxels == 0:
        return np.zeros((0, values.shape[1]), dtype=np.float32)
    order = np.argsort(inverse, kind="stable")
    count = np.bincount(inverse, minlength=voxels)
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    total = np.add.reduceat(values[order].astype(np.float64), start, axis=0)
    return (total / count[:, None]).astype(np.float32)


def cell_numbers(places: NDArray[Any], edge: float) -> NDArray[np.int64]:
    """Number the occupied cells of a grid of any number of axes; the cost goes by points, not by their box.

    Args:
        places: coordinates, [N, D].
        edge: edge of a cell, in their unit.

    Returns:
        The cell of each point, int64, [N], from 0 in the order of the cells, first axis first.
    """
    number = np.zeros(len(places), dtype=np.int64)
    for axis in np.floor(np.asarray(places) / edge).T:
        values, rank = np.unique(axis, return_inverse=True)
        # Numbered anew after each axis, so that the product stays below the square of the number of points.
        number = np.unique(number * len(values) + rank.reshape(-1), return_inverse=True)[1].reshape(-1)
    return number.astype(np.int64)


_EDGE = 4.0
_POINTS_IN_COLUMN = 8


def column_edge(local: NDArray[Any]) -> float:
    """The edge of a square column that has 8 points or more on average: 4 m, doubled in a sparse cloud.

    Args:
        local: coordinates, metres, [N, 3].
    """
    edge = _EDGE
    while True:
        columns = int(cell_numbers(local[:, :2], edge).max(initial=0)) + 1
        if columns == 1 or len(local) >= _POINTS_IN_COLUMN * columns:
            return edge
        edge *= 2
