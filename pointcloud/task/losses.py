"""Losses of segmentation: cross-entropy and the Lovász surrogate of the IoU."""

import torch
from torch import Tensor
from torch.nn import functional

from geomix.errors import InputError
from pointcloud.data.labels import IGNORE


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that are neither a class nor ignored, before they index anything.

    Raises:
        InputError: naming the labels and how often they occur.
    """
    wrong = labels[(labels != IGNORE) & ((labels < 0) | (labels >= classes))]
    if len(wrong):
        values, counts = torch.unique(wrong, return_counts=True)
        found = ", ".join(f"{int(v)} ({int(c)} times)" for v, c in zip(values[:5], counts[:5], strict=True))
        raise InputError(f"labels must be 0 to {classes - 1}, or {IGNORE} to be ignored; got {found}")


def lovasz_softmax(probabilities: Tensor, labels: Tensor) -> Tensor:
    """One minus a convex surrogate of the mean IoU over the classes present.

    For each class the errors are sorted, and each is weighed by how much the Jaccard loss grows when the
    point with that error turns wrong.

    Args:
        probabilities: of each class, [N, K].
        labels: classes 0 to K - 1, [N]; leave ignored points out before.

    Returns:
        A scalar; 0 without points.

    Source: Berman et al., The Lovász-Softmax loss, CVPR 2018, equation 9 and algorithm 1.
    """
    present = torch.unique(labels)
    if len(present) == 0:
        return probabilities.sum() * 0
    truth = (labels[:, None] == present).to(probabilities.dtype)  # [N, P]
    errors, order = (truth - probabilities[:, present]).abs().sort(dim=0, descending=True)
    truth = truth.gather(0, order)
    total = truth.sum(0)
    jaccard = 1 - (total - truth.cumsum(0)) / (total + (1 - truth).cumsum(0))
    growth = torch.cat([jaccard[:1], jaccard.diff(dim=0)])
    loss: Tensor = (errors * growth).sum(0).mean()
    return loss


def segmentation_loss(
    scores: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    lovasz: float = 1.0,
    smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy plus `lovasz` times the Lovász loss, over the points that are not ignored.

    Args:
        scores: before softmax, [N, K].
        labels: classes, or `IGNORE`, [N].
        class_weights: weight of each class in the cross-entropy, [K].
        lovasz: weight of the Lovász loss.
        smoothing: label smoothing of the cross-entropy.

    Returns:
        A scalar; 0 where every point is ignored.

    Raises:
        InputError: if a label is neither a class nor ignored.
    """
    check_labels(labels, scores.shape[1])
    counted = labels != IGNORE
    scores, labels = scores[counted].float(), labels[counted]
    if len(labels) == 0:
        return scores.sum() * 0
    loss = functional.cross_entropy(scores, labels, class_weights, label_smoothing=smoothing)
    return loss + lovasz * lovasz_softmax(scores.softmax(1), labels) if lovasz else loss
