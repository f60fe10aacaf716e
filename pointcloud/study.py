"""The mixers and a random forest on the same tiles, with the same budget.

geomix pointcloud study --data FOLDER
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from geomix.checkpoint import card_of
from geomix.encoder import parameters
from geomix.errors import InputError
from geomix.learn.study import Figures, Method, train_once
from pointcloud.data import open_splits
from pointcloud.task.experiment import PointcloudConfig, PointcloudExperiment, class_ids
from pointcloud.task.forest import forest

WINDOW = 1024
"""Voxels of a window of attention, as in PTv3."""
ATTENTION = {"name": "attention", "patch_size": WINDOW}
WIDE = {"name": "pom", "patch_size": 4096}

METHODS: Mapping[str, dict[str, Any]] = {
    "PPoMv3, whole scan": {"patch_size": None},
    "PPoMv3, windows": {"patch_size": WINDOW},
    # With one block a stage the mixers take turns over the stages: the two finest ones have PoM.
    "hybrid": {
        "encoder_mixers": [WIDE, WIDE, ATTENTION, ATTENTION, ATTENTION],
        "decoder_mixers": [WIDE, WIDE, ATTENTION, ATTENTION],
    },
    "PTv3 attention": {"mixer": ATTENTION},
}
"""Name -> what differs from the model of `aerial.yaml`."""

FOREST = "random forest"
KEYS = ("miou", "oa")


def methods(
    data: Path, epochs: int = 8, config: PointcloudConfig | str | Path = "aerial"
) -> dict[str, Method]:
    """Each of `METHODS` and a forest, trained and scored on every point of the validation clouds.

    No epoch is chosen on these clouds: the last one counts. A result has `miou`, `oa` and, of networks,
    `parameters`.

    Args:
        data: folder of the labelled clouds.
        epochs: length of a training; the learning rate falls to 0 within it.
        config: what the methods change.
    """
    base = PointcloudExperiment(config).config
    networks = {name: partial(_train, changed(base, name, epochs), data) for name in METHODS}
    return {**networks, FOREST: partial(_grow, base, data)}


def changed(base: PointcloudConfig, method: str, epochs: int) -> PointcloudConfig:
    """The experiment of a method; validation comes once, behind the last epoch, so that none is chosen.

    PoM has 6 dim^2 weights and attention 4 dim^2: where all mixers are attention, the MLPs are one dim wider.
    """
    model = {f"model.{name}": value for name, value in METHODS[method].items()}
    if model.get("model.mixer") == ATTENTION:
        model["model.mlp_ratio"] = base.model.mlp_ratio + 1
    return base.changed({**model, "train.epochs": epochs, "train.val_every": epochs})


def _train(config: PointcloudConfig, data: Path, seed: int, place: Path) -> Figures:
    model = train_once(PointcloudExperiment, config, data, seed, place)
    metrics = card_of(model).metrics
    if "val" not in metrics:
        raise InputError(f"{data}: the configuration names no validation clouds to compare on")
    return {key: metrics["val"][key] for key in KEYS} | {"parameters": float(parameters(model))}


def _grow(config: PointcloudConfig, data: Path, seed: int, place: Path) -> Figures:
    splits = open_splits(config.data, data, class_ids(config.classes))
    metrics = forest(splits.train, splits.val, len(config.classes), seed)
    return {key: metrics[key] for key in KEYS}
