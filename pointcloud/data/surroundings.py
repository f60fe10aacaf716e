"""What lies around a point: the lowest ground nearby, and whether a line, a plane or a volume."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pointcloud.sparse import build_table
from pointcloud.voxels import voxelize

Array = NDArray[Any]

_CELL = 0.5
"""Edge of a cell of the height map, metres; larger where the cloud is too wide."""
_MOST_CELLS = 4096
"""Cells along an axis of the height map."""


def height_above_opening(local: Array, radii: tuple[float, ...]) -> Array:
    """Height above the ground that is left when everything narrower than a square is taken off.

    The lowest point of each square, then the highest of these within a square: a slope stays a slope, a
    bush disappears, and a house disappears once the square is wider than it.

    Args:
        local: coordinates from the lower corner of the cloud, metres, [N, 3].
        radii: half edges of the squares, metres.

    Returns:
        Metres, [N, radii]; negative below that ground.
    """
    if len(local) == 0:
        return np.zeros((0, len(radii)))
    cell = max(_CELL, float(local[:, :2].max()) / (_MOST_CELLS - 1))
    # Rounded first, so that a point on a border stays on its side wherever the cloud lies.
    column = np.floor(np.round(local[:, :2] / cell * 65536) / 65536).astype(np.int64)
    shape = column.max(axis=0) + 1
    lowest = np.full(tuple(shape), np.inf)
    np.minimum.at(lowest, (column[:, 0], column[:, 1]), local[:, 2])
    depth = torch.from_numpy(-lowest)[None]
    heights = []
    for radius in radii:
        reach = max(round(radius / cell), 0)
        eroded = -_running_max(_running_max(depth, reach), reach)
        # Squares without any point say nothing.
        eroded[torch.isinf(eroded)] = -torch.inf
        ground = _running_max(_running_max(eroded, reach), reach)
        heights.append(local[:, 2] - ground[0].numpy()[column[:, 0], column[:, 1]])
    return np.stack(heights, axis=1)


def _running_max(rows: torch.Tensor, reach: int) -> torch.Tensor:
    """Maximum over `reach` neighbours to both sides along the last axis; the two axes change places."""
    width = 2 * reach + 1
    pooled = torch.nn.functional.max_pool1d(rows, width, stride=1, padding=reach)
    return pooled.transpose(1, 2)


def shape_of_surroundings(local: Array, size: float) -> Array:
    """How the points of the 3 x 3 x 3 voxels around each point are spread.

    Args:
        local: coordinates from the lower corner of the cloud, metres, [N, 3].
        size: edge of a voxel, metres.

    Returns:
        Linearity, planarity, scatter (they add up to 1), slope of the surface (0 level, 1 upright) and the
        logarithm of the number of points, [N, 5].
    """
    if len(local) == 0:
        return np.zeros((0, 5))
    voxels = voxelize(local, size)
    count = len(voxels.grid_coord)
    centred = local - (voxels.grid_coord[voxels.inverse] + 0.5) * size
    outer = (centred[:, :, None] * centred[:, None, :]).reshape(-1, 9)
    moments = np.concatenate([np.ones((len(local), 1)), centred, outer], axis=1)
    total = np.stack([np.bincount(voxels.inverse, column, count) for column in moments.T], axis=1)
    number, mean, covariance = _spread(total, voxels.grid_coord, size)
    values, vectors = np.linalg.eigh(covariance)
    least, middle, most = np.maximum(values, 1e-9).T
    # Of two or fewer points nothing is known: a volume, level.
    known = (number > 2) & np.isfinite(mean).all(axis=1)
    shape = np.stack(
        [
            np.where(known, (most - middle) / most, 0.0),
            np.where(known, (middle - least) / most, 0.0),
            np.where(known, least / most, 1.0),
            np.where(known, 1 - np.abs(vectors[:, 2, 0]), 0.0),
            np.log(number),
        ],
        axis=1,
    )
    return np.asarray(shape[voxels.inverse])


def _spread(total: Array, grid_coord: Array, size: float) -> tuple[Array, Array, Array]:
    """Number, mean and covariance of the points of each voxel and its 26 neighbours."""
    grid = torch.from_numpy(grid_coord)
    table = build_table(grid, torch.zeros(len(grid), dtype=torch.long), 3)
    own = torch.from_numpy(total)
    sums = own.clone()
    steps = [(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1)][14:]
    for step, before, after in zip(steps, table.before, table.after, strict=True):
        move = torch.tensor(step, dtype=torch.float64) * size
        sums.index_add_(0, before, _moved(own[after], move))
        sums.index_add_(0, after, _moved(own[before], -move))
    result = sums.numpy()
    number = result[:, 0]
    mean = result[:, 1:4] / number[:, None]
    covariance = result[:, 4:].reshape(-1, 3, 3) / number[:, None, None] - mean[:, :, None] * mean[:, None, :]
    return number, mean, covariance


def _moved(moments: torch.Tensor, move: torch.Tensor) -> torch.Tensor:
    """Moments of points that all move by the same step."""
    number, first, second = moments[:, :1], moments[:, 1:4], moments[:, 4:].reshape(-1, 3, 3)
    cross = first[:, :, None] * move
    second = second + cross + cross.transpose(1, 2) + number[:, :, None] * (move[:, None] * move)
    return torch.cat([number, first + number * move, second.reshape(-1, 9)], dim=1)
