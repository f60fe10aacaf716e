"""The page as it is found and read: even light, outlines from the ink, and nothing clear that vanishes."""

from dataclasses import replace

import numpy as np
import pytest

from htr.io.preview import preview
from htr.io.text import page_dict
from htr.layout.crop import cut
from htr.layout.detect import PICTURE, detect_lines
from htr.layout.given import outline_from_ink
from htr.layout.light import level_light
from htr.layout.sheet import as_sheet
from htr.page import Line, Page
from htr.predict.pages import find_page, read_page
from tests.htr.making import as_page, column, fake_reader, page_of, paper, scribble

ROWS = column(60, 540, 60, 9)


def shaded(image, darkest=0.4):
    """The right half of a page in a shadow with a soft edge."""
    edge = np.clip((np.arange(image.shape[1]) - 280) / 40, 0, 1)
    return np.rint(image * (1 - (1 - darkest) * edge)).astype(np.uint8)


def test_a_page_in_even_light_is_left_as_it_is():
    image, _ = page_of(ROWS)
    assert level_light(image) is image
    dark = np.full((300, 300), 10, np.uint8)
    assert level_light(dark) is dark


def test_a_shadow_is_divided_out_of_paper_and_ink():
    image, _ = page_of(ROWS)
    level = level_light(shaded(image)).astype(int)
    paper_there = image > 200
    assert np.abs(level - image)[paper_there].mean() < 4
    ink = image < 80
    assert np.percentile(level[ink], 75) < 110


def test_lines_are_read_in_even_light():
    image, _ = page_of(ROWS)
    sheet = as_sheet(as_page(shaded(image)))
    seen = []

    def reader(images):
        seen.extend(images)
        return fake_reader(images)

    read_page(sheet, reader, find_page(sheet))
    assert len(seen) == 9
    thirds = [strip.shape[1] // 3 for strip in seen]
    halves = [
        (np.percentile(strip[:, :third], 80), np.percentile(strip[:, -third:], 80))
        for strip, third in zip(seen, thirds, strict=True)
    ]
    assert all(abs(left - right) < 12 for left, right in halves)


def bands(page):
    return [replace(line, is_band=True) for line in page.lines]


def test_an_outline_comes_from_the_ink_where_only_the_baseline_is_known():
    image, page = page_of(ROWS)
    # One long letter reaches far above its band.
    image[120:180, 300:304] = 40
    drawn = outline_from_ink(image, bands(page))
    assert not any(line.is_band for line in drawn)
    for line, before in zip(drawn, page.lines, strict=True):
        np.testing.assert_array_equal(line.baseline, before.baseline)
    tall = drawn[3].polygon
    assert tall[(tall[:, 0] > 280) & (tall[:, 0] < 324), 1].min() < 150
    assert cut(image, drawn[3], 64).pixels.min() < 100


def test_lines_with_an_outline_steep_ones_and_empty_ones_keep_what_they_have():
    image, page = page_of(ROWS)
    steep = replace(page.lines[0], baseline=np.array([[30.0, 40.0], [34.0, 380.0]]), is_band=True)
    image[180:215] = 235
    given = [page.lines[1], steep, *bands(page)[2:]]
    drawn = outline_from_ink(image, given)
    assert drawn[0] is given[0]
    assert drawn[1] is given[1]
    empty = [line for line in drawn[2:] if line.is_band]
    assert len(empty) == 1
    assert 180 < empty[0].baseline[0, 1] < 216


def test_a_stamp_is_no_line_but_does_not_vanish():
    image, _ = page_of(ROWS)
    tall = np.concatenate([image, paper(300, image.shape[1])])
    tall[520:620, 200:300] = 90
    tall[540:600:8, 210:290] = 220
    found = detect_lines(tall)
    assert len(found.lines) == 9
    [stamp] = [line for line in found.dropped if line.error == PICTURE]
    assert stamp.bounds() == pytest.approx((200, 520, 300, 620), abs=4)
    page = find_page(as_page(tall))
    assert {"reason": PICTURE, "polygon": page_dict(page)["dropped"][0]["polygon"]} in page_dict(page)[
        "dropped"
    ]
    picture = np.asarray(preview(tall, page))
    assert (picture == (130, 130, 130)).all(axis=2).any()


def test_a_line_of_small_letters_between_wide_gaps_is_writing():
    # Small letters far apart have much of their ink in few rows, as a rule has.
    image = paper(700, 900)
    for number in range(10):
        scribble(image, 60, 840, 60 + 64 * number, size=6, seed=number)
    assert len(detect_lines(image).lines) == 10


def test_the_scale_of_a_page_moves_what_was_dropped_too():
    line = Line(id="d", polygon=np.array([[0.0, 0], [4, 0], [4, 4]]), error="x")
    page = Page(width=10, height=10, dropped=(line,)).scaled(2, 3, 20, 30)
    assert page.dropped[0].polygon.max(axis=0).tolist() == [8, 12]
