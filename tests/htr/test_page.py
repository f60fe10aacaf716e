import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htr.page import Line, Page, Region, as_points, bounds_of, box_polygon, clip_points, parse_points


@pytest.mark.parametrize(
    "text", ["1,2 3,4", "1 2 3 4", "1, 2, 3, 4", " 1,2  3,4 ", "1;2;3;4", "1.0,2.0 3.0,4.0", "1,2 3,4 5"]
)
def test_points_of_every_spelling(text):
    assert parse_points(text).tolist() == [[1, 2], [3, 4]]


@given(st.lists(st.tuples(*[st.integers(-9999, 9999)] * 2), max_size=6))
def test_points_come_back_as_they_were_written(points):
    text = " ".join(f"{x},{y}" for x, y in points)
    assert parse_points(text).tolist() == [[float(x), float(y)] for x, y in points]


def test_points_of_nothing():
    assert parse_points("").shape == (0, 2)
    assert as_points(None).shape == (0, 2)


def test_clipped_points_lie_on_the_page():
    assert clip_points(np.array([[-5.0, 3.0], [99.0, 99.0]]), 50, 20).tolist() == [[0, 3], [49, 19]]


def test_scaling_moves_lines_regions_and_characters():
    line = Line(
        id="a",
        baseline=np.array([[1.0, 2.0], [3.0, 2.0]]),
        polygon=box_polygon(1, 1, 3, 3),
        text="x",
        char_boxes=np.array([[1.0, 1.0, 3.0, 3.0]]),
    )
    page = Page(
        width=10, height=20, lines=(line,), regions=(Region(id="r", polygon=box_polygon(0, 0, 4, 4)),)
    )
    twice = page.scaled(2.0, 3.0, 20, 60)
    assert (twice.width, twice.height) == (20, 60)
    assert twice.lines[0].baseline.tolist() == [[2, 6], [6, 6]]
    assert twice.lines[0].char_boxes.tolist() == [[2, 3, 6, 9]]
    assert twice.regions[0].polygon[2].tolist() == [8, 12]


def test_the_nearest_direction_counts():
    regions = (Region(id="r", direction="rtl"), Region(id="s"))
    page = Page(width=1, height=1, regions=regions, direction="ltr")
    assert page.direction_of(Line(id="a", region="r")) == "rtl"
    assert page.direction_of(Line(id="a", region="r", direction="ltr")) == "ltr"
    assert page.direction_of(Line(id="a", region="s")) == "ltr"
    assert Page(width=1, height=1).direction_of(Line(id="a")) is None


def test_text_keeps_a_row_for_every_line():
    lines = (Line(id="a", text="one"), Line(id="b"), Line(id="c", text="three"))
    assert Page(width=1, height=1, lines=lines).text == "one\n\nthree"


def test_bounds_of_nothing_is_nothing():
    assert Line(id="a").bounds() is None
    assert bounds_of([Line(id="a"), Line(id="b", polygon=box_polygon(1, 2, 3, 4))]) == (1, 2, 3, 4)
