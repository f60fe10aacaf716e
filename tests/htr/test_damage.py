"""Lines as other tools cut them: what each change does to the picture, and that the text stays."""

import numpy as np
import pytest

from htr.data.damage import CHANGES, binarise, coarsen, damage, damaged, fade, paper_of, shave, widen
from htr.data.inputs import Sample

PAPER = 230


def line(height=64, width=400):
    """Upright strokes over the whole height on grey paper."""
    image = np.full((height, width), PAPER, dtype=np.uint8)
    image[:, 10::23] = 40
    return image


@pytest.mark.parametrize("change", [change for change, _ in CHANGES], ids=lambda change: change.__name__)
@pytest.mark.parametrize("size", [(64, 400), (64, 9), (16, 64)])
def test_every_change_gives_a_grey_line_that_is_not_narrower_than_its_writing(change, size):
    for seed in range(5):
        changed = change(line(*size), np.random.default_rng(seed))
        assert changed.dtype == np.uint8
        assert changed.ndim == 2
        # Positions keep their share of the width, so only a coarse scan changes the number of columns.
        assert change is coarsen or changed.shape[1] == size[1]


def test_shaving_cuts_the_tips_and_leaves_the_middle():
    shaved = shave(line(), np.random.default_rng(0))
    assert (shaved[32] == line()[32]).all()
    assert (shaved[0] == PAPER).mean() > (line()[0] == PAPER).mean()


def test_a_wider_cut_holds_the_line_unchanged():
    wide = widen(line(), np.random.default_rng(3))
    assert any((wide[top : top + 64] == line()).all() for top in range(len(wide) - 63))


def test_one_bit_is_two_greys():
    assert set(np.unique(binarise(line(), np.random.default_rng(0)))) == {0, 255}


def test_faint_ink_is_at_most_half_as_deep():
    faint = fade(line(), np.random.default_rng(0)).astype(float)
    assert paper_of(line()) - np.percentile(faint, 1) < (PAPER - 40) * 0.6


def test_the_same_numbers_give_the_same_damage():
    first, second = (damage(line(), np.random.default_rng(7)) for _ in range(2))
    assert (first == second).all()


def test_a_share_of_the_lines_is_copied_and_texts_stay():
    lines = [Sample(str(number), "p", "s", "train", f"text {number}", line()) for number in range(200)]
    copies = damaged(lines, 0.3)
    assert 40 < len(copies) < 80
    assert all(copy.text == f"text {copy.id}" for copy in copies)
    assert damaged(lines, 0) == []
