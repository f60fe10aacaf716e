"""What a model is worth on labelled clouds, by the very prediction that users call."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geomix.errors import InputError
from geomix.learn.metrics import confusion, scores
from geomix.learn.report import Report
from geomix.progress import progress
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, LABEL, Inputs, LabelledCloud
from pointcloud.data.inputs import cleaned
from pointcloud.predict.probabilities import probabilities

Metrics = dict[str, Any]

_FILES = 100
"""Most clouds whose figures are listed one by one."""


def score(
    model: nn.Module,
    clouds: Sequence[LabelledCloud],
    inputs: Inputs,
    seen: Sequence[Callable[[Cloud], Cloud]] | None = None,
    memory: str | int | None = None,
    names: Sequence[str] = (),
) -> Metrics:
    """Pool the confusion of every labelled point of some clouds and turn it into scores.

    Args:
        model: a PPoMv3 or a forest.
        clouds: what is judged, each whole.
        inputs: the preprocessing.
        seen: the views of each cloud whose probabilities are averaged; None: the cloud as it is.
        memory: most memory that a prediction may use, as bytes or text like `4GB`.
        names: of the classes; numbers if not given.

    Returns:
        The figures of `metrics.scores` (means over the classes present); `miou_official` (the mean over all
        classes with an absent one counted as 0, as the benchmarks' servers do); `points`, the number of
        judged points; `noise`, the number of those left out as noise; `classes` and `confusion` of `Report`;
        and `files`, `oa`, `miou` and `points` of each of up to 100 clouds.
    """
    matrices: dict[str, Tensor] = {}
    noise = 0
    model.eval()
    for one in progress(clouds, "Scoring", len(clouds)):
        whole = one.read()
        cloud = cleaned(whole, inputs)
        noise += len(whole) - len(cloud)
        labels = torch.from_numpy(np.asarray(cloud.fields[LABEL], dtype=np.int64))
        found = probabilities(model, cloud, inputs, seen, memory)
        matrix = confusion(found.argmax(1), labels, found.shape[1], ignore=IGNORE)
        matrices[one.name] = matrices[one.name] + matrix if one.name in matrices else matrix
    if not matrices:
        raise InputError("there is nothing to score")
    total = torch.stack([*matrices.values()]).sum(0)
    report = Report(tuple(names) or tuple(map(str, range(len(total)))), total, "points").figures()
    files = {name: _of_file(matrix) for name, matrix in matrices.items()} if len(matrices) <= _FILES else {}
    return {
        **scores(total),
        "miou_official": official_mean(total),
        "points": int(total.sum()),
        "noise": noise,
        "classes": report["classes"],
        "confusion": report["confusion"],
        "files": files,
    }


def report_of(figures: Metrics) -> Report:
    """The report that the figures of `score` are made of."""
    rows = figures["confusion"]
    return Report(tuple(rows), torch.tensor([[*row.values()] for row in rows.values()]), "points")


def _of_file(matrix: Tensor) -> Metrics:
    found = scores(matrix)
    return {"oa": found["oa"], "miou": found["miou"], "points": int(matrix.sum())}


def official_mean(matrix: Tensor) -> float:
    """Mean IoU over all classes, an absent one counted as 0."""
    hit = matrix.diagonal().double()
    union = (matrix.sum(0) + matrix.sum(1)).double() - hit
    return (hit / union.clamp(min=1)).mean().item()
