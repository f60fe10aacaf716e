"""The random forest that a network must beat."""

import numpy as np

from pointcloud.data import open_splits
from pointcloud.data.sources import SyntheticData
from pointcloud.synthetic import town
from pointcloud.task.forest import classical_features, forest


def test_a_forest_learns_made_up_towns_and_repeats_itself() -> None:
    splits = open_splits(SyntheticData(clouds=4, size=14, density=3), None, (2, 3, 4, 5, 6))
    found = forest(splits.train, splits.val, 5, seed=1, trees=5)
    assert found["points"] == len(splits.val[0].read())
    assert found["oa"] > 0.7
    assert forest(splits.train, splits.val, 5, seed=1, trees=5)["iou"] == found["iou"]


def test_its_features_do_not_depend_on_the_place() -> None:
    cloud = town(0, size=8, density=2)
    moved = cloud.from_arrays(cloud.coord + np.array([6e6, 0, 0]), **cloud.fields)
    table = classical_features(cloud)
    assert np.array_equal(table, classical_features(moved))
    assert table.shape == (len(cloud), 1 + 4 + 4 * 5 + 1 + 3)
