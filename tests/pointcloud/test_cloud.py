from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geomix.errors import InputError
from pointcloud.cloud import Cloud, Source


def test_coordinates_are_float64_in_three_columns():
    assert Cloud.from_arrays([[1, 2, 3]]).coord.dtype == np.float64
    assert Cloud.from_arrays([]).coord.shape == (0, 3)
    with pytest.raises(InputError, match="float32"):
        Cloud(np.zeros((2, 3), np.float32))
    with pytest.raises(InputError, match=r"\[2, 2\]"):
        Cloud(np.zeros((2, 2)))


def test_every_field_has_a_row_a_point():
    with pytest.raises(InputError, match=r"'a' must have one row for each of the 2 points, got \[3\]"):
        Cloud.from_arrays(np.zeros((2, 3)), a=np.zeros(3))


def test_fields_are_added_to_a_copy():
    cloud = Cloud.from_arrays(np.zeros((2, 3)), a=[1, 2])
    changed = cloud.with_fields(a=np.array([3, 4]), b=np.array([5, 6]))
    assert cloud.fields["a"].tolist() == [1, 2]
    assert changed.fields["a"].tolist() == [3, 4]
    assert set(changed.fields) == {"a", "b"}


def test_some_points_of_a_cloud_forget_their_file():
    source = Source(Path("a.ply"), "ply", payload="all of it", numbers=np.ones((3, 3)))
    cloud = Cloud(np.arange(9.0).reshape(3, 3), {"a": np.arange(3)}, source=source)
    part = cloud.take(np.array([True, False, True]))
    assert part.coord[:, 0].tolist() == [0, 6]
    assert part.fields["a"].tolist() == [0, 2]
    assert (part.name, part.source.payload, part.source.numbers) == ("a.ply", None, None)


@pytest.mark.parametrize(
    ("form", "zeros", "measured"),
    [(None, 1, 5), (None, 2, 3), ("floats", 2, 3), ("las", 2, 5), ("las", 1, 5)],
)
def test_zeros_are_no_measurement_where_there_are_two_and_no_las(form, zeros, measured):
    coord = np.ones((5, 3))
    coord[:zeros] = 0
    source = Source(Path("a"), form) if form else None
    assert Cloud(coord, source=source).measured().sum() == measured


def test_nan_inf_and_marked_points_are_no_measurement():
    coord = np.ones((5, 3))
    coord[0, 2], coord[1, 0] = np.nan, np.inf
    cloud = Cloud.from_arrays(coord, invalid=[False, False, False, True, False])
    assert cloud.measured().tolist() == [False, False, True, False, True]


def test_the_numbers_of_the_file_are_those_of_coordinates_as_they_were_read():
    coord, feet = np.ones((2, 3)), np.full((2, 3), 3.28)
    cloud = Cloud(coord, source=Source(Path("a.las"), "las", None, coord, feet))
    assert cloud.file_coord is feet
    moved = replace(cloud, coord=coord + 1)
    assert moved.file_coord is moved.coord
