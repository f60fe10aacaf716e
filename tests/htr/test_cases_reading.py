"""Cases of what is read and how it is measured; the list of all cases is in test_cases_layout."""

import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest

from geomix.cli import run
from geomix.learn.metrics import EditDistance
from geomix.report import json_text
from htr.bidi import to_display
from htr.io.alto import alto_xml
from htr.io.options import PageOptions
from htr.io.pages import read_lines
from htr.io.pagexml import page_xml
from htr.io.words import geometric_mean
from htr.page import Line, Page
from htr.predict.lines import Char, Transcription
from htr.predict.pages import find_page, read_page
from htr.task.scoring import PageScore
from tests.htr.making import as_page, column, fake_reader, page_of, reader_of, rectangle, said


def page_with(bad, rows=6):
    """A page of lines of different lengths, one of which cannot be cut out."""
    image, page = page_of([(40, 200 + 50 * n, 60 + 36 * n) for n in range(rows)])
    lines = list(page.lines)
    lines[bad] = replace(lines[bad], baseline=np.array([[5.0, 5.0]]), polygon=np.empty((0, 2)))
    return image, replace(page, lines=tuple(lines))


@pytest.mark.parametrize("bad", [0, 3, 5])
def test_case_06_a_line_that_cannot_be_read_keeps_its_slot_and_moves_no_other(bad, caplog):
    image, page = page_with(bad)
    with caplog.at_level(logging.WARNING):
        read = read_page(as_page(image), fake_reader, page)
    assert [line.id for line in read.lines] == [line.id for line in page.lines]
    assert read.lines[bad].text == ""
    assert read.lines[bad].error is not None
    assert f"line l{bad}" in caplog.text
    widths = [int(line.text.rpartition("w=")[2]) for n, line in enumerate(read.lines) if n != bad]
    lengths = [np.ptp(line.polygon[:, 0]) for n, line in enumerate(page.lines) if n != bad]
    assert widths == pytest.approx([64 / 30 * length for length in lengths], abs=3)


def test_case_06_the_slots_reach_the_files(tmp_path):
    image, page = page_with(2)
    read = read_page(as_page(image), fake_reader, page)
    (tmp_path / "p.xml").write_bytes(page_xml(read))
    assert [line.id for line in read_lines(tmp_path / "p.xml").lines] == [line.id for line in page.lines]
    assert read.text.split("\n")[2] == ""
    assert len(read.text.split("\n")) == 6


@pytest.mark.parametrize("length", [200, 2000, 9000])
def test_case_22_a_long_line_is_cut_out_at_its_own_proportions(length):
    image, page = page_of([(20, 20 + length, 60)], height=100, width=length + 60)
    seen = []

    def reader(images):
        seen.extend(images)
        return fake_reader(images)

    read_page(as_page(image), reader, page)
    assert seen[0].shape == (64, round(length * 64 / 30))


def test_case_27_rates_count_all_edits_over_all_characters():
    score = EditDistance()
    score.add("abcdefghij", "abcdefghij")
    score.add("ab", "xyzwv")
    assert score.scores()["cer"] == pytest.approx(5 / 12)


def test_case_27_empty_texts_count_and_never_become_invalid_json():
    score = EditDistance()
    score.add("", "")
    assert math.isnan(score.scores()["cer"])
    assert json.loads(json_text(score.scores()))["cer"] is None
    score.add("", "abc")
    assert json.loads(json_text(score.scores()))["cer"] is None
    score.add("abc", "abc")
    assert score.scores()["cer"] == pytest.approx(1.0)


def test_case_27_invented_and_missed_lines_of_a_page_count():
    def line(name, y, text):
        return Line(id=name, polygon=rectangle(0, y, 100, y + 20), text=text)

    truth = Page(width=100, height=200, lines=(line("a", 0, "abcd"), line("b", 40, "efgh")))
    found = Page(width=100, height=200, lines=(line("1", 0, "abcd"), line("2", 120, "zz")))
    score = PageScore()
    score.add(found, truth)
    figures = score.scores()
    assert figures["cer"] == pytest.approx(4 / 9)
    assert figures["cer_matched"] == pytest.approx(4 / 8)
    assert (figures["lines"], figures["lines_found"], figures["f1_lines"]) == (2, 2, 0.5)
    assert PageScore().scores()["f1_lines"] != PageScore().scores()["f1_lines"]


HEBREW = "אבג דהו 123 (abc)"


