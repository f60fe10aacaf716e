import itertools
import math

import numpy as np
import pytest
import torch

from geomix.errors import InputError
from htr.charset import Charset
from htr.model import ctc
from htr.predict.decode import align, beam_search, decode
from htr.predict.lm import CharacterModel

CHARSET = Charset("ab")


def rows(*tokens):
    return np.array(tokens, dtype=np.float32)


def random_rows(tokens, seed=0, classes=3):
    logits = np.random.default_rng(seed).normal(0, 1.5, (tokens, classes))
    return (np.exp(logits) / np.exp(logits).sum(1, keepdims=True)).astype(np.float32)


def collapse(path):
    return tuple(number for number, _ in itertools.groupby(path) if number)


def by_brute_force(probabilities):
    """The probability of every text: all paths, one by one."""
    texts = {}
    for path in itertools.product(range(probabilities.shape[1]), repeat=len(probabilities)):
        chance = math.prod(float(probabilities[token, number]) for token, number in enumerate(path))
        texts[collapse(path)] = texts.get(collapse(path), 0.0) + chance
    return texts


def test_the_loss_is_the_log_of_all_paths_that_write_the_label():
    probabilities = random_rows(5)
    logits = torch.from_numpy(np.log(probabilities))[None]
    label = [1, 1, 2]
    expected = -math.log(by_brute_force(probabilities)[tuple(label)]) / len(label)
    assert ctc.loss(logits, torch.tensor([5]), [label]).item() == pytest.approx(expected, rel=1e-5)


def test_tokens_behind_the_end_of_a_line_do_not_count():
    logits = torch.randn(2, 9, 3)
    together = ctc.loss(logits, torch.tensor([9, 5]), [[1, 2], [2]])
    alone = [
        ctc.loss(logits[:1], torch.tensor([9]), [[1, 2]]),
        ctc.loss(logits[1:, :5], torch.tensor([5]), [[2]]),
    ]
    assert together.item() == pytest.approx(sum(alone).item() / 2, rel=1e-5)


def test_case_23_doubled_letters_need_a_blank_and_a_label_that_does_not_fit_is_no_infinity():
    assert ctc.tokens_needed("abba") == 5
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    loss = ctc.loss(logits, torch.tensor([2]), [[1, 1]])
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(logits.grad).all()


def test_the_best_path_joins_runs_and_blanks_part_them():
    probabilities = rows([0.1, 0.8, 0.1], [0.1, 0.9, 0.0], [0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.2, 0.2, 0.6])
    symbols = ctc.best_path(probabilities)
    assert [(s.number, s.start, s.end, s.peak) for s in symbols] == [(1, 0, 2, 1), (1, 3, 4, 3), (2, 4, 5, 4)]


def test_case_30_confidences_are_the_highest_of_a_run_and_their_geometric_mean():
    probabilities = rows([0.1, 0.8, 0.1], [0.1, 0.9, 0.0], [0.9, 0.1, 0.0], [0.2, 0.4, 0.4], [0.3, 0.2, 0.5])
    confidences = [s.confidence for s in ctc.best_path(probabilities)]
    assert confidences == pytest.approx([0.9, 0.4, 0.5])
    assert ctc.line_confidence(confidences) == pytest.approx((0.9 * 0.4 * 0.5) ** (1 / 3))
    assert ctc.line_confidence([]) == 1.0
    assert ctc.line_confidence([0.0, 1.0]) > 0  # finite, however sure the network was of something else


@pytest.mark.parametrize("seed", range(8))
def test_a_wide_beam_finds_the_most_probable_text(seed):
    probabilities = random_rows(6, seed)
    texts = by_brute_force(probabilities)
    assert tuple(beam_search(probabilities, CHARSET, beam=100)) == max(texts, key=texts.__getitem__)


def test_a_beam_adds_up_paths_that_the_best_path_does_not():
    # The best path is blank, blank (0.36); "a" has three paths that add up to 0.64.
    probabilities = rows([0.6, 0.4, 0.0], [0.6, 0.4, 0.0])
    assert ctc.best_path(probabilities) == []
    assert [s.number for s in decode(probabilities, CHARSET, beam=4)] == [1]


def test_a_language_model_decides_where_the_image_cannot():
    letters = Charset("aelt")
    unsure = rows(
        [0.02, 0.02, 0.02, 0.92, 0.02],
        [0.04, 0.49, 0.47, 0.0, 0.0],  # l, then a or e
        [0.96, 0.01, 0.01, 0.01, 0.01],
    )
    lm = CharacterModel.learn(["le le le le"])
    assert letters.decode([s.number for s in decode(unsure, letters, beam=8)]) == "la"
    assert letters.decode([s.number for s in decode(unsure, letters, beam=8, lm=lm)]) == "le"


def test_a_beam_below_one_is_refused():
    with pytest.raises(InputError, match="1 or more"):
        decode(random_rows(3), CHARSET, beam=0)


@pytest.mark.parametrize("seed", range(5))
def test_alignment_is_the_most_probable_path_of_its_text(seed):
    probabilities = random_rows(6, seed)
    label = [1, 1, 2]
    paths = (p for p in itertools.product(range(3), repeat=6) if collapse(p) == tuple(label))
    best = max(paths, key=lambda p: math.prod(float(probabilities[t, n]) for t, n in enumerate(p)))
    symbols = align(probabilities, label)
    assert [s.number for s in symbols] == label
    drawn = [0] * 6
    for symbol in symbols:
        drawn[symbol.start : symbol.end] = [symbol.number] * (symbol.end - symbol.start)
    assert tuple(drawn) == best


def test_alignment_and_beam_of_nothing_are_nothing():
    empty = np.zeros((0, 3), dtype=np.float32)
    assert align(empty, [1]) == []
    assert align(random_rows(3), []) == []
    assert ctc.best_path(empty) == []
    assert decode(empty, CHARSET, beam=4) == []
