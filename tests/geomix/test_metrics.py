import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score, jaccard_score

from geomix.errors import InputError
from geomix.learn.metrics import EditDistance, confusion, scores


def test_confusion_by_hand():
    pred, target = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 9])
    assert confusion(pred, target, 3, ignore=9).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_confusion_and_scores_agree_with_scikit_learn(pairs):
    target, pred = (list(values) for values in zip(*pairs, strict=True))
    matrix = confusion(torch.tensor(pred), torch.tensor(target), 4)
    assert matrix.tolist() == confusion_matrix(target, pred, labels=range(4)).tolist()
    found = scores(matrix)
    assert found["miou"] == pytest.approx(jaccard_score(target, pred, average="macro"))
    assert found["macro_f1"] == pytest.approx(f1_score(target, pred, average="macro"))


def test_parts_add_up_to_the_whole():
    torch.manual_seed(0)
    pred, target = torch.randint(5, (2, 40, 3)), torch.randint(5, (2, 40, 3))
    parts = sum(confusion(p, t, 5) for p, t in zip(pred, target, strict=True))
    assert torch.equal(parts, confusion(pred, target, 5))


def test_an_absent_class_is_nan_and_does_not_count():
    found = scores(torch.tensor([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    assert found["iou"][:2] == [0.75, 0.8]
    assert math.isnan(found["iou"][2])
    assert found["miou"] == pytest.approx(0.775)
    assert found["oa"] == 7 / 8
    assert found["recall"][0] == 0.75
    assert found["precision"][1] == 0.8


def test_a_class_that_is_only_predicted_counts_as_wrong():
    assert scores(torch.tensor([[3, 1], [0, 0]]))["iou"] == [0.75, 0.0]


@pytest.mark.parametrize(
    ("pred", "target", "message"),
    [
        ([0, 1], [0], "differ in shape"),
        ([0, 3], [0, 1], r"prediction holds class 3 at 1 positions, but there are only classes 0 to 2"),
        ([0, 1], [-1, -1], r"target holds class -1 at 2 positions"),
    ],
)
def test_labels_that_do_not_fit_are_named(pred, target, message):
    with pytest.raises(InputError, match=message):
        confusion(torch.tensor(pred), torch.tensor(target), 3)


def test_error_rates_by_hand():
    distance = EditDistance()
    distance.add("the cat, sat", "the  cat sat ")
    distance.add("ab", "")
    found = distance.scores()
    assert found["cer"] == 3 / 14
    assert found["wer"] == 2 / 4
    assert found["wer_punctuation"] == 2 / 5
    assert (found["lines"], found["characters"], found["words"]) == (2, 14, 4)


def test_an_empty_reference_counts_insertions_but_has_no_rate():
    distance = EditDistance()
    distance.add("", "abc")
    assert math.isnan(distance.scores()["cer"])
    distance.add("abcd", "abcd")
    assert distance.scores()["cer"] == 0.75


def test_a_text_against_itself_has_no_errors():
    distance = EditDistance()
    distance.add("Çà, l’été «chaud»", "Çà, l’été «chaud»")
    assert distance.scores()["cer"] == distance.scores()["wer_punctuation"] == 0
