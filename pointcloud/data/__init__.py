"""From files and folders to batches: preprocessing, labels, data sets."""

from pointcloud.data.batches import Batch, CropConfig, Crops, Whole, collate, prepare_labelled
from pointcloud.data.inputs import Inputs, Sample, features, missing_fields, prepare, read_inputs
from pointcloud.data.labels import IGNORE, LabelMap
from pointcloud.data.sources import LABEL, DataConfig, LabelledCloud, count_classes, open_splits

__all__ = [
    "IGNORE",
    "LABEL",
    "Batch",
    "CropConfig",
    "Crops",
    "DataConfig",
    "Inputs",
    "LabelMap",
    "LabelledCloud",
    "Sample",
    "Whole",
    "collate",
    "count_classes",
    "features",
    "missing_fields",
    "open_splits",
    "prepare",
    "prepare_labelled",
    "read_inputs",
]
