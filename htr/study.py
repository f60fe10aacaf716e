"""The mixers and the ways of training on the same lines, with the same budget.

geomix htr study --data FOLDER
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from geomix.checkpoint import card_of
from geomix.encoder import parameters
from geomix.learn.study import Figures, Method, train_once
from htr.task.experiment import HtrConfig, HtrExperiment

ATTENTION = {"name": "attention", "heads": 6}
POM = {"name": "pom", "degree": 2, "expand": 2, "gate_heads": 32}

METHODS: Mapping[str, dict[str, Any]] = {
    "PoM": {},
    "attention": {"model.mixer": ATTENTION},
    "hybrid": {"model.mixer": [ATTENTION, POM] * 2},
    "PoM, no convolution": {"model.local": 0},
    "PoM, pages of 4 lines": {"model.context": "page", "data.page_lines": 4},
}
"""Name -> what differs from `small.yaml`."""

KEYS = ("cer", "cer_new_hands", "wer")


def methods(
    data: str | Path | Sequence[str | Path] | None,
    epochs: int = 6,
    config: HtrConfig | str | Path = "small",
) -> dict[str, Method]:
    """Each of `METHODS`, trained for the same number of steps and scored on the validation lines.

    A result has `cer`, `cer_new_hands`, `wer` and `parameters`.

    Args:
        data: tars of lines, or folders of them.
        epochs: length of a training; the learning rate falls to 0 within it.
        config: what the methods change.
    """
    base = HtrExperiment(config).config
    return {name: partial(_train, changed(base, name, epochs), data) for name in METHODS}


def changed(base: HtrConfig, method: str, epochs: int) -> HtrConfig:
    """The experiment of a method. With gates by the head PoM has as many weights as attention, 4 dim^2.

    Sets have no weights: pages cannot have them.
    """
    return base.changed({"data.weights": {}, "data.page_lines": 1, **METHODS[method], "train.epochs": epochs})


def _train(config: HtrConfig, data: Any, seed: int, place: Path) -> Figures:
    model = train_once(HtrExperiment, config, data, seed, place)
    val = card_of(model).metrics["val"]
    new = next((found for name, found in val["by_set"].items() if name.endswith("_new_hands")), val)
    size = float(parameters(model))
    return {"cer": val["cer"], "cer_new_hands": new["cer"], "wer": val["wer"], "parameters": size}
