import cv2
import numpy as np
import pytest

from htr.io.derive import band, lower_edge, pitch_of_lines
from htr.layout.detect import detect_lines
from htr.layout.gutters import gutters
from htr.layout.headings import split_headings
from htr.layout.ink import PITCH, darkness, ink_map, is_light_on_dark, pitch_of_ink
from htr.layout.order import reading_order
from htr.layout.ridges import ridges
from htr.layout.scale import DOUBT, GOOD, fit, other_pitches
from htr.layout.score import box_iou, match_lines
from htr.layout.sideways import SIDEWAYS, uprightness
from htr.layout.trace import Curve, absorb, merge
from htr.page import Line
from tests.htr.making import column, page_of, paper, rectangle, scribble


def f1(image, page):
    return match_lines(detect_lines(image).lines, page.lines).f1


@pytest.mark.parametrize("slope", [-0.08, 0.0, 0.08])
def test_slanting_lines_are_found(slope):
    image, page = page_of(column(60, 540, 80, 8), height=440, slope=slope)
    assert f1(image, page) == 1.0


def test_baselines_lie_under_the_letters():
    image, page = page_of(column(60, 540, 60, 8))
    found = detect_lines(image).lines
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
    found = detect_lines(image).lines
    heading = [line for line in found if line.bounds()[1] < 130]
    assert len(found) == 9
    assert len(heading) == 1
    x0, y0, x1, y1 = heading[0].bounds()
    assert (x0 < 75, x1 > 480, y0 < 65, y1 > 105) == (True,) * 4


BOWL = [(0, 24), (36, 24), (36, 42), (18, 46), (2, 34), (0, 14), (14, 0), (36, 4)]
HEADING = [
    *[(10, [(0, 0), (0, 84), (44, 84)], 12), (10, [(0, 44), (34, 44)], 12)],
    *[(x, BOWL, 11) for x in (80, 140, 240)],
    *[(202, [(0, 0), (0, 44)], 11), (202, [(0, 64), (0, 65)], 14)],
    *[(330, [(0, 0), (0, 60)], 11), (355, [(0, 0), (4, 60), (24, 10), (44, 60), (48, 0)], 1.2)],
    *[(420, [(26, 0), (26, 60), (0, 20), (38, 20)], 10), (480, [(0, 48), (16, 60), (0, 2), (36, 2)], 10)],
]
"""A high F, low letters, an i with its point, and 1M42 with a thin M: (x, places over the baseline, pen)."""


@pytest.mark.parametrize("size", [0.7, 0.9])
def test_a_heading_of_unequal_letters_is_one_line(size):
    image = paper(700, 900)
    text = "and so the words go on and on and on and so on they go and on and on"
    for y in range(220, 680, 36):
        cv2.putText(image, text, (60, y), cv2.FONT_HERSHEY_SCRIPT_SIMPLEX, 0.9, 40, 1, cv2.LINE_AA)
    for x, shape, pen in HEADING:
        points = np.array(shape) * [size, -size] + [60 + x * size, 140]
        cv2.polylines(image, [np.rint(points).astype(np.int32)], False, 40, round(pen * size), cv2.LINE_AA)
    found = detect_lines(image).lines
    assert len(found) == 14
    heading = [line for line in found if line.bounds()[1] < 140]
    assert len(heading) == 1
    x0, y0, x1, y1 = heading[0].bounds()
    assert (x0 < 65, y0 < 142 - 84 * size, x1 > 60 + 510 * size, y1 > 140) == (True,) * 4
    # Nothing of it is left at the scale of the page, where its thin letter could be a line too.
    usual, _ = split_headings(ink_map(image))
    assert usual.ink[: round(160 * usual.scale)].max() < 0.5


def test_the_rim_of_the_sheet_is_no_line():
    image, page = page_of(column(60, 540, 60, 9), height=520, width=760)
    yy, xx = np.mgrid[:520, :760]
    rng = np.random.default_rng(0)
    image[xx > 640] = np.where(xx[xx > 640] % 11 < 3, 100, 130)
    lower = 440 - 0.1 * np.clip(xx - 560, 0, 200)
    table = (yy > lower) | (xx > 730)
    image[table] = np.clip(36 + rng.normal(0, 3, int(table.sum())), 0, 255)
    # The shadow of the sheet is broken as writing is.
    dashes = (rng.random(760) < 0.9) & (xx > 480) & (xx < 720)
    rim = (yy > lower - 12) & (yy <= lower) & dashes
    image[rim] = np.clip(70 + rng.normal(0, 8, int(rim.sum())), 0, 255)
    assert f1(image, page) == 1.0


