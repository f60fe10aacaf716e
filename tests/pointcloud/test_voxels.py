"""Voxels against a dictionary of points, and what must not change them."""

import numpy as np
import pytest

from geomix.errors import InputError
from pointcloud.voxels import relative, voxel_mean, voxelize


def scan(count: int = 400, seed: int = 0) -> np.ndarray:
    """Centimetre coordinates as LAS has them, many on voxel borders."""
    return np.random.default_rng(seed).integers(0, 600, (count, 3)) / 100.0


def test_voxels_equal_a_dictionary() -> None:
    coord = scan()
    voxels = voxelize(coord, 0.5)
    cells = [tuple(np.floor((row - coord.min(0)) * 2 + 1e-9).astype(int)) for row in coord]
    assert [tuple(row) for row in voxels.grid_coord[voxels.inverse]] == cells
    assert len({tuple(row) for row in voxels.grid_coord}) == len(voxels.grid_coord) == len(set(cells))
    assert np.array_equal(voxels.inverse[voxels.representative], np.arange(len(voxels.grid_coord)))


@pytest.mark.parametrize("shift", [6e6, -3e6, 0.123456], ids=str)
@pytest.mark.parametrize("size", [0.5, 0.3, 0.05], ids=str)
def test_the_place_on_earth_does_not_matter(shift: float, size: float) -> None:
    coord = scan() + np.array([771234.56, 6278901.23, 20.5])
    here, there = voxelize(coord, size), voxelize(coord + np.array([shift, 0.0, 0.0]), size)
    for a, b in zip(here, there, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(relative(coord), relative(coord + np.array([shift, 0.0, 0.0])))


def test_a_permutation_of_points_permutes_the_inverse_only() -> None:
    coord = np.unique(scan(), axis=0)
    permutation = np.random.default_rng(1).permutation(len(coord))
    voxels, permuted = voxelize(coord, 0.5), voxelize(coord[permutation], 0.5)
    assert np.array_equal(voxels.grid_coord, permuted.grid_coord)
    assert np.array_equal(voxels.inverse[permutation], permuted.inverse)
    nearest = coord[voxels.representative] - relative(coord)[voxels.representative]
    assert len(nearest) == len(permuted.representative)


def test_the_representative_is_nearest_to_the_centre() -> None:
    coord = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.9, 0.9, 0.9], [1.5, 0.0, 0.0]])
    assert sorted(voxelize(coord, 1.0).representative.tolist()) == [1, 3]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_clouds(count: int) -> None:
    voxels = voxelize(np.full((count, 3), 7.0), 0.1)
    assert voxels.grid_coord.tolist() == [[0, 0, 0]] * min(count, 1)
    assert voxels.inverse.tolist() == [0] * count
    assert voxels.representative.tolist() == [0] * min(count, 1)


def test_too_fine_voxels_name_a_size_that_works() -> None:
    coord = np.array([[0.0, 0.0, 0.0], [100_000.0, 5.0, 5.0]])
    with pytest.raises(InputError, match=r"voxels of 0.02 m.*at least 0\.0477 m"):
        voxelize(coord, 0.02)
    voxelize(coord, 0.0478)


def test_a_vast_extent_is_refused_before_integers_wrap() -> None:
    with pytest.raises(InputError, match="check the units"):
        voxelize(np.array([[0.0, 0.0, 0.0], [1e20, 0.0, 0.0]]), 0.02)


def test_points_without_place_are_refused() -> None:
    with pytest.raises(InputError, match="1 of 2 points"):
        voxelize(np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0]]), 0.1)


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan])
def test_a_voxel_needs_an_edge(size: float) -> None:
    with pytest.raises(InputError, match="edge above 0"):
        voxelize(scan(3), size)


def test_voxel_mean_by_hand() -> None:
    values = np.array([[1.0], [3.0], [10.0]])
    assert voxel_mean(values, np.array([1, 1, 0]), 2).tolist() == [[10.0], [2.0]]
    assert voxel_mean(np.zeros((0, 4)), np.zeros(0, dtype=np.int64), 0).shape == (0, 4)
