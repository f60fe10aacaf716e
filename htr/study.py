"""The mixers and the ways of training on the same lines, with the same budget.

geomix htr study --data FOLDER
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from geomix.checkpoint import load_model, read_card
from geomix.config import load_config
from geomix.learn.study import Figures, Trial, run_methods
from htr.task.experiment import HtrConfig
from htr.task.training import train

ATTENTION = {"name": "attention", "heads": 6}
POM = {"name": "pom", "degree": 2, "expand": 2, "gate_heads": 32}

METHODS: Mapping[str, dict[str, Any]] = {
    "PoM": {},
    "attention": {"mixer": ATTENTION},
    "hybrid": {"mixer": [ATTENTION, POM] * 2},
    "PoM, no convolution": {"local": 0},
    "PoM, pages of 4 lines": {"context": "page", "page_lines": 4},
}
"""Name -> what differs from `small.yaml`."""

KEYS = ("cer", "cer_new_hands", "wer")


def study(
    data: str | Path | Sequence[str | Path],
    work: str | Path,
    seeds: int = 1,
    epochs: int = 6,
    config: HtrConfig | str | Path = "small",
) -> list[Trial]:
    """Train each of `METHODS` with each seed for the same number of steps and score the validation lines.

    Args:
        data: tars of lines, or folders of them.
        work: folder for results and runs in progress; what is there already is not run again.
        seeds: how many seeds, from 0.
        epochs: length of a training; the learning rate falls to 0 within it.
        config: what the methods change.

    Returns:
        A trial a method and seed, with `cer`, `cer_new_hands`, `wer` and `parameters`.
    """
    base = config if isinstance(config, HtrConfig) else load_config(config, "htr", HtrConfig)
    methods = {name: partial(_run, changed(base, name, epochs), data) for name in METHODS}
    return run_methods(methods, work, seeds)


def changed(base: HtrConfig, method: str, epochs: int) -> HtrConfig:
    """The experiment of a method. With gates by the head PoM has as many weights as attention, 4 dim^2.

    Sets have no weights: pages cannot have them.
    """
    change = METHODS[method]
    model = base.model.model_dump()
    model |= {key: change[key] for key in ("mixer", "local", "context") if key in change}
    values = base.model_dump()
    values["model"] = model
    values["data"] |= {"weights": {}, "page_lines": change.get("page_lines", 1)}
    values["train"] |= {"epochs": epochs}
    return HtrConfig.model_validate(values)


def _run(config: HtrConfig, data: Any, seed: int, place: Path) -> Figures:
    config = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
    file = train(config, place, data, resume=True, device="cpu")
    val = read_card(file).metrics["val"]
    new = next((found for name, found in val["by_set"].items() if name.endswith("_new_hands")), val)
    count = sum(weight.numel() for weight in load_model(file).parameters())
    return {"cer": val["cer"], "cer_new_hands": new["cer"], "wer": val["wer"], "parameters": float(count)}