def test_a_tail_that_touches_the_next_line_is_no_spike_of_its_outline():
    rows = column(60, 540, 60, 9)
    image, _ = page_of([*rows[:3], (60, 290, rows[3][2]), (330, 540, rows[3][2]), *rows[4:]])
    upper, lower = rows[3][2], rows[4][2]
    clear = image.copy()
    cv2.line(image, (310, upper - 10), (304, lower - 6), 40, 2, cv2.LINE_AA)
    cv2.line(image, (200, lower - 6), (450, lower - 4), 40, 2, cv2.LINE_AA)
    tops = []
    for drawn in (clear, image):
        found = detect_lines(drawn).lines
        assert len(found) == 9
        line = min(found, key=lambda line: abs(line.baseline[:, 1].mean() - lower))
        tops.append(line.bounds()[1])
    assert tops[1] > upper
    assert tops[1] == pytest.approx(tops[0], abs=4)


def test_a_piece_of_a_seam_beside_a_line_is_none_of_its_letters():
    image, _ = page_of(column(60, 540, 60, 9))
    image[225:300, 52:55] = 60
    line = next(line for line in detect_lines(image).lines if 268 < line.baseline[:, 1].mean() < 284)
    x0, y0, _, y1 = line.bounds()
    assert (x0 > 52, y0 > 245, y1 < 296) == (True,) * 3


@pytest.mark.parametrize("side", [-1, 1])
def test_hairlines_of_the_first_and_last_letters_are_in_the_outline(side):
    """A swash too faint for the search is followed; a longer stroke and strokes of a grid are not."""
    image, page = page_of([(100, 440, 60 + 36 * n) for n in range(9)])
    plain = extents(detect_lines(image).lines, page)[:, int(side > 0)]
    tip = 82 if side < 0 else 456
    inner = 108 if side < 0 else 432
    y = page.lines[4].baseline[0, 1]
    hair = np.array([[inner, y - 8], [(tip + inner) / 2, y - 14], [tip, y - 4]]).round().astype(np.int32)
    cv2.polylines(image, [hair], False, 190, 2, cv2.LINE_AA)
    y = round(page.lines[6].baseline[0, 1])
    cv2.line(image, (inner, y - 4), (inner + side * 80, y - 14), 190, 2, cv2.LINE_AA)
    # Not connected but for the first: dashes as squared paper leaves them.
    y = round(page.lines[2].baseline[0, 1])
    for x in range(0, 48, 12):
        for rise in (-3, 5, 13, 21):
            cv2.line(image, (inner + side * x, y - rise), (inner + side * (x + 6), y - rise - 2), 190, 2)
    swashed = extents(detect_lines(image).lines, page)[:, int(side > 0)]
    assert side * (swashed[4] - tip) > 0
    assert np.abs(swashed - plain)[[0, 1, 2, 3, 5, 6, 7, 8]].max() < 3


def extents(found, page):
    """Left and right end of the outline of each true line, px, [n, 2]; the baseline ends there too."""
    ids = {true: index for index, true in match_lines(found, page.lines).pairs}
    assert all(np.abs(line.baseline[[0, -1], 0] - line.bounds()[::2]).max() < 5 for line in found)
    return np.array([found[ids[number]].bounds()[::2] for number in range(len(page.lines))])


def test_faint_writing_under_strong_writing_is_found():
    image, page = page_of(column(60, 540, 60, 9))
    image[200:] = np.clip(235 - (235 - image[200:].astype(float)) * 0.45, 0, 255).astype(np.uint8)
    assert f1(image, page) == 1.0


def test_the_scale_of_the_scan_does_not_matter():
    image, page = page_of(column(60, 540, 60, 9))
    large = image.repeat(3, axis=0).repeat(3, axis=1)
    assert match_lines(detect_lines(large).lines, page.scaled(3, 3, 1800, 1260).lines).f1 == 1.0


def test_the_pitch_of_the_ink_is_that_of_the_lines():
    image, _ = page_of(column(60, 540, 60, 9, pitch=40))
    assert pitch_of_ink(darkness(image)) == pytest.approx(40, abs=2)
    assert ink_map(image).scale == pytest.approx(PITCH / 40, rel=0.08)
    assert ink_map(paper(300, 300)) is None


