import pytest

from geomix.errors import InputError
from htr.charset import Charset, clean_label, describe, normalize_text


def test_classes_count_from_one_and_the_blank_is_zero():
    charset = Charset("ab c")
    assert len(charset) == 5
    assert charset.encode("b a") == [2, 3, 1]
    assert charset.decode([0, 2, 0, 3, 1, 0]) == "b a"


def test_a_charset_collects_each_character_once_in_order():
    assert Charset.from_texts(["bca", "ab é"]).characters == (" ", "a", "b", "c", "é")


@pytest.mark.parametrize(("characters", "message"), [("aba", "'a'"), (["ab"], "must be one character")])
def test_a_charset_that_is_no_list_of_characters_is_refused(characters, message):
    with pytest.raises(InputError, match=message):
        Charset(characters)


def test_an_unknown_character_is_named_with_its_code_point():
    with pytest.raises(InputError, match=r"'é' \(U\+00E9\) 2 x.*--charset"):
        Charset("ab").encode("aéé")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (">mot< suivant", "mot suivant"),
        ("avant >< après", "avant après"),
        ("avant > < après", "avant après"),
        ("du-Nord->Westptralie<", "du-Nord-Westptralie"),
        ("><", ""),
        ("a < b", "a b"),
    ],
)
def test_struck_out_marks_go_and_the_words_stay(raw, clean):
    assert clean_label(raw) == clean


def test_case_24_fine_tuning_keeps_joins_or_replaces_the_charset():
    known = Charset("cab")
    new = ["abc d", "éd"]
    assert known.unknown(new) == {"d": 2, " ": 1, "é": 1}
    assert describe(known.unknown(new)).startswith("'d' (U+0064) 2 x")
    assert known.merge(new, "keep") is known
    assert known.merge(new, "union").characters == ("c", "a", "b", " ", "d", "é")  # old numbers stay
    assert known.merge(new, "new").characters == (" ", "a", "b", "c", "d", "é")


def test_case_25_composed_and_decomposed_letters_are_one_and_the_long_s_stays():
    assert normalize_text("e\u0301te\u0301") == "été"
    assert normalize_text("poſt ﬁn") == "poſt ﬁn"  # NFKC would write "post fin"
    assert Charset.from_texts([clean_label("e\u0301")]).characters == ("é",)


def test_case_26_spaces_are_stripped_and_collapsed():
    assert clean_label(" \ta  b\r\n c\u00a0 ") == "a b c"
