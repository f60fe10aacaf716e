"""The transcription convention: one case for each rule."""

import pytest

from htr.data.convention import conventional, conventional_samples
from htr.data.inputs import Sample


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("eſtoit", "estoit"),
        ("M^r le C^te", "Mr le Cte"),
        ("Mʳ", "Mr"),
        ("bõne", "bone"),
        ("cõme m̃", "come m"),
        ("Señor", "Señor"),
        ("où ça, Noël", "où ça, Noël"),
        ("jan(uier)", "jan"),
        ("enfant(s)", "enfant(s)"),
        ("Mon[sieur]", "Mon"),
        ("[com]issaire", "issaire"),
        ("l’un “deux”", 'l\'un "deux"'),
        ("pre=", "pre-"),
        ("a = b", "a = b"),
        ("pre¬", "pre-"),
        ("le >mot< ⟦autre⟧", "le mot autre"),
        ("⁊ ꝑ", "& p"),
        ("Ξ", ""),
    ],
)
def test_each_rule(source, written):
    assert conventional(source) == written
    assert conventional(written) == written


def test_a_line_of_which_nothing_is_left_goes():
    lines = [Sample(text, "p", "s", "train", text, None) for text in ("Ξ", "un")]
    assert [line.text for line in conventional_samples(lines)] == ["un"]
