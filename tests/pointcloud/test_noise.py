"""Isolated points are found, and nothing else; other points do not feel them; empty space costs nothing."""

import logging

import laspy
import numpy as np
import pytest

from pointcloud import Cloud, read_cloud, segment
from pointcloud.data import LABEL, Inputs, LabelledCloud
from pointcloud.data import surroundings as around
from pointcloud.data.inputs import cleaned, features
from pointcloud.data.noise import find_noise
from pointcloud.data.surroundings import height_above_ground, height_above_opening, regions
from pointcloud.predict import segment_file
from pointcloud.synthetic import town
from pointcloud.task.scoring import score
from pointcloud.voxels import column_edge
from tests.helpers import shared_data
from tests.pointcloud.making import Layers


def scene():
    """A made-up town whose lower corner lies far from 0, [N, 3]."""
    coord = town(3, size=40, density=4).coord
    return coord - coord.min(axis=0) + np.array([650_000.0, 6_860_000.0, 100.0])


def with_points(coord, *points):
    return np.concatenate([coord, np.reshape(points, (-1, 3))])


@pytest.mark.parametrize("count", [10, 100, 500])
@pytest.mark.parametrize("height", [-30.0, -3.0, 60.0])
def test_points_below_and_above_are_found_and_no_others(count, height):
    coord, rng = scene(), np.random.default_rng(count)
    coord = np.concatenate([coord] * 8) + np.repeat(np.arange(8), len(coord))[:, None] * [40.0, 0, 0]
    edge = coord[:, 2].min() if height < 0 else coord[:, 2].max()
    # A few points 3 m below the ground stand alone; many make a layer that could be a pit.
    count = 10 if height == -3.0 else count
    added = coord[rng.choice(len(coord), count, replace=False)] * [1, 1, 0] + [0, 0, edge + height]
    found = find_noise(with_points(coord, added))
    mask = found.low if height < 0 else found.high
    assert mask[len(coord) :].all()
    assert found.any.sum() == count


@pytest.mark.parametrize("height", [-15.0, 60.0])
def test_a_cluster_that_touches_itself_is_found_whole(height):
    coord, rng = scene(), np.random.default_rng(0)
    level = (coord[:, 2].min() if height < 0 else coord[:, 2].max()) + height
    cluster = np.append(coord[:, :2].mean(axis=0), level) + rng.uniform(-0.5, 0.5, (20, 3))
    found = find_noise(with_points(coord, cluster))
    assert (found.low if height < 0 else found.high).tolist() == [False] * len(coord) + [True] * 20


@pytest.mark.parametrize("point", [(0.0, 0.0, 0.0), (750_000.0, 6_960_000.0, 100.0)])
def test_a_point_at_zero_and_one_141_km_away_are_far(point):
    coord = scene()
    assert find_noise(with_points(coord, point)).far.tolist() == [False] * len(coord) + [True]


def test_a_house_a_tree_a_pit_and_a_mast_are_no_noise():
    x, y = (axis.reshape(-1) for axis in np.meshgrid(np.arange(0, 60, 0.4), np.arange(0, 60, 0.4)))
    z = np.where((x > 20) & (x < 26) & (y > 20) & (y < 26), 9.0, 0.0) - 4.0 * ((x > 40) & (y > 40))
    mast = np.stack([np.full(40, 10.2), np.full(40, 10.2), np.arange(40) * 0.6], axis=1)
    assert not find_noise(with_points(np.stack([x, y, z], axis=1), mast)).any.any()


@pytest.mark.parametrize("count", [0, 1, 99])
def test_a_tiny_cloud_has_no_noise(count):
    assert not find_noise(np.random.default_rng(0).uniform(0, 1000, (count, 3))).any.any()


def test_the_order_of_points_does_not_matter():
    coord = with_points(scene(), (650_010.0, 6_860_010.0, 40.0), (0.0, 0.0, 0.0))
    order = np.random.default_rng(1).permutation(len(coord))
    assert np.array_equal(find_noise(coord)[0][order], find_noise(coord[order])[0])


