"""Labelled image time series, cut into crops and stacked into batches."""

from sits.data.batches import Batch, Crops, collate
from sits.data.labelled import IGNORE, LabelledSeries, Sample
from sits.data.sources import DataConfig, Splits, open_splits

__all__ = [
    "IGNORE",
    "Batch",
    "Crops",
    "DataConfig",
    "LabelledSeries",
    "Sample",
    "Splits",
    "collate",
    "open_splits",
]
