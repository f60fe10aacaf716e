import csv
import io
import json
import math
from collections import Counter

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from lxml import etree
from pyproj import Geod
from shapely.geometry import box

from geomix.errors import InputError
from sits.accuracy import allocate, estimate, evaluate_map, sample_map, sample_size
from sits.accuracy.areas import areas_of
from sits.io.vector import read_labels

# Olofsson et al. 2014, table 8: deforestation, forest gain, stable forest, stable non-forest; 30 m pixels.
MATRIX = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]])
PIXELS = [200_000, 150_000, 3_200_000, 6_450_000]
NAMES = ("deforestation", "gain", "forest", "other")


def halves(accuracy, key):
    return [round(getattr(one, key).half, 4) for one in accuracy.classes.values()]


def values(accuracy, key):
    return [round(getattr(one, key).value, 4) for one in accuracy.classes.values()]


def test_areas_and_intervals_are_those_of_the_paper():
    found = estimate(MATRIX, PIXELS, NAMES)
    areas = [(round(one.area.value), round(one.area.half)) for one in found.classes.values()]
    assert areas == [(235086, 68418), (129846, 41731), (3175221, 172332), (6459846, 180907)]
    hectares = estimate(MATRIX, [0.09 * count for count in PIXELS], NAMES).classes["deforestation"].area
    assert (round(hectares.value), round(hectares.half)) == (21158, 6158)


def test_accuracies_and_intervals_are_those_of_the_paper():
    found = estimate(MATRIX, PIXELS, NAMES)
    assert (round(found.overall.value, 4), round(found.overall.half, 4)) == (0.9465, 0.0185)
    assert values(found, "users") == [0.88, 0.7333, 0.9273, 0.9631]
    assert halves(found, "users") == [0.074, 0.1008, 0.0397, 0.0205]
    assert values(found, "producers") == [0.7487, 0.8472, 0.9345, 0.9616]
    assert halves(found, "producers") == [0.2133, 0.2544, 0.0343, 0.0184]


def test_the_example_of_2013_holds_too():
    found = estimate(np.array([[97, 0, 3], [3, 279, 18], [2, 1, 97]]), [22353, 1122543, 610228], NAMES[:3])
    assert [round(x, 2) for x in values(found, "users")] == [0.97, 0.93, 0.97]
    assert [round(x, 3) for x in values(found, "producers")] == [0.481, 0.994, 0.897]
    assert round(found.overall.value, 3) == 0.944


def test_one_stratum_is_simple_random_sampling():
    counts = np.array([[[40, 10], [5, 45]]])
    found = estimate(counts, [1000.0], ("a", "b"))
    share, n = 45 / 100, 100
    assert found.classes["a"].area.value == pytest.approx(450)
    assert found.classes["a"].area.half == pytest.approx(1960 * math.sqrt(share * (1 - share) / (n - 1)))
    assert found.overall.value == pytest.approx(0.85)


def test_intervals_hold_the_truth_as_often_as_they_say():
    # Strata that are not the classes of the map: draw references again and again from a known land.
    rng = np.random.default_rng(0)
    cells = np.array([[[500, 50], [30, 120]], [[60, 40], [20, 1180]]])
    sizes, truth = cells.sum(axis=(1, 2)), cells[:, :, 0].sum()
    hits = 0
    for _ in range(400):
        counts = np.stack([rng.multinomial(60, land.ravel() / land.sum()).reshape(2, 2) for land in cells])
        area = estimate(counts, sizes, ("a", "b")).classes["a"].area
        hits += abs(area.value - truth) <= area.half
    assert 0.92 <= hits / 400 <= 0.975


def test_a_class_without_references_or_a_stratum_with_one_has_no_interval_and_is_told():
    found = estimate(np.array([[40, 0], [0, 1]]), [1.0, 1.0], ("a", "b"))
    assert math.isnan(found.overall.half)
    assert "single reference" in found.text()
    assert "too few references to say anything (below 30): b (1)" in found.text()
    found = estimate(np.array([[40, 0], [0, 0]]), [3.0, 1.0], ("a", "b"))
    assert math.isnan(found.classes["b"].users.value)
    assert "1 strata with 25.0 % of the area have no reference" in found.notes[0]
    assert json.loads(found.json())["classes"]["b"]["users"]["value"] is None


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="no references"):
        estimate(np.zeros((2, 2)), [1, 1], ("a", "b"))
    with pytest.raises(InputError, match="2 strata and 3 classes"):
        estimate(np.zeros((2, 2, 2)), [1, 1], ("a", "b", "c"))
    with pytest.raises(InputError, match="negative"):
        estimate(np.ones((2, 2)), [-1, 1], ("a", "b"))


