"""Print beside handwriting: told apart, marked, and left out of the text where hands write most of it."""

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from htr.io.options import PageOptions
from htr.io.pages import read_lines
from htr.io.pagexml import page_xml
from htr.layout.printed import are_print, mark_print, print_odds
from htr.layout.sheet import as_sheet
from htr.page import Line, Page, Region, box_polygon
from htr.predict.pages import find_page, read_page
from htr.synthetic import draw_line
from tests.htr.making import as_page, fake_reader, paper

WORDS = ("The quick brown fox jumps over the lazy dog", "Pack my box with five dozen liquor jugs now")


def printed(text, height=64, size=40):
    picture = Image.new("L", (24 * len(text), height), 235)
    ImageDraw.Draw(picture).text((8, 6), text, fill=30, font=ImageFont.load_default(size=size))
    return np.asarray(picture)


def mixed(prints, hands):
    """A page with some printed lines above some handwritten ones."""
    image, rng = paper(60 + 60 * (prints + hands), 900), np.random.default_rng(0)
    for number in range(prints):
        strip = printed(WORDS[number % 2], 44, 26)[:, :760]
        top = 30 + 60 * number
        image[top : top + 44, 60 : 60 + strip.shape[1]] = strip
    for number in range(hands):
        strip = draw_line(WORDS[number % 2], rng)[:, :800]
        strip = cv2.resize(strip, (strip.shape[1], 56))
        top = 24 + 60 * (prints + number)
        image[top : top + 56, 60 : 60 + strip.shape[1]] = np.minimum(strip, 235)
    return image


def test_print_has_better_odds_than_handwriting():
    rng = np.random.default_rng(0)
    hands = [print_odds(draw_line(text, rng)) for text in WORDS]
    prints = [print_odds(printed(text)) for text in WORDS]
    assert min(prints) > 1 > 0 > max(hands)


def test_an_empty_strip_and_one_of_two_letters_tell_nothing():
    assert print_odds(np.full((64, 300), 230, np.uint8)) is None
    assert print_odds(printed("ab")) is None


@pytest.mark.parametrize(
    ("odds", "expected"),
    [
        ([3, 3, 3, -4, -4, -4], [True] * 3 + [False] * 3),
        ([-4, 3, -4, -4], [False] * 4),  # one line alone is not enough: twice 2 is more than 3
        ([-4, 5, -4, -4], [False, True, False, False]),
        ([2, -0.5, None, 2, 1], [True] * 5),
        ([None, -1], [False, False]),
        ([], []),
    ],
)
def test_lines_of_print_are_told_with_their_neighbours(odds, expected):
    assert are_print(odds) == expected


def lines_of(count):
    return tuple(
        Line(id=f"l{n}", region="r", text=str(n), polygon=box_polygon(0, 10 * n, 50, 10 * n + 8))
        for n in range(count)
    )


@pytest.mark.parametrize(
    ("mode", "count", "text"),
    [("auto", 1, "1\n2\n3"), ("auto", 3, "0\n1\n2\n3"), ("text", 1, "0\n1\n2\n3"), ("skip", 3, "3")],
)
def test_print_is_beside_the_text_only_where_hands_wrote_half_of_it(mode, count, text):
    page = Page(width=60, height=60, lines=lines_of(4), regions=(Region(id="r"),))
    marked = mark_print(page, [n < count for n in range(4)], mode)
    assert marked.text == text
    assert [region.kind for region in marked.regions] == ["print", None]
    assert [line.region for line in marked.lines] == [
        "region_0001" if n < count else "region_0002" for n in range(4)
    ]


@pytest.mark.parametrize(("mode", "read"), [("auto", 7), ("text", 7), ("skip", 5)])
def test_a_letterhead_is_found_read_and_marked_in_page_xml(tmp_path, mode, read):
    sheet = as_sheet(as_page(mixed(2, 5)))
    seen = []

    def reader(images):
        seen.extend(images)
        return fake_reader(images)

    options = PageOptions(printed=mode)
    page = read_page(sheet, reader, find_page(sheet, options=options), options)
    assert len(seen) == read
    assert [line.kind for line in page.lines] == ["print"] * 2 + [None] * 5
    assert len(page.text.splitlines()) == (7 if mode == "text" else 5)
    (tmp_path / "p.xml").write_bytes(page_xml(page))
    assert b'production="printed"' in page_xml(page)
    assert [region.kind for region in read_lines(tmp_path / "p.xml").regions] == ["print", None]


def test_a_page_of_print_alone_is_text_like_any_other():
    sheet = as_sheet(as_page(mixed(5, 0)))
    page = read_page(sheet, fake_reader, find_page(sheet))
    assert [line.kind for line in page.lines] == ["print"] * 5
    assert len(page.text.splitlines()) == 5
