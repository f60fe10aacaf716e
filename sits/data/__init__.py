"""Labelled image time series, cut into crops and stacked into batches."""

from sits.data.batches import Batch, Crops, collate
from sits.data.labelled import IGNORE, LabelledSeries, Sample, count_classes
from sits.data.sources import DataConfig, SitsSplits, open_splits

__all__ = [
    "IGNORE",
    "Batch",
    "Crops",
    "DataConfig",
    "LabelledSeries",
    "Sample",
    "SitsSplits",
    "collate",
    "count_classes",
    "open_splits",
]
