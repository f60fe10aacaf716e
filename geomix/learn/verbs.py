"""What the verbs `train`, `evaluate` and `study` do in every domain; a domain adds only its own options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomix.checkpoint import load_model
from geomix.device import choose_device
from geomix.learn.experiment import Experiment, evaluate, train
from geomix.learn.study import Method, report, run_methods
from geomix.options import EvaluateOptions, StudyOptions, TrainOptions
from geomix.report import json_text


def train_verb(experiment: Experiment[Any, Any], data: Any, options: TrainOptions) -> None:
    """Train and print the name of the model file.

    Args:
        experiment: with its configuration.
        data: what the domain's `open` takes.
        options: from the command line; the run folder is `runs/NAME` if none is given.
    """
    file = train(
        experiment,
        options.output or Path("runs") / experiment.config.name,
        data,
        start=options.model,
        resume=options.resume,
        max_minutes=options.max_minutes,
        device=options.device,
    )
    print(file)


def evaluate_verb(
    kind: type[Experiment[Any, Any]],
    model: str,
    data: Any,
    split: str,
    options: EvaluateOptions,
    **more: Any,
) -> None:
    """Score a model and print its figures, as a table or as JSON.

    Args:
        kind: the experiment class of the domain.
        model: name of a bundled model, or a file.
        data: what the domain's `reopen` takes.
        split: which part of the data.
        options: from the command line.
        more: what the domain's `score` takes besides.
    """
    loaded = load_model(model, choose_device(options.device), kind.domain)
    figures = evaluate(kind, loaded, data, split, **more)
    print(json_text(figures) if options.json else kind.text(figures))


def study_verb(methods: Mapping[str, Method], keys: Sequence[str], options: StudyOptions) -> None:
    """Run every method with every seed, and print mean and spread of its figures.

    Args:
        methods: name -> what runs it.
        keys: the figures to print.
        options: from the command line.
    """
    print(report(run_methods(methods, options.output, options.seeds), keys, options.json))
