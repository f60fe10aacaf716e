"""The plain rival: a random forest on what is classically computed for each point."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geomix.learn.metrics import confusion, scores
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, LABEL, Inputs, LabelledCloud, features
from pointcloud.task.scoring import Metrics, official_mean

CLASSICAL = Inputs(
    voxel=0.5,
    features=("ground", "height", "shape", "intensity", "returns"),
    height_radii=(1.0, 2.0, 8.0, 25.0),
    shape_voxels=(0.25, 0.5, 1.0, 2.0),
)
"""What the forest sees of a point; the voxel plays no part."""


def classical_features(cloud: Cloud) -> NDArray[np.float32]:
    """Heights above five grounds, shape at four scales, intensity and returns, [N, F]."""
    return features(cloud, CLASSICAL)


def forest(
    train: Sequence[LabelledCloud],
    judged: Sequence[LabelledCloud],
    classes: int,
    seed: int = 0,
    trees: int = 100,
) -> Metrics:
    """Train a forest on labelled points and score it on others.

    Args:
        train: clouds to learn from.
        judged: clouds to score, each point of them.
        classes: number of classes K.
        seed: decides the forest.
        trees: how many.

    Returns:
        The figures that `task.score` gives for a network.
    """
    from sklearn.ensemble import RandomForestClassifier

    table, labels = _labelled([one.read() for one in train])
    model = RandomForestClassifier(
        trees, min_samples_leaf=5, class_weight="balanced_subsample", random_state=seed, n_jobs=-1
    )
    model.fit(table, labels)
    total: Tensor = torch.zeros(classes, classes, dtype=torch.int64)
    for one in judged:
        table, labels = _labelled([one.read()])
        total += confusion(torch.from_numpy(model.predict(table)), torch.from_numpy(labels), classes)
    return {**scores(total), "miou_official": official_mean(total), "points": int(total.sum())}


def _labelled(clouds: Sequence[Cloud]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    labels = np.concatenate([np.asarray(cloud.fields[LABEL], dtype=np.int64) for cloud in clouds])
    table = np.concatenate([classical_features(cloud) for cloud in clouds])
    return table[labels != IGNORE], labels[labels != IGNORE]
