"""How good a model is on labelled series: on whole seasons, and on what each month has shown."""

import tempfile
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import groupby
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
from sits.data import IGNORE, DataConfig, LabelledSeries, Sample, collate, open_splits
from sits.data.inputs import Inputs

_PIXELS_AT_ONCE = 4096

Split = Literal["train", "val", "test", "all"]
Metrics = dict[str, Any]


def evaluate(
    model: nn.Module,
    data: str | Path | None = None,
    split: Split = "test",
    by_month: bool = False,
) -> Metrics:
    """Score a model on labelled data, divided as its card says.

    Args:
        model: from `load_model`.
        data: folder or file of the data; may be left out for synthetic data, which are made again.
        split: which part.
        by_month: also score what is known at the end of each month, under `by_month`.

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
    inputs = Inputs.of_card(card.inputs)
    with tempfile.TemporaryDirectory() as scratch:
        place = None if data is None else Path(data)
        splits = open_splits(config, place, inputs, card.classes, Path(scratch))
        found = score(model, splits.of(split), inputs)
        if by_month:
            found["by_month"] = score_by_month(model, splits.of(split), inputs)
    return found


def score(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs, until: date | None = None
) -> Metrics:
    """Pool the confusion of all labelled pixels of some series and turn it into scores.

    Args:
        model: logits from values, days and validity.
        series: what is judged, whole, as prediction sees it.
        inputs: the preprocessing.
        until: last date that the model may see.

    Returns:
        The figures of `geomix.metrics.scores`, `support`, the judged pixels of each class, and `pixels`, all
        of them. A pixel that no date shows gets no class and does not count.

    Raises:
        InputError: if there is no series.
    """
    total = count(model, series, inputs, until)
    return {**scores(total), "support": total.sum(1).tolist(), "pixels": int(total.sum())}


def count(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs, until: date | None = None
) -> Tensor:
    """The confusion matrix of `score`, [K, K]; the truth is in the rows."""
    if not series:
        raise InputError("there is nothing to score")
    device = next(model.parameters()).device
    matrices = []
    model.eval()
    groups = list(_alike(series))
    for group in progress(groups, "Scoring", len(groups)):
        batch = collate([_until(one.sample(one.whole, inputs), one.dates, until) for one in group])
        with torch.inference_mode():
            logits = model(batch.values.to(device), batch.days.to(device), batch.valid.to(device)).cpu()
        labels = torch.where(batch.valid.any(1), batch.labels, IGNORE)
        matrices.append(confusion(logits.argmax(1), labels, logits.shape[1], ignore=IGNORE))
    return torch.stack(matrices).sum(0)


def _alike(series: Sequence[LabelledSeries]) -> Iterator[list[LabelledSeries]]:
    """Series of one size together, as many as have the pixels of one large patch: parcels are tiny."""
    for shape, group in groupby(series, key=lambda one: one.labels.shape):
        members, size = list(group), max(1, _PIXELS_AT_ONCE // (shape[0] * shape[1]))
        yield from (members[start : start + size] for start in range(0, len(members), size))


def _until(sample: Sample, dates: Sequence[date], last: date | None) -> Sample:
    """Hide the dates after `last`."""
    if last is None:
        return sample
    known = np.array([day <= last for day in dates])
    return sample._replace(valid=sample.valid & known[:, None, None])


def score_by_month(
    model: nn.Module, series: Sequence[LabelledSeries], inputs: Inputs
) -> dict[str, dict[str, float]]:
    """Scores from what is known at the end of each month: how early in the season can the model judge?

    Returns:
        `YYYY-MM` -> `oa`, `miou` and `macro_f1`, from the first month with a date to the last.
    """
    first = min(one.dates[0] for one in series)
    last = max(one.dates[-1] for one in series)
    found = {}
    for month_end in month_ends(first, last):
        figures = score(model, series, inputs, until=month_end)
        found[f"{month_end:%Y-%m}"] = {name: figures[name] for name in ("oa", "miou", "macro_f1")}
    return found


def month_ends(first: date, last: date) -> list[date]:
    """The last day of each month from that of `first` to that of `last`."""
    ends, month = [], first.replace(day=1)
    while month <= last:
        following = (month + timedelta(days=32)).replace(day=1)
        ends.append(following - timedelta(days=1))
        month = following
    return ends
