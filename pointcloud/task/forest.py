"""The plain rival: a random forest on what is classically computed for each point."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.checkpoint import read_card, save_model
from geomix.files import new_file
from geomix.learn.trees import fit_forest
from geomix.report import json_text, table
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, LABEL, Inputs, LabelledCloud, features, open_splits
from pointcloud.data.inputs import cleaned
from pointcloud.model.forest import Forest
from pointcloud.task.experiment import PointcloudExperiment, class_ids
from pointcloud.task.scoring import Metrics, score

log = logging.getLogger(__name__)

CLASSICAL = Inputs(
    voxel=0.01,
    features=("ground", "height", "shape", "intensity", "returns"),
    optional=(),
    height_radii=(1.0, 2.0, 8.0, 25.0),
    shape_voxels=(0.25, 0.5, 1.0, 2.0),
)
"""What the forest sees of a point; voxels are so small that they play no part."""
OPTIONAL = CLASSICAL.model_copy(update={"optional": ("intensity", "returns")})
"""The same for tiles some of which lack intensity or returns."""

_MOST_POINTS = 200_000
"""Points that a forest beside a network learns from."""


def classical_features(cloud: Cloud, inputs: Inputs = CLASSICAL) -> NDArray[np.float32]:
    """Heights above five grounds, shape at four scales, intensity and returns, [N, F]."""
    return features(cloud, inputs)


def grow(
    clouds: Sequence[LabelledCloud],
    classes: int,
    seed: int = 0,
    trees: int = 100,
    most: int | None = None,
    inputs: Inputs = CLASSICAL,
) -> Forest:
    """Grow a forest on labelled points.

    Args:
        clouds: to learn from.
        classes: number of classes K.
        seed: decides the forest, and the points if there are too many.
        trees: how many.
        most: points that are drawn from all labelled ones; None for all of them.
        inputs: what the forest sees.
    """
    tables, labels, rng = [], [], np.random.default_rng(seed)
    for one in clouds:
        cloud = cleaned(one.read(), inputs)
        own = np.asarray(cloud.fields[LABEL], dtype=np.int64)
        counted = np.flatnonzero(own != IGNORE)
        if most is not None and len(counted) * len(clouds) > most:
            counted = np.sort(rng.choice(counted, most // len(clouds), replace=False))
        tables.append(classical_features(cloud, inputs)[counted])
        labels.append(own[counted])
    options: dict[str, Any] = {"min_samples_leaf": 5, "class_weight": "balanced_subsample", "n_jobs": -1}
    grown = fit_forest(np.concatenate(tables), np.concatenate(labels), classes, seed, trees, **options)
    return Forest(grown)


def forest(
    train: Sequence[LabelledCloud],
    judged: Sequence[LabelledCloud],
    classes: int,
    seed: int = 0,
    trees: int = 100,
) -> Metrics:
    """Grow a forest on labelled clouds and score every point of others, as a network is scored.

    Arguments as in `grow`; `judged` are the clouds to score.
    """
    return score(grow(train, classes, seed, trees), judged, CLASSICAL)


def beside(experiment: PointcloudExperiment, data: Path, folder: Path) -> Path:
    """Grow a forest on the tiles that a network was trained on, write it beside it and report both.

    Args:
        experiment: by which the network was trained.
        data: folder of the tiles.
        folder: the run folder; gets `forest.safetensors`, `report.txt` and `report.json`.

    Returns:
        The report, text.
    """
    config = experiment.config
    card = read_card(folder / f"{config.name}.safetensors")
    classes, seed = config.classes, config.train.seed
    splits = open_splits(config.data, data, class_ids(classes))
    grown = grow(splits.train, len(classes), seed, most=_MOST_POINTS, inputs=OPTIONAL)
    fields: dict[str, Any] = {
        "name": "forest",
        "model": grown.config.model_dump(mode="json"),
        "inputs": OPTIONAL.model_dump(mode="json"),
    }
    names = [one.name for one in classes]
    figures = {name: score(grown, splits.of(name), OPTIONAL, names=names) for name in splits.held_out}
    fields["metrics"] = figures
    place = folder / "forest.safetensors"
    save_model(grown, card.model_copy(update=fields), place, overwrite=True)
    both = {card.name: card.metrics, "forest": figures}
    text = _report(both, names)
    for name in figures:
        network, trees = card.metrics[name]["miou"], figures[name]["miou"]
        if trees > network:
            log.warning(
                "the forest is ahead of the network on %s (mean IoU %.3f against %.3f); it can be served: "
                "--model %s",
                name,
                trees,
                network,
                place,
            )
    for file, content in (("report.txt", text), ("report.json", json_text(both))):
        with new_file(folder / file, overwrite=True) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")
    return folder / "report.txt"


def _report(both: dict[str, dict[str, Metrics]], classes: Sequence[str]) -> str:
    """A table of each part: mean IoU, accuracy and IoU of each class of each method."""
    parts = []
    for name in next(iter(both.values())):
        rows = [
            (method, figures[name]["miou"], figures[name]["oa"], *figures[name]["iou"])
            for method, figures in both.items()
            if name in figures
        ]
        parts.append(f"{name}\n{table(('method', 'mean IoU', 'accuracy', *classes), rows)}")
    return "\n\n".join(parts)
