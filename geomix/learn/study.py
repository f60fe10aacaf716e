"""Studies: several methods with the same budget and several seeds; finished results survive a stop."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from geomix.checkpoint import load_model
from geomix.files import make_folder, new_file
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, train
from geomix.report import json_text, table

log = logging.getLogger(__name__)

Figures = dict[str, float]
Method = Callable[[int, Path], Figures]
"""Runs one method with a seed in its own folder, and gives its figures."""


@dataclass(frozen=True)
class Trial:
    """The result of one method with one seed."""

    method: str
    seed: int
    figures: Figures


def kept(folder: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result in a folder, computed and written there if it is missing.

    Args:
        folder: one folder per result; it may hold a run in progress.
        make: computes a result that JSON can hold.
    """
    file = folder / "result.json"
    if not file.exists():
        make_folder(folder)
        result = make()
        with new_file(file) as temporary:
            temporary.write_text(json.dumps(result), encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def run_methods(methods: Mapping[str, Method], work: str | Path, seeds: int) -> list[Trial]:
    """Run every method with every seed, except those whose result is in the work folder.

    Args:
        methods: name -> what runs it.
        work: folder for results and runs in progress.
        seeds: number of seeds, counted from 0.
    """
    trials = []
    for seed in range(seeds):
        for name, method in methods.items():
            place = Path(work) / f"{'-'.join(name.replace(',', '').split())}-{seed}"
            figures = kept(place, lambda run=method, seed=seed, place=place: run(seed, place))  # type: ignore[misc]
            trials.append(Trial(name, seed, figures))
            log.info("%s, seed %d: %s", name, seed, _words(figures))
    return trials


def train_once(
    kind: type[Experiment[Any, Any]], config: ExperimentConfig, data: Any, seed: int, folder: Path
) -> nn.Module:
    """Train a configuration with a seed on the CPU, or resume it, and load the model.

    Args:
        kind: the experiment class of the domain.
        config: what to train.
        data: where the labelled data lie.
        seed: in place of that of the configuration.
        folder: the run folder.

    Returns:
        The model, whose card holds its scores: `card_of(model).metrics`.
    """
    experiment = kind(config.changed({"train.seed": seed}))
    return load_model(train(experiment, folder, data, resume=True, device="cpu"))


def summary(trials: Sequence[Trial], keys: Iterable[str]) -> list[tuple[str | int | float, ...]]:
    """One row per method: its name, the number of seeds, then mean and spread of each figure."""
    rows: list[tuple[str | int | float, ...]] = []
    names = list(keys)
    for method in dict.fromkeys(trial.method for trial in trials):
        own = [trial.figures for trial in trials if trial.method == method]
        columns = [[figures[key] for figures in own] for key in names]
        spread = [number for values in columns for number in (float(np.mean(values)), float(np.std(values)))]
        rows.append((method, len(own), *spread))
    return rows


def report(trials: Sequence[Trial], keys: Sequence[str], as_json: bool) -> str:
    """Write the summary of trials as a table, or as JSON with each trial."""
    rows = summary(trials, keys)
    if as_json:
        return json_text({"trials": [asdict(trial) for trial in trials], "summary": rows})
    return table(("method", "runs", *(name for key in keys for name in (key, "spread"))), rows)


def _words(figures: Figures) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
