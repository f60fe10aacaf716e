"""How good a model is on labelled series: on whole seasons, and on what each month has shown.

The series are mapped by the very prediction that users call.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomix.errors import InputError
from geomix.learn.metrics import confusion, scores
from geomix.progress import progress
from sits.data import IGNORE, LabelledSeries
from sits.predict import Scorer, score_blocks

Metrics = dict[str, Any]


def score(scorer: Scorer, series: Sequence[LabelledSeries], until: date | None = None) -> Metrics:
    """Pool the confusion of all labelled pixels of some series and turn it into scores.

    Args:
        scorer: the model.
        series: what is judged, whole.
        until: last date that the model may see.

    Returns:
        The figures of `geomix.learn.metrics.scores`, `support`, the judged pixels of each class, and
        `pixels`, all of them. A pixel that no date shows gets no class and does not count.

    Raises:
        InputError: if there is no series.
    """
    total = count(scorer, series, until)
    return {**scores(total), "support": total.sum(1).tolist(), "pixels": int(total.sum())}


def count(scorer: Scorer, series: Sequence[LabelledSeries], until: date | None = None) -> Tensor:
    """The confusion matrix of `score`, [K, K]; the truth is in the rows."""
    if not series:
        raise InputError("there is nothing to score")
    total = torch.zeros(len(scorer.legend.classes), len(scorer.legend.classes), dtype=torch.int64)
    for one in progress(series, "Scoring", len(series)):
        if until is None or one.dates[0] <= until:
            total += _of_series(scorer, one, until)
    return total


def _of_series(scorer: Scorer, one: LabelledSeries, until: date | None) -> Tensor:
    images = scorer.series(one.series)
    if until is not None:
        images = images.between(last=until)
    matrices = []
    for found in score_blocks(scorer, images, scorer.block_size(images, None), shown=False):
        labels = np.where(found.dates > 0, one.labels[found.window.slices], IGNORE)
        best = torch.from_numpy(found.logits.argmax(axis=0))
        matrices.append(confusion(best, torch.from_numpy(labels), len(scorer.legend.classes), ignore=IGNORE))
    return torch.stack(matrices).sum(0)


def score_by_month(scorer: Scorer, series: Sequence[LabelledSeries]) -> dict[str, dict[str, float]]:
    """Scores from what is known at the end of each month: how early in the season can the model judge?

    Returns:
        `YYYY-MM` -> `oa`, `miou` and `macro_f1`, from the first month with a date to the last.
    """
    found = {}
    for end in month_ends(series):
        figures = score(scorer, series, until=end)
        found[f"{end:%Y-%m}"] = {name: figures[name] for name in ("oa", "miou", "macro_f1")}
    return found


def month_ends(series: Sequence[LabelledSeries]) -> list[date]:
    """The last day of each month from that of the first date to that of the last."""
    first = min(one.dates[0] for one in series)
    last = max(one.dates[-1] for one in series)
    ends, month = [], first.replace(day=1)
    while month <= last:
        following = (month + timedelta(days=32)).replace(day=1)
        ends.append(following - timedelta(days=1))
        month = following
    return ends
