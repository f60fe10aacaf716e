import cv2
import numpy as np
import pytest

from htr.io.derive import band, line_pitch, lower_edge
from htr.layout.detect import detect_lines
from htr.layout.gutters import gutters
from htr.layout.ink import PITCH, darkness, ink_map, is_light_on_dark
from htr.layout.ink import line_pitch as ink_pitch
from htr.layout.order import reading_order
from htr.layout.ridges import ridges
from htr.layout.score import box_iou, match_lines
from htr.layout.trace import Curve, absorb, merge
from htr.page import Line
from tests.htr.making import column, page_of, paper, rectangle


def f1(image, page):
    return match_lines(detect_lines(image), page.lines).f1


@pytest.mark.parametrize("slope", [-0.08, 0.0, 0.08])
def test_slanting_lines_are_found(slope):
    image, page = page_of(column(60, 540, 80, 8), height=440, slope=slope)
    assert f1(image, page) == 1.0


def test_baselines_lie_under_the_letters():
    image, page = page_of(column(60, 540, 60, 8))
    found = detect_lines(image)
    for i, j in match_lines(found, page.lines).pairs:
        assert abs(found[i].baseline[:, 1].mean() - page.lines[j].baseline[0, 1]) < 4


def test_ruled_paper_and_its_frame_leave_only_the_writing():
    image, page = page_of(column(60, 540, 60, 8))
    for y in range(24, 420, 36):
        image[y : y + 2, 20:580] = 150
    image[:12], image[-12:], image[:, :12], image[:, -12:] = 10, 10, 10, 10
    assert f1(image, page) >= 0.94


def test_a_seal_is_no_line():
    image, page = page_of([(200, 540, 60 + 36 * n) for n in range(8)])
    yy, xx = np.mgrid[:420, :600]
    radius = np.hypot(yy - 110, xx - 90)
    image[(radius < 60) & (radius % 9 < 6)] = 30
    assert f1(image, page) == 1.0


def test_a_heading_in_large_letters_is_one_line():
    image = paper(480, 600)
    font = cv2.FONT_HERSHEY_SCRIPT_SIMPLEX
    for y in range(190, 460, 36):
        cv2.putText(image, "and so the words go on and on", (60, y), font, 0.9, 40, 1, cv2.LINE_AA)
    cv2.putText(image, "Fevrier 1742", (60, 110), cv2.FONT_HERSHEY_TRIPLEX, 2.3, 40, 5, cv2.LINE_AA)
    found = detect_lines(image)
    heading = [line for line in found if line.bounds()[1] < 130]
    assert len(found) == 9
    assert len(heading) == 1
    x0, y0, x1, y1 = heading[0].bounds()
    assert (x0 < 75, x1 > 480, y0 < 65, y1 > 105) == (True,) * 4


def test_faint_writing_under_strong_writing_is_found():
    image, page = page_of(column(60, 540, 60, 9))
    image[200:] = np.clip(235 - (235 - image[200:].astype(float)) * 0.45, 0, 255).astype(np.uint8)
    assert f1(image, page) == 1.0


def test_the_scale_of_the_scan_does_not_matter():
    image, page = page_of(column(60, 540, 60, 9))
    large = image.repeat(3, axis=0).repeat(3, axis=1)
    assert match_lines(detect_lines(large), page.scaled(3, 3, 1800, 1260).lines).f1 == 1.0


def test_the_pitch_of_the_ink_is_that_of_the_lines():
    image, _ = page_of(column(60, 540, 60, 9, pitch=40))
    assert ink_pitch(darkness(image)) == pytest.approx(40, abs=2)
    assert ink_map(image).scale == pytest.approx(PITCH / 40, rel=0.08)
    assert ink_map(paper(300, 300)) is None


def test_the_slope_of_the_writing_is_measured():
    image, _ = page_of(column(60, 540, 80, 8), height=440, slope=0.08)
    field = ridges(darkness(image))
    assert float(np.median(field.slope)) == pytest.approx(0.08, abs=0.015)


def test_a_gutter_is_a_wall_and_a_margin_is_none():
    image, _ = page_of(column(30, 280, 40, 10) + column(330, 580, 40, 10))
    ink = darkness(image)
    walls = gutters(ink, np.zeros_like(ink))
    rows, columns = np.nonzero(walls)
    assert len(np.unique(rows)) > 250
    assert 280 < columns.min() <= columns.max() < 330


def curve(start, end, y=50.0):
    return Curve(start, np.full(end - start, y))