def test_case_28_right_to_left_lines_are_stored_in_logical_order():
    image, page = page_of([(40, 400, 80)], height=160, width=440)
    display = to_display(HEBREW, "rtl")
    read = read_page(as_page(image), reader_of(display), page)
    assert read.lines[0].text == HEBREW
    # The first character that is spoken stands at the right end of the line.
    boxes = read.lines[0].char_boxes
    assert boxes[0, 0] == boxes[:, 0].max()
    assert boxes[HEBREW.index("a"), 0] < boxes[HEBREW.index("1"), 0]


@pytest.mark.parametrize(
    ("page_says", "line_says", "option", "expected"),
    [
        (None, None, "auto", "ltr"),
        ("rtl", None, "auto", "rtl"),
        ("ltr", "rtl", "auto", "rtl"),
        (None, None, "rtl", "rtl"),
    ],
)
def test_case_28_the_file_or_an_option_gives_the_base_direction(page_says, line_says, option, expected):
    """`abc אבג` reads differently in the two directions; most letters decide only where nobody says."""
    image, page = page_of([(40, 400, 80)], height=160, width=440)
    page = replace(page, direction=page_says, lines=(replace(page.lines[0], direction=line_says),))
    options = PageOptions(direction=option)
    found = find_page(as_page(image), page, options)
    read = read_page(as_page(image), reader_of("abcd גבא"), found, options)
    assert read.lines[0].text == {"ltr": "abcd אבג", "rtl": "אבג abcd"}[expected]


def test_case_28_alto_and_page_hold_the_direction():
    line = Line(id="a", polygon=rectangle(0, 0, 90, 20), text=HEBREW)
    page = Page(width=100, height=50, lines=(line,))
    for told in (replace(page, direction="rtl"), replace(page, lines=(replace(line, direction="rtl"),))):
        assert b'readingDirection="right-to-left"' in page_xml(told)
        assert b'BASEDIRECTION="rtl"' in alto_xml(told)
    assert b"right-to-left" not in page_xml(page)
    assert b"rtl" not in alto_xml(page)


@pytest.mark.parametrize("slope", [0.0, 0.12])
def test_case_29_characters_lie_where_they_were_seen(slope):
    image, page = page_of([(40, 400, 100)], height=220, width=440, slope=slope)
    read = read_page(as_page(image), reader_of("0123456789"), page)
    boxes = read.lines[0].char_boxes
    middles = (boxes[:, 0] + boxes[:, 2]) / 2
    expected = 40 + (np.arange(10) + 0.5) * 36
    assert middles == pytest.approx(expected, abs=6)
    assert (np.diff(boxes[:, 0]) > 20).all()
    x0, y0, x1, y1 = read.lines[0].bounds()
    assert boxes[:, 0].min() >= x0 - 8
    assert boxes[:, 2].max() <= x1 + 8
    assert boxes[:, 1].min() >= y0 - 8
    assert boxes[:, 3].max() <= y1 + 8


def test_case_30_confidences_are_a_geometric_mean_and_reach_every_format():
    assert geometric_mean((0.5, 1.0)) == pytest.approx(math.sqrt(0.5))
    assert geometric_mean(()) is None
    image, page = page_of([(40, 400, 80)], height=160, width=440)
    chars = tuple(
        Char(c, 40.0 * i, 40.0 * (i + 1), p)
        for i, (c, p) in enumerate(zip("ab c", (0.9, 0.4, 1, 0.25), strict=True))
    )
    read = read_page(as_page(image), lambda _: [Transcription("ab c", 0.548, chars)], page)
    assert read.lines[0].confidence == 0.548
    assert read.lines[0].char_confidences == (0.9, 0.4, 1, 0.25)
    assert b'conf="0.5480"' in page_xml(read)
    alto = alto_xml(read).decode()
    assert 'WC="0.6000"' in alto
    assert 'WC="0.2500"' in alto


def test_case_32_the_help_says_what_the_model_was_trained_on_and_how_to_learn_another_hand(capsys):
    run(["htr", "transcribe", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "trained on French hands" in text
    assert "fine-tune it" in text
    run(["htr", "train", "--help"])
    assert "fine-tuning" in capsys.readouterr().out


def test_the_fake_reader_says_one_thing_a_line():
    image, page = page_of(column(40, 400, 60, 3))
    assert [line.text.split()[0] for line in read_page(as_page(image), fake_reader, page).lines] == [
        *("n=0", "n=1", "n=2")
    ]
    assert said("", 10).chars == ()
