"""What users of other tools met, case by case; each fails when the guarded code is broken.

Where the 34 cases of handwriting recognition are tested:

     1  reading order of one column    test_cases_layout
     2  columns interleaved            test_cases_layout
     3  a line in pieces               test_cases_layout
     4  no Coords                      test_cases_xml
     5  degenerate line                test_cases_xml
     6  one bad line shifts all        test_cases_reading
     7  two spellings of points        test_cases_xml
     8  coordinates off the page       test_cases_xml
     9  rewriting drops attributes     test_cases_xml
    10  invalid output                 test_cases_xml
    11  EXIF rotation                  test_cases_images
    12  16-bit grey                    test_cases_images
    13  transparent background         test_cases_images
    14  CMYK                           test_cases_images
    15  huge scan                      test_cases_images
    16  truncated image in a batch     test_cases_images
    17  TIFF with many pages           test_cases_images
    18  PDF                            test_cases_images
    19  blank page                     test_cases_layout
    20  light on dark                  test_cases_layout
    21  no or absurd resolution        test_cases_layout
    22  long lines squeezed            test_cases_reading, test_data
    23  label longer than tokens       test_ctc, test_task
    24  new characters                 test_charset
    25  NFC                            test_charset
    26  spaces                         test_charset
    27  metric of empty texts          test_cases_reading
    28  right to left                  test_cases_reading
    29  places of characters           test_cases_reading
    30  confidence                     test_cases_reading
    31  a page read as a line          test_cases_layout
    32  other hands                    test_cases_reading
    33  pickles                        test_importer
    34  neighbours, upside down        test_cases_layout
"""

import logging
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from htr.io.options import PageOptions
from htr.layout.crop import crop
from htr.layout.detect import detect_lines
from htr.layout.ink import upright_polarity
from htr.layout.order import reading_order
from htr.layout.score import match_lines
from htr.layout.sheet import as_sheet
from htr.page import Line
from htr.predict.pages import find_page, read_page
from htr.predict.transcribe import transcribe_file
from htr.synthetic import draw_line, draw_page, sentence
from tests.htr.making import as_page, column, fake_reader, page_of, paper, rectangle


def ids_in_order(rows):
    image, page = page_of(rows)
    found, _ = reading_order(detect_lines(image).lines)
    truth = dict(match_lines(found, page.lines).pairs)
    return [truth.get(index) for index in range(len(found))]


def test_case_01_one_column_stays_in_order_however_lines_are_indented():
    shifts = [0, 60, 15, 120, 0, 200, 30, 90, 5]
    rows = [(40 + shift, 420 + shift % 70, 50 + 36 * n) for n, shift in enumerate(shifts)]
    assert ids_in_order(rows) == list(range(9))


def test_case_02_columns_are_read_one_after_the_other():
    left, right = column(30, 280, 50, 9), column(320, 570, 62, 9)
    rows = [row for pair in zip(left, right, strict=True) for row in pair]
    assert ids_in_order(rows) == [*range(0, 18, 2), *range(1, 18, 2)]


def test_case_02_facing_pages_with_a_narrow_gutter_are_not_merged():
    image, _ = page_of(column(30, 285, 50, 10) + column(317, 570, 50, 10))
    page = find_page(as_page(image))
    assert len(page.lines) == 20
    assert len(page.regions) == 2
    assert [line.region for line in page.lines] == ["region_0001"] * 10 + ["region_0002"] * 10


def test_case_03_pieces_on_one_line_are_one_line_unless_asked_otherwise():
    gaps = [[40, 120 + 67 * n % 110, 340 + 83 * n % 120, 560] for n in range(8)]
    rows = [(a + 26, b - 26, 50 + 36 * n) for n in range(8) for a, b in pairwise(gaps[n])]
    image, _ = page_of(rows)
    assert len(detect_lines(image).lines) == 8
    assert len(detect_lines(image, merge_pieces=False).lines) >= 16


def test_case_19_a_blank_page_gives_an_empty_result_at_once():
    for level, noise in ((255, 0), (235, 6), (20, 3)):
        image = paper(700, 500, level, noise)
        page = read_page(as_page(image), fake_reader, find_page(as_page(image)))
        assert page.lines == ()
        assert page.text == ""


def test_case_19_a_few_specks_are_no_lines():
    image = paper(700, 500)
    rng = np.random.default_rng(0)
    for y, x in rng.integers(10, 480, (60, 2)):
        image[y : y + 2, x : x + 2] = 40
    assert len(detect_lines(image).lines) <= 2


def test_case_20_light_ink_on_dark_is_found_and_cut_as_dark_ink():
    image, truth = page_of(column(60, 540, 60, 9))
    seen = []

    def reader(images):
        seen.extend(images)
        return fake_reader(images)

    sheet = as_sheet(as_page(255 - image))
    page = find_page(sheet)
    assert match_lines(page.lines, truth.lines).f1 == 1.0
    read_page(sheet, reader, page)
    assert all(np.median(strip) > 180 for strip in seen)