@pytest.mark.parametrize("tile", ["77050_627755", "77050_627760", "77055_627755"])
def test_ten_low_points_change_no_feature_of_a_real_tile(tile):
    name = f"pointcloud/ign-pdal-tools/test_data_{tile}_LA93_IGN69.laz"
    cloud = read_cloud(shared_data(name))
    cloud = Cloud(cloud.coord[::3])
    rng = np.random.default_rng(0)
    low = cloud.coord[rng.choice(len(cloud), 10)] * [1, 1, 0] + [0, 0, cloud.coord[:, 2].min() - 30]
    inputs = Inputs(voxel=0.5, features=("ground", "height"))
    spoilt = Cloud(with_points(cloud.coord, low))
    assert np.array_equal(cleaned(spoilt, inputs).coord, cloud.coord)
    assert cleaned(cloud, inputs) is cloud
    felt = features(spoilt, inputs)[:-10] != features(cloud, inputs)
    assert felt.mean() > 0.1, "without the step these points spoil the ground"


def test_noise_gets_its_id_no_confidence_and_one_line(caplog):
    coord = with_points(scene(), (650_010.0, 6_860_010.0, 40.0), (650_010.0, 6_860_010.0, 300.0))
    model = Layers()
    # Layers takes the coordinates alone, which no noise spoils: the step is asked for.
    with caplog.at_level(logging.WARNING):
        found = segment(Cloud(coord), model, noise=True)
    assert found.fields["classification"][-2:].tolist() == [0, 0]
    assert found.fields["confidence"][-2:].tolist() == [0, 0]
    assert (found.fields["confidence"][:-2] > 0).all()
    assert "1 of" in caplog.text
    assert "low noise, the first at 650010.00, 6860010.00, 40.00" in caplog.text
    named = segment(Cloud(coord), model, noise=True, noise_id=66)
    assert named.fields["classification"][-2:].tolist() == [66, 66]
    assert 0 not in segment(Cloud(coord), model).fields["classification"]


@pytest.mark.parametrize(("point_format", "high"), [(6, 18), (1, 7)])
def test_noise_in_las_gets_the_classes_of_noise(tmp_path, point_format, high):
    data = laspy.create(point_format=point_format, file_version="1.4" if point_format > 5 else "1.2")
    data.header.offsets, data.header.scales = [650_000, 6_860_000, 0], [0.001] * 3
    data.xyz = with_points(scene(), (650_010.0, 6_860_010.0, 40.0), (650_010.0, 6_860_010.0, 300.0))
    data.write(tmp_path / "a.las")
    segment_file(tmp_path / "a.las", tmp_path / "b.las", Layers(), noise=True)
    written = np.asarray(laspy.read(tmp_path / "b.las").classification)
    assert written[-2:].tolist() == [7, high]


def test_scores_leave_noise_out_and_count_it():
    coord = with_points(scene(), (650_010.0, 6_860_010.0, 40.0))
    cloud = Cloud(coord, {LABEL: np.zeros(len(coord), dtype=np.int64)})
    inputs = Inputs(voxel=1.0, features=("height",), height_radii=(2.0, 8.0, 25.0))
    figures = score(Layers(), [LabelledCloud("x", lambda: cloud)], inputs)
    assert (figures["points"], figures["noise"]) == (len(coord) - 1, 1)


def test_empty_space_costs_no_cells():
    places = np.array([[0.0, 0.0], [3.0, 3.0], [141_000.0, 0.0], [0.0, 6_000_000.0]])
    found = list(regions(places, 0.5))
    assert sorted(own.tolist() for own, _ in found) == [[0, 1], [2], [3]]
    boxes = [np.prod(np.ptp(places[around], axis=0) / 0.5 + 1) for _, around in found]
    assert sum(boxes) == 7 * 7 + 1 + 1


def test_sparse_points_share_large_cells():
    places = np.random.default_rng(0).uniform(0, 3000, (500, 3)) * [1, 1, 0.01]
    assert column_edge(places) >= 256
    assert column_edge(np.random.default_rng(0).uniform(0, 40, (3000, 3))) == 4


@pytest.mark.parametrize(
    "function", [height_above_ground, lambda local: height_above_opening(local, (2.0, 8.0))]
)
def test_a_map_in_regions_and_tiles_is_the_whole_map(function, monkeypatch):
    local = scene() - scene().min(axis=0)
    whole = function(local)
    apart = with_points(local, (90_000.0, 40_000.0, 5.0))
    assert np.array_equal(function(apart)[:-1], whole)
    monkeypatch.setattr(around, "_BLOCK", 32)
    monkeypatch.setattr(around, "_TILE", 1)
    monkeypatch.setattr(around, "_MOST_CELLS", 5000)
    assert len(list(regions(local[:, :2], 0.5))) > 4
    assert np.quantile(np.abs(function(local) - whole), 0.99) < 0.05
