import math

import pytest
from safetensors import safe_open

from geomix.errors import FormatError, InputError, MissingFileError
from htr.predict.lm import BUNDLED, CharacterModel, find_lm
from htr.predict.texts import read_texts


def test_probabilities_of_all_characters_add_up_to_one():
    texts = ["le chat dort", "la chatte dort", "été"]
    lm = CharacterModel.learn(texts, order=3)
    seen = sorted(set("".join(texts)))
    for before in ("", "le ch", "zzz"):
        known = sum(math.exp(lm.log_probability(before, char)) for char in seen)
        never = math.exp(lm.log_probability(before, "§"))  # one share is kept for all that was never seen
        assert known + never == pytest.approx(1.0)


def test_by_hand():
    lm = CharacterModel.learn(["ab"], order=2)
    # Over all: a and b once each, 2 novelties, and a third of a share for each of a, b and the unseen.
    single = (1 + 2 / 3) / 4
    assert math.exp(lm.log_probability("", "a")) == pytest.approx((1 + single) / 2)
    assert math.exp(lm.log_probability("a", "b")) == pytest.approx((1 + single) / 2)
    assert math.exp(lm.log_probability("b", "a")) == pytest.approx(single)  # nothing followed b


def test_what_was_seen_in_context_is_likelier_than_what_was_not():
    lm = CharacterModel.learn(["la maison est grande", "la maison est petite"])
    assert lm.log_probability("la mai", "s") > lm.log_probability("la mai", "t")
    assert lm.log_probability("", "l") > lm.log_probability("", "s")  # lines begin with l


def test_only_the_last_characters_count():
    lm = CharacterModel.learn(["abcabcabd"], order=3)
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
    with pytest.raises(InputError, match="must be 1 to 8"):
        CharacterModel.learn(["a"], order=0)


def slowly(texts, order):
    """Witten and Bell's estimate word for word, over dictionaries."""
    counts = {}
    for text in texts:
        padded = "\n" + text
        for index in range(1, len(padded)):
            for length in range(min(order, index + 1)):
                after = counts.setdefault(padded[index - length : index], {})
                after[padded[index]] = after.get(padded[index], 0) + 1
    uniform = 1 / (len(counts[""]) + 1)

    def share(context, character):
        shorter = share(context[1:], character) if context else uniform
        after = counts.get(context, {})
        if not after:
            return shorter
        return (after.get(character, 0) + len(after) * shorter) / (sum(after.values()) + len(after))

    return lambda before, character: share(("\n" + before)[-(order - 1) :], character)


TEXTS = ["le chat noir dort", "la chatte noire", "le chien", "été", "le chat", "on chante"]


def test_it_gives_what_the_formula_gives_word_for_word():
    lm, truth = CharacterModel.learn(TEXTS, order=4), slowly(TEXTS, 4)
    for before in ("", "l", "le ch", "chat", "zzz", "é"):
        for character in [*sorted(set("".join(TEXTS))), "§"]:
            assert math.exp(lm.log_probability(before, character)) == pytest.approx(truth(before, character))


def test_without_rare_ngrams_probabilities_still_add_up_to_one():
    whole, pruned = CharacterModel.learn(TEXTS, order=6), CharacterModel.learn(TEXTS, order=6, least=2)
    assert [len(level.last) for level in pruned.levels] < [len(level.last) for level in whole.levels]
    for before in ("", "le ch", "le cha", "chat noi", "zzz"):
        shares = [math.exp(pruned.log_probability(before, char)) for char in [*set("".join(TEXTS)), "§"]]
        assert sum(shares) == pytest.approx(1.0, abs=1e-5)


def test_a_saved_model_loads_as_it_was_to_the_rounding(tmp_path):
    lm = CharacterModel.learn(TEXTS, order=5)
    lm.save(tmp_path / "my.lm", source="here")
    again = CharacterModel.from_file(tmp_path / "my.lm")
    for before in ("", "le ch", "zzz"):
        for character in "lchnté§":
            # One rounding a shortened context and one for the share itself.
            wanted = lm.log_probability(before, character)
            assert again.log_probability(before, character) == pytest.approx(wanted, abs=5 / 32)


def test_what_is_no_model_is_named(tmp_path):
    (tmp_path / "my.lm").write_bytes(b"no model at all")
    with pytest.raises(FormatError, match=r"my\.lm"):
        CharacterModel.from_file(tmp_path / "my.lm")


def test_more_characters_than_codes_keeps_the_frequent_ones():
    rare = "".join(chr(0x4E00 + number) for number in range(300))
    lm = CharacterModel.learn(["ab" * 50, rare])
    assert len(lm.characters) == 254
    assert {"a", "b"} <= set(lm.characters)
    assert lm.log_probability("a", "b") > math.log(0.9)


def test_a_model_is_named_or_a_file_or_none(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("le chat\n", encoding="utf-8")
    assert find_lm(None) is find_lm("none") is None
    assert find_lm(str(file)) is find_lm(file)  # loaded once
    assert find_lm(find_lm(file)) is find_lm(file)
    with pytest.raises(MissingFileError, match="latin: there is no such"):
        find_lm("latin")


def test_long_paragraphs_are_broken_into_lines_at_spaces(tmp_path):
    file = tmp_path / "novel.txt"
    words = "l’été " * 40
    file.write_text(words + "\n\nfin\n", encoding="utf-8")
    lines = list(read_texts([file]))
    assert max(map(len, lines)) <= 60
    assert " ".join(lines) == "l'été " * 40 + "fin"


def test_text_to_learn_from_is_checked(tmp_path):
    with pytest.raises(InputError, match="no text"):
        list(read_texts([]))
    with pytest.raises(MissingFileError, match=r"absent\.txt"):
        list(read_texts([tmp_path / "absent.txt"]))
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        list(read_texts([tmp_path / "bad.txt"]))


def test_the_bundled_french_model_knows_french_and_says_where_it_is_from():
    lm = find_lm("french")
    assert lm.log_probability("les enfan", "t") > math.log(0.9)
    assert lm.log_probability("les enfan", "x") < math.log(0.001)
    assert (BUNDLED / "french.lm").stat().st_size <= 8_000_000
    with safe_open(BUNDLED / "french.lm", "numpy") as file:
        assert "public domain" in file.metadata()["licence"]
