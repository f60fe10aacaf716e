"""What a model is worth on labelled clouds, by the very prediction that users call."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from geomix.checkpoint import card_of
from geomix.errors import InputError
from geomix.learn.metrics import confusion, scores
from geomix.progress import progress
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, LABEL, DataConfig, Inputs, LabelledCloud, open_splits, read_inputs
from pointcloud.data.augment import views
from pointcloud.predict.probabilities import probabilities
from pointcloud.task.experiment import class_ids

Split = Literal["train", "val", "test", "all"]
Metrics = dict[str, Any]


def evaluate(
    model: nn.Module,
    data: str | Path | None = None,
    split: Split = "test",
    augmented: bool = False,
    memory: int | None = None,
) -> Metrics:
    """Score a model on labelled data, divided as its card says.

    Args:
        model: from `load_model`.
        data: folder of the data; may be left out for synthetic data, which are made again.
        split: which part.
        augmented: average over eight turned and mirrored views of each cloud.
        memory: bytes that a prediction may use.

    Returns:
        Metric -> value, with the keys of the card's metrics.

    Raises:
        InputError: if the card does not say how its data are divided, or the split is empty.
    """
    card = card_of(model)
    described = next((one.split for one in card.data if isinstance(one.split, dict)), None)
    if described is None or card.classes is None:
        raise InputError(f"{card.name}: its card does not say how its data are divided")
    config = TypeAdapter[Any](DataConfig).validate_python(described)
    splits = open_splits(config, None if data is None else Path(data), class_ids(card.classes))
    return score(model, splits.of(split), read_inputs(card.inputs), views() if augmented else None, memory)


def score(
    model: nn.Module,
    clouds: Sequence[LabelledCloud],
    inputs: Inputs,
    seen: Sequence[Callable[[Cloud], Cloud]] | None = None,
    memory: int | None = None,
) -> Metrics:
    """Pool the confusion of every labelled point of some clouds and turn it into scores.

    Args:
        model: a PPoMv3.
        clouds: what is judged, each whole.
        inputs: the preprocessing.
        seen: the views of each cloud whose probabilities are averaged; None: the cloud as it is.
        memory: bytes that a prediction may use.

    Returns:
        The figures of `metrics.scores` (means over the classes present), `miou_official` (the mean
        over all classes with an absent one counted as 0, as the benchmarks' servers do) and `points`, the
        number of judged points.
    """
    total: Tensor | None = None
    model.eval()
    for one in progress(clouds, "Scoring", len(clouds)):
        cloud = one.read()
        labels = torch.from_numpy(np.asarray(cloud.fields[LABEL], dtype=np.int64))
        found = probabilities(model, cloud, inputs, seen, memory)
        matrix = confusion(found.argmax(1), labels, found.shape[1], ignore=IGNORE)
        total = matrix if total is None else total + matrix
    if total is None:
        raise InputError("there is nothing to score")
    return {**scores(total), "miou_official": official_mean(total), "points": int(total.sum())}


def official_mean(matrix: Tensor) -> float:
    """Mean IoU over all classes, an absent one counted as 0."""
    hit = matrix.diagonal().double()
    union = (matrix.sum(0) + matrix.sum(1)).double() - hit
    return (hit / union.clamp(min=1)).mean().item()
