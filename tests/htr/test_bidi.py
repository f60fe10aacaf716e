import pytest
from hypothesis import given
from hypothesis import strategies as st

from htr.bidi import base_direction, logical_order, to_display, to_logical
from htr.io.pages import read_lines
from tests.helpers import shared_data

# Logical text, base direction, what stands on the page from left to right; upper case is Hebrew below.
HEBREW = str.maketrans("ABCDEFGHIJ", "אבגדהוזחטי")
BY_HAND = [
    ("car is ABC", "ltr", "car is CBA"),
    ("ABC car", "rtl", "car CBA"),
    ("ABC 123 DEF", "rtl", "FED 123 CBA"),
    ("ABC (DE)", "rtl", "(ED) CBA"),
    ("he said ABC, DEF.", "ltr", "he said FED ,CBA."),
    ("12,5 ABC", "rtl", "CBA 12,5"),
    ("ABC ", "rtl", " CBA"),
    ("", "rtl", ""),
    ("(a)", "ltr", "(a)"),
]


@pytest.mark.parametrize(("logical", "base", "display"), BY_HAND)
def test_display_order_by_hand(logical, base, display):
    assert to_display(logical.translate(HEBREW), base) == display.translate(HEBREW)


@pytest.mark.parametrize(("logical", "base", "display"), BY_HAND)
def test_logical_order_by_hand(logical, base, display):
    assert to_logical(display.translate(HEBREW), base) == logical.translate(HEBREW)


def test_numbers_after_arabic_letters_keep_their_order():
    text = "سنة 1905 (م)"
    assert to_display(text, "rtl").startswith("(م) 1905 ")
    assert to_logical(to_display(text, "rtl"), "rtl") == text


def test_marks_stay_behind_their_letter():
    text = "אָב"
    assert to_display(text, "rtl") == "באָ"
    assert to_logical("באָ", "rtl") == text


@given(st.text("abאב ", max_size=12), st.sampled_from(["ltr", "rtl"]))
def test_letters_and_spaces_show_again_as_they_were_seen(text, base):
    seen = to_display(text, base)
    assert to_display(to_logical(seen, base), base) == seen


@given(st.text("abאבجد12 ()-.,é", max_size=12), st.sampled_from(["ltr", "rtl"]))
def test_an_order_is_a_permutation(text, base):
    order, levels = logical_order(text, base)
    assert sorted(order) == list(range(len(text)))
    assert len(levels) == len(text)


@given(st.text("abcé,.()12 ", max_size=20))
def test_left_to_right_text_is_left_alone(text):
    assert to_logical(text, "ltr") == text


def test_most_letters_decide_the_direction():
    assert base_direction("אבג a 123") == "rtl"
    assert base_direction("abc א") == "ltr"
    assert base_direction("123") == "ltr"


def test_real_arabic_lines_survive_both_ways():
    page = read_lines(shared_data("htr/xml/tarima_MMSH_MS_056_0052.xml"))
    assert len(page.lines) == 26
    for line in page.lines:
        assert base_direction(line.text) == "rtl"
        assert to_logical(to_display(line.text, "rtl"), "rtl") == line.text
