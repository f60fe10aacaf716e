"""Made-up towns for tests and first steps: ground, vegetation and buildings as an aerial scanner sees them.

They prove the plumbing, never accuracy.
"""

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pointcloud.cloud import Cloud

GROUND, LOW, MEDIUM, HIGH, BUILDING = 2, 3, 4, 5, 6

_ORIGIN = (770_500.0, 6_277_500.0, 20.0)


def town(seed: int = 0, size: float = 40.0, density: float = 4.0) -> Cloud:
    """A square of ground with houses, trees and bushes.

    Args:
        seed: another town for each.
        size: edge of the square, metres.
        density: points a square metre.

    Returns:
        A cloud with `classification` (ASPRS 2 to 6), `intensity`, `return_number` and `number_of_returns`.
    """
    rng = np.random.default_rng(seed)
    parts = [_ground(rng, size, density)]
    parts += [_house(rng, size, density) for _ in range(max(1, int(size**2 / 400)))]
    parts += [_plant(rng, size, density, kind) for kind in (LOW, MEDIUM, HIGH)
              for _ in range(max(1, int(size**2 / 200)))]  # fmt: skip
    coord = np.concatenate([part[0] for part in parts])
    kind = np.concatenate([np.full(len(part[0]), part[1]) for part in parts])
    returns = np.where((kind == HIGH) | (kind == MEDIUM), rng.integers(1, 4, len(kind)), 1)
    reflected = np.select([kind == GROUND, kind == BUILDING], [0.5, 0.7], 0.3)
    # LAS stores whole centimetres.
    coord = np.round(coord + np.array(_ORIGIN), 2)
    order = rng.permutation(len(coord))
    return Cloud.from_arrays(
        coord[order],
        classification=kind[order],
        intensity=np.clip(reflected + rng.normal(0, 0.05, len(kind)), 0, 1).astype(np.float32)[order],
        return_number=np.minimum(rng.integers(1, 4, len(kind)), returns)[order],
        number_of_returns=returns[order],
    )


Part = tuple[NDArray[Any], int]


def _slope(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(0.5 * np.sin(x / 15) + 0.5 * np.cos(y / 20))


def _ground(rng: Generator, size: float, density: float) -> Part:
    x, y = rng.uniform(0, size, (2, int(size**2 * density)))
    return np.stack([x, y, _slope(x, y) + rng.normal(0, 0.02, len(x))], axis=1), GROUND


def _house(rng: Generator, size: float, density: float) -> Part:
    width, depth, height = rng.uniform(6, 12), rng.uniform(6, 10), rng.uniform(3, 7)
    corner = rng.uniform(0, max(size - 12, 1), 2)
    u, v = rng.uniform(0, 1, (2, int(width * depth * density)))
    roof = np.stack([u * width, v * depth, height + 2 * (1 - np.abs(2 * v - 1))], axis=1)
    walls = int(2 * (width + depth) * height * density * 0.2)
    along, up, side = rng.uniform(0, 1, walls), rng.uniform(0, height, walls), rng.integers(0, 4, walls)
    x = np.select([side == 0, side == 1], [0.0, 1.0], along) * width
    y = np.select([side == 2, side == 3], [0.0, 1.0], along) * depth
    coord = np.concatenate([roof, np.stack([x, y, up], axis=1)])
    coord[:, :2] += corner
    coord[:, 2] += _slope(coord[:, 0], coord[:, 1])
    return coord, BUILDING


def _plant(rng: Generator, size: float, density: float, kind: int) -> Part:
    low, high, radius = {LOW: (0.1, 0.5, 1.5), MEDIUM: (0.5, 1.5, 1.5), HIGH: (2.0, 8.0, 2.5)}[kind]
    count = int(radius**2 * np.pi * density * 3)
    angle, reach = rng.uniform(0, 2 * np.pi, count), radius * np.sqrt(rng.uniform(0, 1, count))
    x, y = rng.uniform(2, max(size - 2, 3), 2)
    x, y = x + reach * np.cos(angle), y + reach * np.sin(angle)
    return np.stack([x, y, _slope(x, y) + rng.uniform(low, high, count)], axis=1), kind