def test_pieces_are_joined_up_to_the_reach_and_not_through_walls():
    walls = np.zeros((100, 400), bool)
    pieces = [curve(0, 100), curve(140, 240, 52.0), curve(280, 380, 49.0)]
    assert len(merge(pieces, walls, 60.0)) == 1
    assert len(merge(pieces, walls, 30.0)) == 3
    walls[:, 120] = True
    assert sorted(len(c.y) for c in merge(pieces, walls, 60.0)) == [100, 240]


def test_lines_above_each_other_are_not_joined():
    walls = np.zeros((200, 400), bool)
    assert len(merge([curve(0, 100, 50.0), curve(120, 220, 82.0)], walls, 60.0)) == 2


def test_a_short_curve_along_a_long_one_is_part_of_it():
    assert len(absorb([curve(0, 300), curve(100, 130, 60.0)])) == 1
    assert len(absorb([curve(0, 300), curve(100, 130, 78.0)])) == 2


def line(name, x0, y0, x1, y1):
    return Line(
        id=name, polygon=rectangle(x0, y0, x1, y1), baseline=np.array([[x0, y1 - 5.0], [x1, y1 - 5.0]])
    )


def names(lines, direction=None):
    return "".join(found.id for found in reading_order(lines, direction)[0])


def test_a_heading_over_two_columns_comes_first_and_a_foot_last():
    lines = [line("h", 0, 0, 400, 20), line("f", 0, 200, 400, 220)]
    lines += [line(n, 0, 40 + 30 * i, 180, 60 + 30 * i) for i, n in enumerate("abc")]
    lines += [line(n, 220, 50 + 30 * i, 400, 70 + 30 * i) for i, n in enumerate("xyz")]
    assert names(lines[::-1]) == "habcxyzf"
    assert len(reading_order(lines)[1]) == 4


def test_right_to_left_pages_begin_at_the_right_column():
    lines = [line(n, 0, 40 + 30 * i, 180, 60 + 30 * i) for i, n in enumerate("xyz")]
    lines += [line(n, 220, 40 + 30 * i, 400, 60 + 30 * i) for i, n in enumerate("abc")]
    assert names(lines, "rtl") == "abcxyz"
    assert names(lines, "ltr") == "xyzabc"


def test_a_page_number_beside_the_first_line_follows_it():
    lines = [line(n, 0, 40 + 30 * i, 300, 60 + 30 * i) for i, n in enumerate("abc")] + [
        line("n", 360, 38, 380, 58)
    ]
    assert names(lines) == "anbc"


def test_lines_without_a_place_stay_and_come_last():
    assert names([Line(id="?"), line("a", 0, 0, 50, 20)]) == "a?"
    assert names([Line(id="?")]) == "?"


def test_boxes_match_one_to_one():
    true = [line("a", 0, 0, 100, 20), line("b", 0, 30, 100, 50)]
    found = [line("1", 0, 2, 100, 22), line("2", 0, 0, 100, 20), line("3", 500, 0, 600, 20)]
    match = match_lines(found, true)
    assert match.pairs == ((1, 0),)
    assert (match.recall, match.precision, match.f1) == (1 / 2, 1 / 3, 2 / 5)
    assert match_lines([], []).f1 == 1.0
    assert box_iou((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert box_iou(None, (0, 0, 1, 1)) == 0.0


def test_a_baseline_along_the_lower_edge():
    assert lower_edge(rectangle(0, 0, 100, 40))[:, 1] == pytest.approx(30.0)
    slanting = np.array([[0, 0], [100, 20], [100, 60], [0, 40]], float)
    edge = lower_edge(slanting)
    assert (edge[-1, 1] - edge[0, 1]) / 100 == pytest.approx(0.2, abs=0.01)
    assert lower_edge(rectangle(0, 0, 20, 100))[0].tolist() == [5, 0]


def test_a_band_around_a_baseline():
    assert band(np.array([[0.0, 50.0], [100.0, 50.0]]), 30, 10).tolist() == [
        *([0, 20], [100, 20], [100, 60], [0, 60]),
    ]


def test_the_distance_of_lines():
    lines = [line(str(i), 0, 40 * i, 100, 40 * i + 30) for i in range(4)]
    assert line_pitch(lines) == 40
    assert line_pitch(lines[:1]) is None


@pytest.mark.parametrize("level", [70, 120, 200, 250])
def test_dark_ink_on_any_paper_is_not_taken_for_a_negative(level):
    image, _ = page_of(column(60, 540, 60, 9), ink=level // 4, level=level)
    assert not is_light_on_dark(image)
