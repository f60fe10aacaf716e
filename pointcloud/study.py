"""The mixers and a random forest on the same tiles, with the same budget.

geomix pointcloud study --data FOLDER
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from geomix.checkpoint import load_model, read_card
from geomix.config import load_config
from geomix.errors import InputError
from geomix.learn.study import Figures, Method, Trial, run_methods
from pointcloud.data import open_splits
from pointcloud.task.experiment import PointcloudConfig, class_ids
from pointcloud.task.forest import forest
from pointcloud.task.training import train

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


def study(
    data: str | Path,
    work: str | Path,
    seeds: int = 3,
    epochs: int = 8,
    config: PointcloudConfig | str | Path = "aerial",
) -> list[Trial]:
    """Train each of `METHODS` and a forest with each seed and score every point of the validation clouds.

    No epoch is chosen on these clouds: the last one counts.

    Args:
        data: folder of the labelled clouds.
        work: folder for results and runs in progress; what is there already is not run again.
        seeds: how many seeds, from 0.
        epochs: length of a training; the learning rate falls to 0 within it.
        config: what the methods change.

    Returns:
        A trial a method and seed, with `miou`, `oa` and, of networks, `parameters`.

    Raises:
        InputError: if the data have no validation clouds.
    """
    base = (
        config
        if isinstance(config, PointcloudConfig)
        else load_config(config, "pointcloud", PointcloudConfig)
    )
    methods: dict[str, Method] = {
        name: partial(_run, changed(base, name, epochs), Path(data)) for name in METHODS
    }
    methods[FOREST] = partial(_grow, base, Path(data))
    return run_methods(methods, work, seeds)


def changed(base: PointcloudConfig, method: str, epochs: int) -> PointcloudConfig:
    """The experiment of a method; validation comes once, behind the last epoch, so that none is chosen.

    PoM has 6 dim^2 weights and attention 4 dim^2: where all mixers are attention, the MLPs are one dim wider.
    """
    model = base.model.model_dump() | METHODS[method]
    if model["mixer"] == ATTENTION:
        model["mlp_ratio"] += 1
    values = base.model_dump()
    values["model"] = model
    values["train"] |= {"epochs": epochs, "val_every": epochs}
    return PointcloudConfig.model_validate(values)


def _run(config: PointcloudConfig, data: Path, seed: int, place: Path) -> Figures:
    config = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
    file = train(config, place, data, resume=True, device="cpu")
    metrics = read_card(file).metrics
    if "val" not in metrics:
        raise InputError(f"{data}: the configuration names no validation clouds to compare on")
    count = sum(weight.numel() for weight in load_model(file).parameters())
    return {key: metrics["val"][key] for key in KEYS} | {"parameters": float(count)}


def _grow(config: PointcloudConfig, data: Path, seed: int, place: Path) -> Figures:
    splits = open_splits(config.data, data, class_ids(config.classes))
    metrics = forest(splits.train, splits.val, len(config.classes), seed)
    return {key: metrics[key] for key in KEYS}
