import math

import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from htr.predict.lm import CharacterModel


def test_probabilities_of_all_characters_add_up_to_one():
    texts = ["le chat dort", "la chatte dort", "été"]
    lm = CharacterModel(texts, order=3)
    seen = sorted(set("".join(texts)))
    for before in ("", "le ch", "zzz"):
        known = sum(math.exp(lm.log_probability(before, char)) for char in seen)
        never = math.exp(lm.log_probability(before, "§"))  # one share is kept for all that was never seen
        assert known + never == pytest.approx(1.0)


def test_by_hand():
    lm = CharacterModel(["ab"], order=2)
    # Over all: a and b once each, 2 novelties, and a third of a share for each of a, b and the unseen.
    single = (1 + 2 / 3) / 4
    assert math.exp(lm.log_probability("", "a")) == pytest.approx((1 + single) / 2)
    assert math.exp(lm.log_probability("a", "b")) == pytest.approx((1 + single) / 2)
    assert math.exp(lm.log_probability("b", "a")) == pytest.approx(single)  # nothing followed b


def test_what_was_seen_in_context_is_likelier_than_what_was_not():
    lm = CharacterModel(["la maison est grande", "la maison est petite"])
    assert lm.log_probability("la mai", "s") > lm.log_probability("la mai", "t")
    assert lm.log_probability("", "l") > lm.log_probability("", "s")  # lines begin with l


def test_only_the_last_characters_count():
    lm = CharacterModel(["abcabcabd"], order=3)
    assert lm.log_probability("xxxxab", "c") == lm.log_probability("zab", "c")


def test_a_text_file_teaches_and_anything_else_is_named(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("été\n\nhiver\n", encoding="utf-8")
    assert CharacterModel.from_file(file).log_probability("é", "t") > math.log(0.3)
    with pytest.raises(MissingFileError, match=r"absent\.txt"):
        CharacterModel.from_file(tmp_path / "absent.txt")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        CharacterModel.from_file(file)
    file.write_text(" \n")
    with pytest.raises(FormatError, match="no text"):
        CharacterModel.from_file(file)
    with pytest.raises(InputError, match="1 or more"):
        CharacterModel(["a"], order=0)
