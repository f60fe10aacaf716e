"""Isolated points that are no part of the scene: below the ground, in the air, or far away.

One point below the ground spoils the heights of all points around it, so this step comes before all others.

Source: after PDAL `filters.elm` (a gap above the lowest points of a cell) and LAStools `lasnoise` (few
neighbours in 3 x 3 x 3 voxels), for groups of points that touch instead of single points, so that a cluster
of echoes is found as well.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pointcloud.sparse import build_table, touching
from pointcloud.voxels import cell_numbers, column_edge, relative

Array = NDArray[Any]
Mask = NDArray[np.bool_]

_FEWEST = 100
"""In a cloud of fewer points nothing is isolated."""
_FEW = 30
"""Most points of a group that is told by a small gap."""
_SHARE = 0.02
"""Most points of a group that is told by a large gap, as a share of the cloud."""
_FLAT, _TALL = 1 / 8, 5 / 4
"""Height of the voxels that tell small and large gaps, as a share of their edge in the plane."""
_GAP, _WIDE_GAP, _GAP_ABOVE = 1 / 4, 5 / 4, 5 / 2
"""Gap below the scene of few points and of many, and gap above it, as a share of the edge of a voxel.

In a dense cloud these are 1 m, 5 m and 10 m. Masts and wires stand up out of a scene, so the last is large.
"""
_AROUND = 5 / 2
"""Edge of the cells whose 3 x 3 are the surroundings of a point, as a share of the edge of a voxel."""
_FAR = 1000.0
"""A group is far if it lies this far outside the scene, metres, and farther than the scene is wide."""


class Noise(NamedTuple):
    """Which points are noise, bool, [N] each; no point is in two of them."""

    low: Mask
    """Below the ground, such as echoes that took two ways."""
    high: Mask
    """In the air, such as birds and clouds."""
    far: Mask
    """Away from the scene, such as a point at 0, 0, 0."""

    @property
    def any(self) -> Mask:
        """All of them."""
        return self.low | self.high | self.far


def find_noise(coord: Array) -> Noise:
    """Find groups of few points with nothing around them that lie apart from the scene.

    Points belong to a group if their voxels touch. A group is low if all of it lies below everything that
    stands around it, and high if it lies above.

    Args:
        coord: finite coordinates, metres, [N, 3].

    Returns:
        Three masks; all false for fewer than 100 points.
    """
    nothing = np.zeros(len(coord), dtype=bool)
    if len(coord) < _FEWEST:
        return Noise(nothing, nothing, nothing)
    local = relative(coord)
    edge = column_edge(local)
    fine, coarse = _groups(local, edge, _FLAT * edge), _groups(local, edge, _TALL * edge)
    few = np.bincount(fine)[fine] <= _FEW
    apart = np.bincount(coarse)[coarse] <= max(_FEW, _SHARE * len(coord))
    scene = ~(few | apart)
    if not scene.any():
        return Noise(nothing, nothing, nothing)
    far = _whole(coarse, apart & _is_far(local, scene))
    floor, ceiling = _surroundings(local, scene, _AROUND * edge)
    height = local[:, 2]
    low = _whole(fine, few & (height < floor - _GAP * edge))
    low |= _whole(coarse, apart & (height < floor - _WIDE_GAP * edge))
    high = _whole(coarse, apart & (height > ceiling + _GAP_ABOVE * edge))
    return Noise(low & ~far, high & ~far & ~low, far)


def _groups(local: Array, edge: float, height: float) -> NDArray[np.int64]:
    """The group of each point, [N]: points whose voxels touch are in one."""
    grid = np.floor(local / np.array([edge, edge, height])).astype(np.int64)
    voxel = cell_numbers(grid, 1.0)
    first = np.unique(voxel, return_index=True)[1]
    return touching(grid[first])[voxel]


def _whole(group: NDArray[np.int64], mask: Mask) -> Mask:
    """The groups all of whose points are in a mask."""
    return np.asarray((np.bincount(group) == np.bincount(group, mask))[group])


def _is_far(local: Array, scene: Mask) -> Mask:
    low, high = local[scene].min(axis=0)[:2], local[scene].max(axis=0)[:2]
    outside = np.maximum(low - local[:, :2], local[:, :2] - high).max(axis=1)
    return np.asarray(outside > max(_FAR, float((high - low).max())))


def _surroundings(local: Array, scene: Mask, edge: float) -> tuple[Array, Array]:
    """Lowest and highest point of the scene in the 3 x 3 cells around each point, else of the whole scene."""
    grid = np.floor(local[:, :2] / edge).astype(np.int64)
    cell = cell_numbers(grid, 1.0)
    first = np.unique(cell, return_index=True)[1]
    lowest, highest = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    np.minimum.at(lowest, cell[scene], local[scene, 2])
    np.maximum.at(highest, cell[scene], local[scene, 2])
    flat = torch.from_numpy(np.pad(grid[first], ((0, 0), (0, 1))))
    table = build_table(flat, torch.zeros(len(flat), dtype=torch.long), 3)
    floor, ceiling = lowest.copy(), highest.copy()
    for before, after in zip(table.before, table.after, strict=True):
        one, other = before.numpy(), after.numpy()
        for own, near in ((one, other), (other, one)):
            np.minimum.at(floor, own, lowest[near])
            np.maximum.at(ceiling, own, highest[near])
    floor[np.isinf(floor)], ceiling[np.isinf(ceiling)] = lowest.min(), highest.max()
    return floor[cell], ceiling[cell]