def test_a_register_with_short_lines_between_the_entries_is_searched_at_the_scale_of_all():
    """The estimate of the pitch is that of the entries, 60 px, for the short lines are few."""
    entries = [(60, 360, 60 + 60 * n) for n in range(10)]
    image, page = page_of(
        [*entries, *((x, x + 60, y + 30) for _, _, y in entries for x in (70, 280))], 690, 420, size=8
    )
    assert ink_map(image).scale == pytest.approx(PITCH / 60, rel=0.1)
    assert f1(image, page) == 1.0


def test_a_curve_for_every_other_line_fits_less_than_one_for_each():
    ink = np.zeros((400, 600), np.float32)
    middles = range(40, 380, 32)
    for y in middles:
        ink[y - 6 : y + 6, 20:580] = 1
    curves = [curve(20, 580, float(y)) for y in middles]
    assert fit(ink, curves) == pytest.approx(1.0, abs=0.01)
    assert fit(ink, curves[::2]) < GOOD - DOUBT
    assert fit(np.zeros_like(ink), curves) == 0.0


def test_no_scale_is_tried_at_which_letters_are_higher_than_lines_are_apart():
    small = np.zeros((400, 600), np.float32)
    for y in range(40, 380, 32):
        letters = small[y - 6 : y + 6, 20:580].reshape(12, 40, 14)
        letters[:, :, :8], letters[2:-2, :, 2:6] = 1, 0
    assert min(other_pitches(small, [])) == 0.5
    # Letters of twice the height, and a page that would be 4000 px wide.
    assert min(other_pitches(small.repeat(2, axis=0), [])) > 1.0
    assert min(other_pitches(np.pad(small, ((0, 0), (0, 1400))), [])) > 1.0
    assert other_pitches(np.zeros_like(small), []) == []


@pytest.mark.parametrize("slope", [-0.14, 0.0, 0.14])
def test_a_skewed_page_is_upright_and_a_turned_one_is_not(slope):
    image, _ = page_of([(60, 840, 220 + 36 * n) for n in range(12)], 800, 900, slope=slope)
    ink = ink_map(image).ink
    assert uprightness(ink) > 3 * SIDEWAYS
    assert uprightness(ink.T) < SIDEWAYS / 3


def test_the_rim_of_a_sheet_turns_no_page():
    image, _ = page_of([(60, 840, 60 + 36 * n) for n in range(20)], 800, 900)
    ink = 0.35 * ink_map(image).ink
    ink[:, 8:28] = 1
    assert uprightness(ink) > SIDEWAYS


def test_pieces_in_an_image_as_flat_as_a_line_are_one_a_row():
    image = paper(150, 1600)
    for number, (x0, x1) in enumerate([(40, 240), (300, 420), (560, 900), (990, 1200), (1300, 1560)]):
        for y in (60, 120):
            scribble(image, x0, x1, y, 14, seed=number + 9 * (y > 60))
    upper, lower = sorted(detect_lines(image).lines, key=lambda line: line.bounds()[1])
    assert len(detect_lines(image, merge_pieces=False).lines) > 4
    for found, y in ((upper, 60), (lower, 120)):
        assert np.abs(found.baseline[:, 1] - y).max() < 8
        assert found.bounds()[2] > 1500
        assert found.baseline[-1, 0] > 1500


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
    assert pitch_of_lines(lines) == 40
    assert pitch_of_lines(lines[:1]) is None


@pytest.mark.parametrize("level", [70, 120, 200, 250])
def test_dark_ink_on_any_paper_is_not_taken_for_a_negative(level):
    image, _ = page_of(column(60, 540, 60, 9), ink=level // 4, level=level)
    assert not is_light_on_dark(image)


def test_lines_are_found_where_paragraphs_repeat_more_than_lines():
    edges = [
        (40, 420),
        (60, 400),
        (40, 120),
        (300, 430),
        (40, 410),
        (200, 430),
        (40, 130),
        (260, 420),
        (40, 400),
    ]
    image, truth = page_of([(left, right, 50 + 36 * row) for row, (left, right) in enumerate(edges)])
    assert match_lines(detect_lines(image).lines, truth.lines).f1 > 0.9