def test_case_20_the_polarity_can_be_forced():
    image, _ = page_of(column(60, 540, 60, 9))
    assert (upright_polarity(image, "light") == 255 - image).all()
    assert (upright_polarity(image, "dark") == image).all()
    assert (upright_polarity(255 - image, "auto") == image).all()


@pytest.mark.parametrize("dpi", [None, (1, 1), (70, 70), (100_000, 100_000)], ids=str)
def test_case_21_the_resolution_in_the_file_plays_no_part(tmp_path, dpi):
    image, truth = page_of(column(60, 540, 60, 9))
    options = {} if dpi is None else {"dpi": dpi}
    Image.fromarray(image).save(tmp_path / "p.png", **options)
    (_, page), *_ = transcribe_file(tmp_path / "p.png", fake_reader)
    assert match_lines(page.lines, truth.lines).f1 == 1.0


def test_case_31_a_page_is_cut_into_lines_by_default_and_a_warning_tells_of_one_read_whole(caplog):
    image, _ = page_of(column(60, 540, 60, 9))
    assert len(find_page(as_page(image)).lines) == 9
    options = PageOptions(single_line=True)
    with caplog.at_level(logging.WARNING):
        page = read_page(as_page(image), fake_reader, find_page(as_page(image), None, options), options)
    assert len(page.lines) == 1
    assert "look like several lines" in caplog.text
    caplog.clear()
    one, _ = page_of([(20, 420, 40)], height=60, width=440)
    read_page(as_page(one), fake_reader, find_page(as_page(one), None, options), options)
    assert "several lines" not in caplog.text


def test_case_34_ink_of_the_neighbours_is_painted_over():
    image, page = page_of([(40, 400, 80), (40, 400, 104)], height=160, width=440)
    alone, _ = page_of([(40, 400, 80)], height=160, width=440)
    tight = Line(id="a", baseline=page.lines[0].baseline, polygon=rectangle(35, 55, 405, 84))
    box = Line(id="a", baseline=page.lines[0].baseline, polygon=rectangle(35, 55, 405, 115))
    masked, both = crop(image, tight, 60), crop(image, box, 60)
    reference = crop(alone, tight, 60)
    assert np.abs(masked.astype(float) - reference).mean() < 6
    assert both[40:].min() < 100
    polygon = np.array([[35, 55], [405, 55], [405, 84], [300, 112], [35, 84]], float)
    cornered = crop(image, Line(id="a", baseline=tight.baseline, polygon=polygon), 60)
    assert cornered[46:, :60].min() > 180


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_case_34_turned_lines_come_out_upright(turn):
    """A line turned by quarters, its baseline still in writing direction, gives the same crop."""
    image, page = page_of([(40, 400, 120)], height=240, width=440)
    line = page.lines[0]
    reference = crop(image, line, 60).astype(float)
    baseline, polygon, turned = line.baseline, line.polygon, image
    for _ in range(turn):
        height = turned.shape[0]
        turned = np.rot90(turned, -1)
        baseline, polygon = (
            np.stack([height - 1 - points[:, 1], points[:, 0]], axis=1) for points in (baseline, polygon)
        )
    strip = crop(np.ascontiguousarray(turned), Line(id="a", baseline=baseline, polygon=polygon), 60)
    assert abs(strip.shape[1] - reference.shape[1]) <= 2
    width = min(strip.shape[1], reference.shape[1])
    assert np.abs(strip[:, :width] - reference[:, :width]).mean() < 8


@pytest.mark.parametrize("points", [2, 12])
@pytest.mark.parametrize("reverse", [False, True])
def test_case_34_two_point_and_reversed_baselines_give_the_same_crop(points, reverse):
    image, page = page_of([(40, 400, 120)], height=240, width=440, slope=0.1)
    line = page.lines[0]
    share = np.linspace(0, 1, points)[:, None]
    baseline = line.baseline[0] + share * (line.baseline[1] - line.baseline[0])
    other = Line(id="a", baseline=baseline[::-1] if reverse else baseline, polygon=line.polygon)
    strip, reference = crop(image, other, 60), crop(image, line, 60)
    assert strip.shape == reference.shape
    assert np.abs(strip.astype(float) - reference).mean() < 2


@pytest.mark.parametrize("turn", [1, 3])
def test_a_page_on_its_side_is_told(turn):
    rng = np.random.default_rng(0)
    upright, _ = draw_page([sentence(rng) for _ in range(8)], rng)
    assert not find_page(as_page(upright)).is_sideways
    assert find_page(as_page(np.ascontiguousarray(np.rot90(upright, turn)))).is_sideways


def test_a_single_line_and_a_blank_page_are_not_on_their_side():
    rng = np.random.default_rng(0)
    for text in ("Le jardin garde les fenêtres ouvertes", "mot", "l", "1847"):
        assert not find_page(as_page(draw_line(text, rng))).is_sideways
    assert not find_page(as_page(np.full((300, 200), 255, np.uint8))).is_sideways
