import logging
from datetime import date

import geopandas as gpd
import numpy as np
import pytest
from affine import Affine
from pyproj import CRS as ProjCRS
from rasterio.crs import CRS
from shapely.geometry import Point, Polygon, box

from geomix.errors import InputError
from sits.data.fields import draw, pixels_of, places_of, read_samples
from sits.grid import Grid
from sits.io.vector import Labels
from sits.series import TimeSeries

GRID = Grid(CRS.from_epsg(32633), Affine(10, 0, 500000, 0, -10, 5000000), 20, 30)


def labels(*shapes, crs="EPSG:32633"):
    array = np.empty(len(shapes), dtype=object)
    array[:] = shapes
    return Labels("f.gpkg", array, list(range(len(shapes))), ProjCRS.from_user_input(crs))


def square(column, row, width, height=None):
    """A rectangle of whole pixels."""
    height = width if height is None else height
    return box(
        500000 + 10 * column,
        5000000 - 10 * (row + height),
        500000 + 10 * (column + width),
        5000000 - 10 * row,
    )


def found(pixels):
    return sorted(zip(pixels.rows.tolist(), pixels.columns.tolist(), pixels.shape.tolist(), strict=True))


def test_a_pixel_belongs_to_a_polygon_by_its_centre():
    # Covers two and a half pixels a side, so the centre of the third lies on the far side of its edge.
    shape = box(500000, 5000000 - 24, 500024, 5000000)
    assert found(pixels_of(labels(shape), np.array([0]), GRID, inside=0)) == [
        (r, c, 0) for r in (0, 1) for c in (0, 1)
    ]


def test_the_distance_from_the_edge_takes_the_outer_ring():
    pixels = pixels_of(labels(square(5, 5, 4)), np.array([0]), GRID, inside=1)
    assert found(pixels) == [(r, c, 0) for r in (6, 7) for c in (6, 7)]


def test_a_polygon_that_would_vanish_keeps_its_edge_and_is_counted(caplog):
    with caplog.at_level(logging.WARNING):
        pixels = pixels_of(labels(square(5, 5, 2), square(10, 10, 6)), np.array([0, 0]), GRID, inside=1)
    assert (pixels.shape == 0).sum() == 4
    assert "1 of 2 shapes are too small for the distance from the edge" in caplog.text


def test_pixels_that_two_classes_claim_are_void_and_those_of_one_class_count_once(caplog):
    shapes = labels(square(0, 0, 4), square(2, 0, 4), square(3, 0, 4))
    with caplog.at_level(logging.WARNING):
        pixels = pixels_of(shapes, np.array([0, 1, 1]), GRID, inside=0)
    columns = {shape: sorted({*pixels.columns[pixels.shape == shape].tolist()}) for shape in range(3)}
    assert columns == {0: [0, 1], 1: [4, 5], 2: [6]}
    assert "8 pixels lie in shapes of different classes" in caplog.text


def test_points_take_the_pixel_that_holds_them_and_void_shapes_none():
    shapes = labels(Point(500015, 4999985), Point(500295, 4999805), square(9, 9, 3))
    assert found(pixels_of(shapes, np.array([0, 0, -1]), GRID)) == [(1, 1, 0), (19, 29, 1)]


def test_labels_of_another_system_are_laid_in_place():
    there = gpd.GeoSeries([square(5, 5, 6)], crs=32633).to_crs(4326)
    moved = labels(there.iloc[0], crs="EPSG:4326")
    assert found(pixels_of(moved, np.array([0]), GRID)) == found(
        pixels_of(labels(square(5, 5, 6)), np.array([0]), GRID)
    )


def test_shapes_that_all_lie_elsewhere_are_refused_with_both_places():
    with pytest.raises(InputError, match=r"no labelled shape lies on the images; in degrees .* 45\.15"):
        pixels_of(labels(square(500, 5, 6)), np.array([0]), GRID)


def test_a_polygon_between_the_centres_of_pixels_is_counted(caplog):
    sliver = Polygon([(500001, 4999999), (500003, 4999999), (500003, 4999991)])
    with caplog.at_level(logging.WARNING):
        pixels_of(labels(sliver, square(5, 5, 3)), np.array([0, 0]), GRID)
    assert "1 of 2 shapes hold no centre of a pixel" in caplog.text


def test_the_draw_caps_each_shape_whatever_the_order_of_the_shapes():
    shapes, numbers = labels(square(0, 0, 9), square(10, 0, 2), square(15, 0, 8)), np.array([0, 1, 0])
    pixels = draw(pixels_of(shapes, numbers, GRID, inside=0), shapes.keys(), 10)
    assert np.bincount(pixels.shape).tolist() == [10, 4, 10]
    turned = shapes.take(np.array([2, 1, 0]))
    other = draw(pixels_of(turned, numbers, GRID, inside=0), turned.keys(), 10)
    assert [spot[:2] for spot in found(pixels)] == [spot[:2] for spot in found(other)]


def test_samples_hold_what_the_series_shows_of_each_pixel(monkeypatch):
    monkeypatch.setattr("sits.data.fields._BLOCK", 7)
    rng = np.random.default_rng(0)
    values = rng.random((3, 2, 20, 30)).astype(np.float32)
    valid = rng.random((3, 20, 30)) > 0.3
    series = TimeSeries.from_arrays(values, [date(2023, m, 1) for m in (4, 5, 6)], ["B4", "B8"], GRID, valid)
    shapes, numbers = labels(square(0, 0, 9), square(12, 8, 9)), np.array([1, 0])
    pixels = pixels_of(shapes, numbers, GRID)
    samples = read_samples(series, pixels, numbers)
    seen = np.moveaxis(valid[:, pixels.rows, pixels.columns], -1, 0)
    np.testing.assert_array_equal(samples.valid, seen)
    truth = np.moveaxis(values[:, :, pixels.rows, pixels.columns], -1, 0)
    np.testing.assert_array_equal(samples.values[seen], truth[seen])
    np.testing.assert_array_equal(samples.labels, numbers[pixels.shape])


def test_distances_between_places_are_metres_in_every_system():
    spots = places_of(labels(Point(500000, 5000000), Point(501000, 5000000), Point(500000, 5002000)))
    assert np.hypot(*(spots[1] - spots[0])) == pytest.approx(1000, rel=0.01)
    assert np.hypot(*(spots[2] - spots[0])) == pytest.approx(2000, rel=0.01)
