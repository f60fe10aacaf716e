import struct

import numpy as np
import pyproj
import pytest

from geomix.errors import InputError
from pointcloud.io import read_cloud, write_cloud
from pointcloud.io.units import FOOT, US_FOOT, Units, in_metres, units_of
from pointcloud.io.values import class_ids, color_of, intensity_of
from tests.helpers import shared_data
from tests.pointcloud.making import make_las, scatter


@pytest.mark.parametrize(
    ("crs", "units"),
    [
        ("EPSG:2154", Units(1, 1)),
        ("EPSG:2994", Units(FOOT, FOOT)),  # Oregon, international feet
        ("EPSG:2263", Units(US_FOOT, US_FOOT)),  # New York, US survey feet
        ("EPSG:32632+6360", Units(1, US_FOOT)),  # heights in US survey feet
        ("EPSG:4326", Units(is_degree=True)),
        ("EPSG:4326+6360", Units(1, US_FOOT, is_degree=True)),
        ("EPSG:4979", Units(is_degree=True)),
    ],
)
def test_the_reference_system_says_the_unit(crs, units):
    found = units_of("a", crs=pyproj.CRS(crs))
    assert found.is_degree == units.is_degree
    assert (found.horizontal, found.vertical) == pytest.approx((units.horizontal, units.vertical), rel=1e-9)


def keys(*entries):
    return struct.pack("<4H", 1, 1, 0, len(entries)) + b"".join(
        struct.pack("<4H", k, 0, 1, v) for k, v in entries
    )


@pytest.mark.parametrize(
    ("data", "units"),
    [
        (keys((1024, 1), (3076, 9002)), Units(FOOT, FOOT)),
        (keys((3076, 9001), (4099, 9003)), Units(1, US_FOOT)),
        (keys((1024, 2)), Units(is_degree=True)),
        (keys((1024, 1)), Units()),
        (b"short", Units()),
        (None, Units()),
    ],
)
def test_bare_geotiff_keys_say_the_unit(data, units):
    assert units_of("a", geokeys=data) == units


def test_the_caller_says_the_unit():
    assert units_of("a", "foot", pyproj.CRS("EPSG:2154")) == Units(FOOT, FOOT)
    assert units_of("a", "0.001") == Units(0.001, 0.001)
    assert units_of("a", "degree").is_degree
    for wrong in ("furlong", "0", "-1", "nan", "inf"):
        with pytest.raises(InputError, match="unit"):
            units_of("a", wrong)


def test_feet_become_metres_and_the_file_keeps_its_feet(tmp_path, caplog):
    source = make_las(tmp_path / "a.las", crs=pyproj.CRS("EPSG:2994"), origin=(1e6, 1e6, 300))
    cloud = read_cloud(source)
    assert "in feet" in caplog.text
    assert cloud.coord == pytest.approx(cloud.file_coord * FOOT)
    assert np.ptp(cloud.coord, axis=0).max() < 3.1
    write_cloud(cloud, tmp_path / "b.las")
    assert (tmp_path / "b.las").read_bytes() == source.read_bytes()
    write_cloud(cloud, tmp_path / "c.csv")
    assert np.array_equal(read_cloud(tmp_path / "c.csv").coord, cloud.file_coord)


def test_heights_in_feet_over_metres():
    cloud = read_cloud(shared_data("pointcloud/laspy/simple.copc.laz"))
    assert cloud.coord[:, :2] == pytest.approx(cloud.file_coord[:, :2])
    assert cloud.coord[:, 2] == pytest.approx(cloud.file_coord[:, 2] * US_FOOT)


def test_numbers_that_look_like_degrees_are_taken_for_degrees_aloud(caplog):
    flat = scatter(100, size=(0.02, 0.02, 30), origin=(5.1, 45.2, 200))
    assert in_metres(flat, "a").unit == "degree"
    assert "look like longitude and latitude" in caplog.text
    assert in_metres(flat, "a", "metre").unit == "metre"
    assert in_metres(flat, "a", crs=pyproj.CRS("EPSG:2154")).unit == "metre"


@pytest.mark.parametrize(
    "coord",
    [
        scatter(100, size=(50, 50, 20)),
        scatter(100, size=(0.5, 0.5, 2), origin=(3, 3, 0)),
        scatter(100, size=(0.01, 0.01, 0.01)),
        scatter(100, size=(0.02, 0.02, 30), origin=(700_000, 6_600_000, 0)),
        scatter(3, size=(0.02, 0.02, 30), origin=(5.1, 45.2, 200)),
        np.zeros((50, 3)),
        np.zeros((0, 3)),
        np.full((50, 3), np.nan),
    ],
)
def test_what_may_be_metres_is_metres(coord):
    assert in_metres(coord, "a").unit == "metre"


@pytest.mark.parametrize(
    ("rgb", "expected"),
    [
        (np.array([[255, 0, 51]], np.uint8), [1, 0, 0.2]),
        (np.array([[1, 0, 1]], np.uint8), [1 / 255, 0, 1 / 255]),
        (np.array([[255, 0, 51]], np.uint16), [1, 0, 0.2]),
        (np.array([[65535, 0, 51 * 257]], np.uint16), [1, 0, 0.2]),
        (np.array([[256, 0, 0]], np.uint16), [256 / 65535, 0, 0]),
        (np.array([[1.0, 0, 0.2]]), [1, 0, 0.2]),
        (np.array([[255.0, 0, 51]]), [1, 0, 0.2]),
        (np.array([[255.0, np.nan, 51]]), [1, np.nan, 0.2]),
    ],
    ids=str,
)
def test_colours_by_hand(rgb, expected):
    assert color_of(rgb, "a")[0] == pytest.approx(expected, nan_ok=True)


def test_one_bright_point_makes_the_whole_cloud_16_bit():
    rgb = np.full((100, 3), 200, np.uint16)
    rgb[0] = 256
    assert color_of(rgb, "a").max() < 0.01


def test_black_is_no_colour_and_zero_no_intensity():
    assert color_of(np.zeros((5, 3), np.uint16), "a") is None
    assert intensity_of(np.zeros(5, np.uint16), "a") is None
    assert color_of(np.zeros((0, 3), np.uint16), "a") is None


def test_class_ids_that_do_not_fit_are_listed_with_their_number():
    assert class_ids(np.array([0.0, 31.0]), 31, "x").dtype == np.int64
    with pytest.raises(InputError, match=r"x holds class ids 0 to 31, got -1 \(1 points\), 40 \(2 points\)"):
        class_ids(np.array([40, 5, -1, 40]), 31, "x")
    with pytest.raises(InputError, match="whole numbers"):
        class_ids(np.array([0.5]), 31, "x")
