"""Losses against the definition of the Jaccard surrogate, and what they refuse."""

import itertools

import pytest
import torch
from torch import Tensor

from geomix.errors import InputError
from pointcloud.data import IGNORE
from pointcloud.task.losses import check_labels, lovasz_softmax, segmentation_loss


def jaccard_loss(wrong: Tensor, truth: Tensor) -> float:
    """1 - IoU of a class when exactly the points `wrong` are misjudged."""
    union = (truth | wrong).sum()
    return int(wrong.sum()) / int(union) if union else 0.0


def test_at_hard_predictions_it_is_the_mean_jaccard_loss_of_the_classes_present() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    for guess in itertools.product(range(3), repeat=4):
        hard = torch.nn.functional.one_hot(torch.tensor(guess), 3).double()
        expected = 0.0
        for one in (0, 1):
            truth = labels == one
            wrong = truth != (torch.tensor(guess) == one)
            expected += jaccard_loss(wrong, truth) / 2
        assert lovasz_softmax(hard, labels).item() == pytest.approx(expected, abs=1e-12)


def test_between_hard_predictions_it_follows_the_sorted_errors() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    expected = 0.0
    for one in (0, 1):
        truth = labels == one
        errors = (truth.double() - probabilities[:, one]).abs()
        order = errors.argsort(descending=True)
        before = 0.0
        for rank in range(3):
            wrong = torch.zeros(3, dtype=torch.bool)
            wrong[order[: rank + 1]] = True
            after = jaccard_loss(wrong, truth)
            expected += errors[order[rank]].item() * (after - before) / 2
            before = after
    assert lovasz_softmax(probabilities, labels).item() == pytest.approx(expected, abs=1e-12)


def test_its_gradient_passes_gradcheck() -> None:
    logits = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda x: lovasz_softmax(x.softmax(1), labels), logits)


def test_ignored_points_change_nothing() -> None:
    scores, labels = torch.randn(20, 4), torch.randint(0, 4, (20,))
    alone = segmentation_loss(scores, labels)
    more = segmentation_loss(
        torch.cat([scores, torch.randn(9, 4)]), torch.cat([labels, torch.full((9,), IGNORE)])
    )
    torch.testing.assert_close(more, alone)


def test_without_labels_the_loss_is_zero_and_differentiable() -> None:
    scores = torch.randn(5, 4, requires_grad=True)
    loss = segmentation_loss(scores, torch.full((5,), IGNORE))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(scores.grad, torch.zeros(5, 4))
    assert lovasz_softmax(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).item() == 0


def test_parts_are_weighed() -> None:
    scores, labels = torch.randn(20, 4), torch.randint(0, 4, (20,))
    entropy = segmentation_loss(scores, labels, lovasz=0.0)
    torch.testing.assert_close(entropy, torch.nn.functional.cross_entropy(scores, labels))
    both = segmentation_loss(scores, labels, lovasz=2.0)
    torch.testing.assert_close(both, entropy + 2 * lovasz_softmax(scores.softmax(1), labels))
    weights = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert segmentation_loss(scores, labels, weights, lovasz=0.0) != entropy


@pytest.mark.parametrize(("bad", "message"), [(4, r"4 \(2 times\)"), (-2, r"-2 \(2 times\)"), (255, "255")])
def test_labels_that_are_no_class_are_refused_with_their_count(bad: int, message: str) -> None:
    labels = torch.tensor([0, bad, 1, bad, IGNORE])
    with pytest.raises(InputError, match=message):
        check_labels(labels, 4)
    with pytest.raises(InputError, match=message):
        segmentation_loss(torch.randn(5, 4), labels)
