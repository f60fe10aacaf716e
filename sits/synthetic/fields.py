"""Shapes of farmland: blocks between tracks, each cut into strips of its own direction and width."""

import numpy as np
from numpy.typing import NDArray

BlockMap = NDArray[np.int32]


def make_blocks(shape_yx: tuple[int, int], rng: np.random.Generator, side: float = 34.0) -> BlockMap:
    """Divide the land into blocks with crooked borders.

    Args:
        shape_yx: rows and columns, pixels.
        rng: the source of chance.
        side: mean side of a block, pixels.

    Returns:
        The block of each pixel, from 0, [H, W].
    """
    rows, columns = shape_yx
    count = max(2, round(rows * columns / side**2))
    # Some seeds lie outside, so that blocks are cut by the scene's edge as real ones are.
    seeds = rng.uniform(-0.5 * side, 0.5 * side, (count, 2)) + rng.uniform(0, 1, (count, 2)) * shape_yx
    stretch = rng.uniform(0.75, 1.35, count)
    yx = np.indices(shape_yx, dtype=np.float32)
    yx += 2.5 * np.stack([smooth_noise(shape_yx, 24, rng), smooth_noise(shape_yx, 24, rng)])
    nearest = np.full(shape_yx, np.inf, dtype=np.float32)
    blocks = np.zeros(shape_yx, dtype=np.int32)
    for index, (y, x) in enumerate(seeds):
        distance = ((yx[0] - y) * stretch[index]) ** 2 + ((yx[1] - x) / stretch[index]) ** 2
        closer = distance < nearest
        nearest[closer] = distance[closer]
        blocks[closer] = index
    return np.unique(blocks, return_inverse=True)[1].reshape(shape_yx).astype(np.int32)


def cut_parcels(blocks: BlockMap, rng: np.random.Generator) -> BlockMap:
    """Cut each block into parallel strips, and some strips across.

    Returns:
        The parcel of each pixel, from 1; 0 on the tracks between blocks, [H, W].
    """
    yx = np.indices(blocks.shape, dtype=np.float32)
    pieces = np.zeros(blocks.shape, dtype=np.int64)
    for block in range(int(blocks.max()) + 1):
        inside = blocks == block
        angle = rng.uniform(0, np.pi)
        along = (yx[0] * np.cos(angle) + yx[1] * np.sin(angle))[inside]
        across = (yx[1] * np.cos(angle) - yx[0] * np.sin(angle))[inside]
        strip = _cut(along, float(rng.uniform(6, 14)), rng)
        length = _cut(across, float(rng.uniform(18, 40)), rng)
        pieces[inside] = block * 1_000_000 + strip * 1_000 + length
    parcels = np.unique(pieces, return_inverse=True)[1].reshape(blocks.shape).astype(np.int32) + 1
    parcels[_borders(blocks)] = 0
    return parcels


def _cut(position: NDArray[np.float32], width: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Number the pieces of a line that is cut at irregular distances of about `width`."""
    low, high = float(position.min()), float(position.max())
    cuts = low + np.cumsum(width * rng.uniform(0.6, 1.5, int((high - low) / (0.6 * width)) + 1))
    return np.searchsorted(cuts, position)


def _borders(blocks: BlockMap) -> NDArray[np.bool_]:
    """Pixels whose neighbour below or to the right belongs to another block: tracks of one pixel."""
    border = np.zeros(blocks.shape, dtype=bool)
    border[:-1] |= blocks[:-1] != blocks[1:]
    border[:, :-1] |= blocks[:, :-1] != blocks[:, 1:]
    return border


def smooth_noise(shape_yx: tuple[int, int], scale: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Noise of unit spread whose bumps are about `scale` pixels wide."""
    rows, columns = shape_yx
    frequency = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None])
    damping = np.exp(-0.5 * (2 * np.pi * frequency * scale / 2.5) ** 2)
    noise = np.fft.irfft2(np.fft.rfft2(rng.standard_normal(shape_yx)) * damping, s=shape_yx)
    scaled: NDArray[np.float32] = ((noise - noise.mean()) / (noise.std() + 1e-9)).astype(np.float32)
    return scaled