def test_csv_has_a_line_for_each_class_with_half_widths():
    rows = list(csv.DictReader(io.StringIO(estimate(MATRIX, PIXELS, NAMES).csv())))
    assert float(rows[0]["users"]) == 0.88
    assert float(rows[0]["area_ha_half"]) == pytest.approx(68418, abs=1)
    assert rows[1]["as gain"] == "55"


def test_the_size_of_a_sample_and_its_allocation_are_those_of_the_paper():
    shares = [0.02, 0.015, 0.32, 0.645]
    assert round(sample_size([0.7, 0.6, 0.9, 0.95], shares), 1) == 640.5
    assert allocate(dict(enumerate(shares)), 640) == {0: 75, 1: 75, 2: 162, 3: 328}
    assert allocate(dict(enumerate(shares)), 400) == {0: 50, 1: 50, 2: 99, 3: 201}


@pytest.mark.parametrize(
    ("shares", "total"), [([0.05] * 20, 200), ([0.01, 0.99], 20), ([1.0], 7), ([0.5, 0.5], 5)]
)
def test_an_allocation_always_sums_up_and_gives_each_class_two(shares, total):
    found = allocate(dict(enumerate(shares)), total)
    assert sum(found.values()) == total
    assert min(found.values()) >= 2
    with pytest.raises(InputError, match="too few"):
        allocate(dict(enumerate(shares)), 2 * len(shares) - 1)


CLASSES = '[{"id": 1, "name": "wheat", "color": "#ffee00"}, {"id": 2, "name": "maize", "color": "#00aa00"}]'


def write_map(path, codes, crs="EPSG:32633", transform=(10, 0, 500000, 0, -10, 5000000)):
    profile = {"driver": "GTiff", "dtype": "uint8", "nodata": 255, "count": 1, "crs": crs}
    size = {"height": codes.shape[0], "width": codes.shape[1], "transform": rasterio.Affine(*transform)}
    with rasterio.open(path, "w", **profile, **size) as file:
        file.write(codes.astype("uint8"), 1)
        file.update_tags(GEOMIX_CLASSES=CLASSES)
    return path


@pytest.fixture
def halves_map(tmp_path):
    codes = np.ones((20, 40), dtype=np.uint8)
    codes[:, 20:] = 2
    codes[0] = 255
    return write_map(tmp_path / "map.tif", codes)


def test_the_area_of_a_class_is_true_in_degrees_and_in_stretched_metres(tmp_path, halves_map):
    assert areas_of(halves_map) == {1: pytest.approx(3.8), 2: pytest.approx(3.8)}
    there = write_map(tmp_path / "d.tif", np.full((30, 20), 1), "EPSG:4326", (0.01, 0, 15, 0, -0.01, 50))
    truth = (
        abs(Geod(ellps="WGS84").geometry_area_perimeter(box(15, 49.7, 15.2, 50).segmentize(0.01))[0]) / 1e4
    )
    assert areas_of(there)[1] == pytest.approx(truth, rel=1e-5)
    stretched = write_map(
        tmp_path / "m.tif", np.full((30, 20), 1), "EPSG:3857", (100, 0, 0, 0, -100, 8400000)
    )
    assert areas_of(stretched)[1] < 0.4 * 600


def test_points_are_drawn_by_class_at_the_middle_of_pixels_and_do_not_tell_the_map(tmp_path, halves_map):
    file = sample_map(halves_map, tmp_path / "points.gpkg", 60)
    points = gpd.read_file(file)
    assert {*points.columns} == {"point", "reference", "remark", "geometry"}
    columns = np.floor((points.geometry.x - 500000) / 10).astype(int)
    rows = np.floor((5000000 - points.geometry.y) / 10).astype(int)
    with rasterio.open(halves_map) as dataset:
        shown = dataset.read(1)[rows, columns]
    assert Counter(shown.tolist()) == {1: 30, 2: 30}
    assert len({*zip(rows, columns, strict=True)}) == 60
    assert np.abs((points.geometry.x - 500005) % 10).max() < 1e-6
    # Neither sorted by class.
    assert 1 < (np.diff(shown.astype(int)) != 0).sum()
    form = etree.parse(file.with_suffix(".qml"))
    assert [one.get("value") for one in form.iter("Option") if one.get("value")] == ["wheat", "maize"]


