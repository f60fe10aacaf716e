import numpy as np
import pytest
from rasterio.crs import CRS
from rasterio.transform import Affine

from geomix.errors import InputError
from sits.grid import Grid, Window, crs_name, same_crs
from tests.sits.making import TRANSFORM, grid


def test_blocks_cover_a_grid_once():
    seen = np.zeros((30, 26), dtype=int)
    for window in grid().blocks(8):
        seen[window.slices] += 1
    assert (seen == 1).all()
    assert len(list(grid().blocks(8))) == grid().block_count(8) == 16
    with pytest.raises(InputError, match="at least 1 pixel"):
        list(grid().blocks(0))


def test_a_window_grows_only_as_far_as_the_scene():
    outer = Window(0, 8, 8, 8).pad(4, (30, 18))
    assert outer == Window(0, 4, 12, 14)
    assert Window(0, 8, 8, 8).within(outer) == (slice(0, 8), slice(4, 12))


def test_the_grid_of_a_window_lies_where_its_pixels_lie():
    part = grid().part(Window(3, 2, 5, 6))
    assert part.shape == (5, 6)
    assert part.transform.c == TRANSFORM.c + 2 * TRANSFORM.a
    assert part.transform.f == TRANSFORM.f + 3 * TRANSFORM.e


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (grid(crs="EPSG:32632"), "EPSG:32632 instead of EPSG:32633"),
        (grid((30, 27)), "30 x 27 pixels"),
        (grid(transform=Affine(9.994792, 0, 465191.05, 0, -9.997448, 5080254.63)), "transform"),
    ],
)
def test_differences_are_said_in_words(other, word):
    assert word in grid().difference(other)


def test_rounding_makes_no_other_grid():
    moved = Affine(TRANSFORM.a, 0, TRANSFORM.c + 1e-6, 0, TRANSFORM.e, TRANSFORM.f)
    assert grid().difference(grid(transform=moved)) is None


def test_a_rotated_grid_has_bounds():
    turned = Grid(None, Affine(0.0, 10.0, 0.0, 10.0, 0.0, 0.0), 2, 3)
    assert turned.bounds == (0.0, 0.0, 20.0, 30.0)


def test_one_system_has_many_spellings():
    utm = CRS.from_epsg(32633)
    assert same_crs(utm, CRS.from_wkt(utm.to_wkt()))
    assert not same_crs(utm, None)
    assert same_crs(None, None)
    assert (crs_name(None), crs_name(utm)) == ("none", "EPSG:32633")
