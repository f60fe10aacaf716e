"""Features: by hand, complete, and the same wherever the cloud lies and however its points are ordered."""

import numpy as np
import pytest
import torch

from geomix.errors import ConfigError, InputError
from pointcloud.cloud import Cloud
from pointcloud.data import features, missing_fields, prepare, read_inputs
from pointcloud.data.augment import ABOVE_GROUND, Augment, augment
from pointcloud.data.inputs import whole_features
from pointcloud.data.surroundings import height_above_ground, height_above_opening, shape_of_surroundings
from pointcloud.synthetic import town

ALL = {
    "voxel": 0.5,
    "features": [
        *("coord", "offset", "ground", "height", "shape"),
        *("intensity", "returns", "color", "nir", "normal"),
    ],
    "optional": ["color", "nir", "normal"],
}


def colored_town() -> Cloud:
    cloud = town(1, size=12, density=3)
    rng = np.random.default_rng(0)
    return cloud.with_fields(
        color=rng.uniform(0, 1, (len(cloud), 3)).astype(np.float32),
        nir=rng.uniform(0, 1, len(cloud)).astype(np.float32),
    )


def test_channels_are_counted_right() -> None:
    inputs = read_inputs(ALL)
    table = features(colored_town(), inputs)
    assert table.shape == (len(colored_town()), inputs.channels)
    assert inputs.channels == 3 + 3 + 1 + 3 + 5 + 1 + 3 + 3 + 1 + 3 + 3
    assert table.dtype == np.float32
    assert np.isfinite(table).all()


def test_missing_optional_fields_are_zero_and_said_to_be_missing() -> None:
    table = features(colored_town(), ALL)
    color, has_color = table[:, 19:22], table[:, 22]
    normal, has_normal = table[:, 25:28], table[:, 28]
    assert (has_color == 1).all()
    assert color.std() > 0
    assert (has_normal == 0).all()
    assert (normal == 0).all()
    assert missing_fields(colored_town(), ALL) == {"normal": ("normal",)}


def test_missing_needed_fields_are_an_error_that_lists_what_there_is() -> None:
    bare = Cloud.from_arrays(np.zeros((2, 3)), ring=np.zeros(2))
    with pytest.raises(InputError, match=r"needs return_number and number_of_returns; the cloud has ring"):
        features(bare, {"voxel": 0.5, "features": ["returns"]})


def test_the_place_on_earth_does_not_matter() -> None:
    cloud = colored_town()
    moved = Cloud.from_arrays(cloud.coord + np.array([6e6, 0, 0]), **cloud.fields)
    assert np.array_equal(features(cloud, ALL), features(moved, ALL))
    here, there = prepare(cloud, ALL), prepare(moved, ALL)
    assert torch.equal(here.feat, there.feat)
    assert torch.equal(here.grid_coord, there.grid_coord)


def test_the_order_of_points_does_not_matter() -> None:
    cloud = colored_town()
    permutation = np.random.default_rng(0).permutation(len(cloud))
    there = features(cloud.take(permutation), ALL)
    np.testing.assert_allclose(there, features(cloud, ALL)[permutation], atol=1e-6)
    torch.testing.assert_close(prepare(cloud.take(permutation), ALL).feat, prepare(cloud, ALL).feat)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_clouds_have_features(count: int) -> None:
    cloud = colored_town().take(np.arange(count))
    assert features(cloud, ALL).shape == (count, read_inputs(ALL).channels)
    sample = prepare(cloud, ALL)
    assert len(sample.inverse) == count
    assert torch.isfinite(sample.feat).all()


def test_offset_is_the_place_in_the_voxel() -> None:
    cloud = Cloud.from_arrays([[0.0, 0, 0], [0.5, 0.25, 0.375], [1.0, 0, 0]])
    offset = features(cloud, {"voxel": 0.5, "features": ["offset"]})
    np.testing.assert_allclose(offset, [[-0.5, -0.5, -0.5], [-0.5, 0, 0.25], [-0.5, -0.5, -0.5]], atol=1e-4)