def test_the_same_seed_draws_the_same_points(tmp_path, halves_map):
    first, second, third = (
        gpd.read_file(sample_map(halves_map, tmp_path / f"{name}.gpkg", 20, seed))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first.geometry.equals(second.geometry)
    assert not first.geometry.equals(third.geometry)


def test_a_class_with_fewer_pixels_than_points_gives_all_of_them(tmp_path, caplog):
    codes = np.ones((10, 100), dtype=np.uint8)
    codes[0, :3] = 2
    file = sample_map(write_map(tmp_path / "map.tif", codes), tmp_path / "p.gpkg", 400)
    assert len(gpd.read_file(file)) == 303
    assert "class 2 has 3 pixels only" in caplog.text


def checked(path, halves_map, wrong=2):
    """Points of the sample, told right but for some."""
    points = gpd.read_file(sample_map(halves_map, path, 80, overwrite=True))
    west = points.geometry.x < 500200
    points["reference"] = np.where(west, "wheat", "maize")
    points.loc[np.flatnonzero(west)[:wrong], "reference"] = "maize"
    points.to_file(path, engine="pyogrio")
    return path


def test_checked_points_give_accuracy_and_areas(tmp_path, halves_map):
    found = evaluate_map(halves_map, read_labels(checked(tmp_path / "p.gpkg", halves_map), "reference"))
    assert found.confusion.tolist() == [[38, 2], [0, 40]]
    assert found.classes["maize"].mapped == pytest.approx(3.8)
    assert found.classes["maize"].area.value == pytest.approx(3.8 + 0.05 * 3.8)
    assert found.notes == ()


def test_a_polygon_counts_once_by_the_commonest_class_and_training_polygons_are_told(tmp_path, halves_map):
    sides = ((0, 80), (110, 250), (260, 340), (360, 400))
    shapes = [box(500000 + west, 4999850, 500000 + east, 4999930) for west, east in sides]
    table = gpd.GeoDataFrame({"crop": ["wheat", "wheat", "maize", "oats"]}, geometry=shapes, crs=32633)
    table.to_file(tmp_path / "f.gpkg", engine="pyogrio")
    labels = read_labels(tmp_path / "f.gpkg", "crop")
    found = evaluate_map(halves_map, labels, inside=0, seen=frozenset(labels.keys()[:2]))
    assert found.confusion.tolist() == [[2, 0], [0, 1]]
    notes = "\n".join(found.notes)
    assert "2 of 3 references took part in the training" in notes
    assert "1 references are 'oats', which the map does not know" in notes
    assert "the references are polygons" in notes


def test_strata_of_another_map_weigh_the_references(tmp_path, halves_map):
    codes = np.ones((20, 40), dtype=np.uint8)
    codes[:, 10:] = 2
    strata = write_map(tmp_path / "strata.tif", codes)
    labels = read_labels(checked(tmp_path / "p.gpkg", halves_map), "reference")
    found = evaluate_map(halves_map, labels, strata=strata)
    assert found.confusion.tolist() == [[38, 2], [0, 40]]
    # All points west of the first ten columns stand for a quarter of the land.
    assert sum(one.area.value for one in found.classes.values()) == pytest.approx(8.0)
    other = write_map(tmp_path / "other.tif", np.ones((5, 5)))
    with pytest.raises(InputError, match="another grid"):
        evaluate_map(halves_map, labels, strata=other)


def test_labels_that_the_map_does_not_know_at_all_are_refused(tmp_path, halves_map):
    table = gpd.GeoDataFrame({"crop": ["oats"]}, geometry=[box(500000, 4999850, 500080, 4999930)], crs=32633)
    table.to_file(tmp_path / "f.gpkg", engine="pyogrio")
    with pytest.raises(
        InputError, match="no label is a class of the map; labels are oats, classes wheat, maize"
    ):
        evaluate_map(halves_map, read_labels(tmp_path / "f.gpkg", "crop"))
