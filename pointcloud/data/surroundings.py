"""What lies around a point: the lowest ground nearby, and whether a line, a plane or a volume."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pointcloud.sparse import build_table, touching
from pointcloud.voxels import cell_numbers, column_edge, voxelize

Array = NDArray[Any]

_CELLS_IN_EDGE = 8
"""Cells of the height map along the edge of a column of points: 0.5 m, larger in a sparse cloud."""
_MOST_CELLS = 4096**2
"""Cells of the largest map."""
_BLOCK = 256
"""Cells along a block; maps are made of occupied blocks, so that empty space costs nothing."""
_TILE = 8
"""Blocks along a part of a map that would be too large."""


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
    return _in_regions(local, len(radii), partial(_above_opening, radii=radii))


def _above_opening(local: Array, cell: float, radii: tuple[float, ...]) -> Array:
    column, lowest = _lowest_map(local, cell)
    depth = torch.from_numpy(-lowest)
    heights = []
    for radius in radii:
        reach = max(round(radius / cell), 0)
        eroded = -_box_max(depth, reach)
        # Squares without any point say nothing.
        eroded[torch.isinf(eroded)] = -torch.inf
        ground = _box_max(eroded, reach)
        heights.append(local[:, 2] - ground.numpy()[column[:, 0], column[:, 1]])
    return np.stack(heights, axis=1)


def height_above_ground(local: Array) -> Array:
    """Height above the bare ground: vegetation and buildings are taken off and the gaps closed.

    The lowest points are opened with wider and wider squares; what a square takes off by more than the slope
    allows is no ground. Works where houses are narrower than twice `_WIDEST`.

    Args:
        local: coordinates from the lower corner of the cloud, metres, [N, 3].

    Returns:
        Metres, [N].

    Source: after Pingel et al., An improved simple morphological filter (SMRF), ISPRS J. 77, 2013.
    """
    return _in_regions(local, 1, _above_ground)[:, 0]


def _above_ground(local: Array, cell: float) -> Array:
    _, lowest = _lowest_map(local, cell)
    depth = torch.from_numpy(lowest)
    is_known = torch.isfinite(depth)
    surface = _close_gaps(depth, is_known)
    opened, is_ground, reach = surface, is_known.clone(), 1
    while reach * cell <= _WIDEST:
        lower = _box_max(-_box_max(-opened, reach), reach)
        is_ground &= opened - lower <= _STEEPEST * reach * cell
        opened, reach = lower, max(reach + 1, int(reach * 1.3))
    ground = _close_gaps(surface, is_ground) if is_ground.any() else surface
    around = torch.nn.functional.pad(ground[None, None], (1, 1, 1, 1), mode="replicate")
    ground = torch.nn.functional.avg_pool2d(around, 3, 1)[0, 0]
    return np.asarray(local[:, 2] - _between(ground.numpy(), local[:, :2] / cell - 0.5))[:, None]


_STEEPEST = 0.2
"""Rise over run that still is ground."""
_WIDEST = 25.0
"""Half edge of the largest square, metres."""


def _in_regions(local: Array, width: int, compute: Callable[[Array, float], Array]) -> Array:
    """What a function makes of each region of the cloud, [N, width]; the cost goes by occupied blocks.

    Args:
        local: coordinates from the lower corner of the cloud, metres, [N, 3].
        width: columns of the result.
        compute: takes coordinates from the corner of a region, and the edge of a cell.
    """
    result = np.zeros((len(local), width))
    if len(local) == 0:
        return result
    cell = column_edge(local) / _CELLS_IN_EDGE
    for own, around in regions(local[:, :2], cell):
        corner = np.append(np.floor(local[around, :2].min(axis=0) / cell) * cell, 0.0)
        found = compute(local[around] - corner, cell)
        result[own] = found[np.searchsorted(around, own)]
    return result


def regions(places: Array, cell: float) -> Iterator[tuple[Array, Array]]:
    """Divide a cloud into regions that a dense map can hold.

    Blocks with points that touch are one region, whole where its map is not too large. What is larger is cut
    into tiles, which see the blocks around them as well.

    Args:
        places: x and y from the lower corner of the cloud, metres, [N, 2].
        cell: edge of a cell of the map, metres.

    Yields:
        The points of a region, and these with the points around them that count; numbers, rising.
    """
    block = cell_numbers(places, _BLOCK * cell)
    grid = np.floor(places[np.unique(block, return_index=True)[1]] / (_BLOCK * cell)).astype(np.int64)
    group = touching(grid)
    for number in range(int(group.max()) + 1):
        members = group == number
        if np.prod(np.ptp(grid[members], axis=0) + 1) * _BLOCK**2 <= _MOST_CELLS:
            points = np.flatnonzero(members[block])
            yield points, points
            continue
        tile = grid // _TILE
        for corner in np.unique(tile[members], axis=0) * _TILE:
            own = members & ((grid >= corner) & (grid < corner + _TILE)).all(axis=1)
            around = members & ((grid >= corner - 1) & (grid < corner + _TILE + 1)).all(axis=1)
            yield np.flatnonzero(own[block]), np.flatnonzero(around[block])


def _lowest_map(local: Array, cell: float) -> tuple[Array, Array]:
    """The cell of each point [N, 2], and the lowest height of each cell, else infinite."""
    # Rounded first, so that a point on a border stays on its side wherever the cloud lies.
    column = np.floor(np.round(local[:, :2] / cell * 65536) / 65536).astype(np.int64)
    lowest = np.full(tuple(column.max(axis=0) + 1), np.inf)
    np.minimum.at(lowest, (column[:, 0], column[:, 1]), local[:, 2])
    return column, lowest


def _box_max(table: torch.Tensor, reach: int) -> torch.Tensor:
    """Maximum over the square of `reach` cells to each side, [H, W]."""
    for _ in range(2):
        table = torch.nn.functional.pad(table, (reach, reach), value=-torch.inf)
        width, done = 2 * reach + 1, 1
        while done < width:
            step = min(done, width - done)
            table = torch.maximum(table[:, : table.shape[1] - step], table[:, step:])
            done += step
        table = table.t()
    return table


def _close_gaps(table: torch.Tensor, is_known: torch.Tensor) -> torch.Tensor:
    """Fill unknown cells smoothly from the known ones around them, by means over larger and larger cells."""
    value = torch.where(is_known, table, 0.0)[None, None]
    weight = is_known.to(value.dtype)[None, None]
    levels = [(value, weight)]
    while max(levels[-1][0].shape[2:]) > 1:
        levels.append(
            tuple(torch.nn.functional.avg_pool2d(one, 2, ceil_mode=True) for one in levels[-1])  # type: ignore[arg-type]
        )
    value, weight = levels[-1]
    filled = value / weight.clamp(min=1e-12)
    for value, weight in levels[-2::-1]:
        coarse = torch.nn.functional.interpolate(filled, size=value.shape[2:], mode="bilinear")
        filled = torch.where(weight > 0, value / weight.clamp(min=1e-12), coarse)
    return filled[0, 0]


def _between(table: Array, place: Array) -> Array:
    """Bilinear values of a table [H, W] at places [N, 2] counted from the middle of its first cell."""
    last = np.array(table.shape) - 1
    place = np.clip(place, 0, last)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, last)
    part = place - low
    rows = [
        table[x, low[:, 1]] * (1 - part[:, 1]) + table[x, high[:, 1]] * part[:, 1]
        for x in (low[:, 0], high[:, 0])
    ]
    return np.asarray(rows[0] * (1 - part[:, 0]) + rows[1] * part[:, 0])


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