def test_height_ignores_what_is_narrower_than_the_square() -> None:
    x, y = np.meshgrid(np.arange(0, 40, 0.5), np.arange(0, 40, 0.5))
    slope = 0.2 * x
    bush = (abs(x - 10) < 1) & (abs(y - 10) < 1)
    house = (abs(x - 25) < 5) & (abs(y - 25) < 5)
    z = slope + 1.0 * bush + 6.0 * house
    local = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    small, large = height_above_opening(local, (2.0, 8.0)).T.reshape(2, *x.shape)
    open_ground = ~bush & ~house & (abs(x - 25) > 8) & (x > 3) & (x < 37)
    assert np.abs(small[open_ground]).max() < 0.3
    assert small[bush].min() > 0.7
    # A square of 4 m fits on the house, one of 16 m does not.
    assert small[house & (abs(x - 25) < 3) & (abs(y - 25) < 3)].max() < 1.5
    assert large[house].min() > 4


def test_ground_is_bare_on_a_slope_and_under_a_house() -> None:
    x, y = np.meshgrid(np.arange(0, 50, 0.5), np.arange(0, 50, 0.5))
    slope = 0.1 * x + 0.3 * np.sin(y / 10)
    bush = (abs(x - 10) < 1) & (abs(y - 10) < 1)
    house = (abs(x - 30) < 10) & (abs(y - 25) < 8)
    z = slope + 0.8 * bush + 6.0 * house
    above = height_above_ground(np.stack([x, y, z], axis=-1).reshape(-1, 3)).reshape(x.shape)
    assert np.abs(above[~bush & ~house]).max() < 0.2
    np.testing.assert_allclose(above[bush], 0.8, atol=0.2)
    np.testing.assert_allclose(above[house], 6.0, atol=0.8)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_ground_of_tiny_clouds(count: int) -> None:
    assert height_above_ground(np.zeros((count, 3))).tolist() == [0.0] * count


def test_a_part_keeps_the_ground_of_its_whole() -> None:
    cloud = town(2, size=20, density=4)
    inputs = read_inputs({"voxel": 0.5, "features": ["ground"]})
    whole = whole_features(cloud, inputs)
    roof = np.flatnonzero(cloud.fields["classification"] == 6)
    assert np.array_equal(features(whole.take(roof), inputs), features(cloud, inputs)[roof])
    assert not np.allclose(features(cloud.take(roof), inputs), features(cloud, inputs)[roof], atol=0.1)
    rng = np.random.default_rng(0)
    larger = augment(whole, rng, Augment(scale=(2, 2)))
    np.testing.assert_allclose(larger.fields[ABOVE_GROUND], 2 * whole.fields[ABOVE_GROUND])


def test_shape_knows_lines_planes_and_volumes() -> None:
    rng = np.random.default_rng(0)
    line = np.stack([np.linspace(0, 1.4, 200), np.full(200, 0.1), np.full(200, 0.1)], axis=1)
    plane = np.concatenate([rng.uniform(0, 1.4, (400, 2)), np.full((400, 1), 0.1)], axis=1)
    volume = rng.uniform(0, 1.4, (3000, 3))
    middle = [(np.abs(one[:, :1] - 0.7) < 0.2)[:, 0] for one in (line, plane, volume)]
    linearity, planarity, scatter = (
        shape_of_surroundings(one, 0.5)[near].mean(axis=0)
        for one, near in zip((line, plane, volume), middle, strict=True)
    )
    assert linearity[0] > 0.95
    assert planarity[1] > 0.5
    assert scatter[2] > 0.4
    assert planarity[3] < 0.01
    upright = plane[:, [2, 0, 1]]
    assert shape_of_surroundings(upright, 0.5)[:, 3].mean() > 0.9


def test_intensity_follows_the_scanner_or_the_file() -> None:
    cloud = Cloud.from_arrays(np.zeros((100, 3)), intensity=np.linspace(0, 0.02, 100))
    scan = features(cloud, {"voxel": 1, "features": ["intensity"]})
    file = features(cloud, {"voxel": 1, "features": ["intensity"], "intensity": "file"})
    assert scan.max() == pytest.approx(1 / 0.95, rel=1e-3)
    assert file.max() == pytest.approx(0.02)


def test_nan_in_a_field_is_taken_as_zero() -> None:
    cloud = Cloud.from_arrays(np.zeros((3, 3)), intensity=np.array([np.nan, 0.5, 1.0]))
    assert np.isfinite(features(cloud, {"voxel": 1, "features": ["intensity"]})).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"features": ["colour"]}, "did you mean 'color'"), ({"features": [], "optional": ["nir"]}, "nir"),
     ({"voxel": 0}, "voxel"), ({"shape_voxels": [0.5, -1]}, "above 0 m"),
     ({"height_radii": []}, "above 0 m")], ids=str,
)  # fmt: skip
def test_inputs_that_make_no_sense_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_inputs({"voxel": 1, "features": ["coord"], **change})
