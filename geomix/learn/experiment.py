"""An experiment: a configuration, and what a domain adds to it so that a model can be trained and scored.

experiment = SitsExperiment("tiny")                # a name, a YAML file or a configuration
file = train(experiment, "runs/tiny")              # the model file, with its card
figures = evaluate(SitsExperiment, load_model(file), split="test")
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

import lightning.pytorch as pl
import yaml
from torch import nn

from geomix.checkpoint import Card, Source, card_of, give_card, save_model
from geomix.config import load_config
from geomix.encoder import parameters
from geomix.errors import InputError
from geomix.files import new_file
from geomix.learn.config import ExperimentConfig
from geomix.learn.epochs import seed_everything
from geomix.learn.loop import begin, fit, restore
from geomix.learn.splits import Splits
from geomix.learn.start import starting_model
from geomix.learn.task import Task
from geomix.parallel.ranks import join, once
from geomix.report import flat, table

log = logging.getLogger(__name__)

C = TypeVar("C", bound=ExperimentConfig)
S = TypeVar("S", bound=Splits[Any])
Metrics = dict[str, Any]
"""Metric -> value, possibly nested, in the keys that `evaluate --json` prints."""


class Experiment(ABC, Generic[C, S]):
    """What a domain adds to training. `train` and `evaluate` call the methods in the order they stand here.

    The type parameters are the configuration and the splits of the domain. Methods of the class alone need
    no configuration: `evaluate` knows only a model and its card.

    Args:
        config: the configuration, the name of one that comes with geomix, or a YAML file.
    """

    domain: ClassVar[str]
    """The name of the domain, as in `geomix.domains.DOMAINS`."""
    kind: ClassVar[type[ExperimentConfig]]
    """The class of the configuration."""

    config: C

    def __init__(self, config: C | str | Path) -> None:
        if isinstance(config, str | Path):
            config = load_config(config, self.domain, self.kind)  # type: ignore[assignment]
        self.config = config  # type: ignore[assignment]

    @abstractmethod
    def open(self, data: Any, folder: Path, start: nn.Module | None) -> S:
        """Read the labelled data, divide them, and learn from the training part what the inputs need.

        Args:
            data: where the data lie, as `--data` names it; None where they are made up.
            folder: the run folder, in which data may be made.
            start: the model from whose weights the training starts, with its card; None for fresh weights.
        """

    @abstractmethod
    def build(self, splits: S, start: nn.Module | None) -> nn.Module:
        """Make the model. With `start`, `take_weights` gives it the weights of that model."""

    @abstractmethod
    def task(self, model: nn.Module, splits: S) -> Task:
        """Join the model to its loss and its judge."""

    @abstractmethod
    def batches(self, splits: S) -> pl.LightningDataModule:
        """Draw the training batches and those that choose the epoch."""

    def running(self) -> AbstractContextManager[object]:
        """Hold what must hold while batches are learned, such as a number of threads."""
        return nullcontext()

    @abstractmethod
    def describe(self, splits: S) -> Mapping[str, Any]:
        """Give the fields of the card that only the domain knows: `inputs`, and `classes` or `charset`.

        `limits` may be among them; those of the configuration are added.
        """

    def sources(self, splits: S) -> tuple[Source, ...]:
        """Name each source of the data, with what `reopen` needs to divide them again as its `split`."""
        division = self.config.data.model_dump(mode="json")
        unnamed = Source(source=division.get("kind", self.config.name), licence="unknown")
        sources = self.config.sources if isinstance(self.config.sources, tuple) else ()
        return tuple(one.model_copy(update={"split": division}) for one in sources or (unnamed,))

    @classmethod
    @abstractmethod
    def reopen(cls, card: Card, data: Any, scratch: Path) -> S:
        """Read labelled data and divide them as the card of a model says; `division` reads that from it.

        Args:
            card: of a model that `train` wrote.
            data: where the data lie; None where they are made up.
            scratch: a folder for made-up data that vanishes afterwards.
        """

    @classmethod
    @abstractmethod
    def score(cls, model: nn.Module, splits: S, split: str, **options: Any) -> Metrics:
        """Predict the items of `splits.of(split)` by what users call, and compare them with their labels.

        Args:
            model: in eval mode, with its card.
            splits: from `open` or `reopen`.
            split: the name of a part, or `all`.
            options: what the verb `evaluate` of the domain offers besides.
        """

    @classmethod
    def text(cls, metrics: Metrics) -> str:
        """Write the figures of `evaluate` for people."""
        return table(("metric", "value"), flat(metrics))


def train(
    experiment: Experiment[Any, Any],
    run_dir: str | Path,
    data: Any = None,
    *,
    start: nn.Module | str | Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
) -> Path:
    """Train a model and write it with its card.

    The run folder also gets `config.yaml`, the whole configuration with every default; it trains the same
    model again.

    Args:
        experiment: of a domain.
        run_dir: the run folder: configuration, checkpoints, log and the model file.
        data: where the labelled data lie; made-up data need none.
        start: the model whose weights the training starts from, by name, by file or loaded; `none` for fresh
            weights; None for what the configuration says.
        resume: go on with the run in the folder.
        max_minutes: start no epoch that would probably end later; the run can be resumed.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The model file, `<run_dir>/<name>.safetensors`. Its card holds the scores of all parts that the
        weights were not fitted to.

    Raises:
        OutputExistsError: if the folder holds a run already and `resume` is false.
        InputError: if the data hold nothing to learn from.
        NonFiniteError: if the loss or its gradient is NaN or infinite.
    """
    config, folder = experiment.config, Path(run_dir)
    join(config.train.batch_size, device)
    begin(folder, resume)
    once(lambda: _write_config(experiment.config, folder))
    before = starting_model(start, config.start, experiment.domain)
    splits = experiment.open(data, folder, before)
    seed_everything(config.train.seed)
    model = experiment.build(splits, before)
    log.info("%s: %s parameters", config.name, f"{parameters(model):,}")
    task = experiment.task(model, splits)
    with experiment.running():
        fit(task, experiment.batches(splits), config.train, folder, resume, max_minutes, device)
    restore(task, folder)
    return once(lambda: _write(experiment, task.served.eval(), splits, before, folder))


def _write_config(config: ExperimentConfig, folder: Path) -> None:
    """Keep the whole configuration, with every default, in the run folder."""
    values = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    with new_file(folder / "config.yaml", overwrite=True) as temporary:
        temporary.write_text(values, encoding="utf-8")


def _write(
    experiment: Experiment[Any, Any],
    model: nn.Module,
    splits: Splits[Any],
    before: nn.Module | None,
    folder: Path,
) -> Path:
    """Score the trained model on all that it has not learned, and write it with its card."""
    card = make_card(experiment, model, splits, before)
    give_card(model, card)
    metrics = {name: experiment.score(model, splits, name) for name in splits.held_out}
    for name, figures in metrics.items():
        plain = {key: value for key, value in figures.items() if isinstance(value, int | float)}
        log.info("%s: %s", name, ", ".join(f"{key} {value:.4g}" for key, value in plain.items()))
    file = folder / f"{experiment.config.name}.safetensors"
    save_model(model, card.model_copy(update={"metrics": metrics}), file, overwrite=True)
    return file


def make_card(
    experiment: Experiment[Any, Any], model: nn.Module, splits: Splits[Any], before: nn.Module | None = None
) -> Card:
    """Describe a trained model, still without scores.

    Args:
        experiment: what it was trained by.
        model: with its configuration in `config`.
        splits: the data.
        before: the model whose weights the training started from: its sources count too.
    """
    config, fields = experiment.config, dict(experiment.describe(splits))
    own = experiment.sources(splits)
    named = {source.source for source in own}
    inherited = () if before is None else card_of(before).data
    return Card(
        domain=experiment.domain,
        name=config.name,
        model=model.config.model_dump(mode="json"),  # type: ignore[union-attr, operator]
        data=(
            *own,
            *(one.model_copy(update={"split": None}) for one in inherited if one.source not in named),
        ),
        limits={**fields.pop("limits", {}), **config.limits},
        **fields,
    )


def evaluate(
    kind: type[Experiment[Any, Any]],
    model: nn.Module,
    data: Any = None,
    split: str = "test",
    **options: Any,
) -> Metrics:
    """Score a model on labelled data, divided as its card says; the figures are those of the card.

    Args:
        kind: the experiment class of the domain.
        model: from `load_model`.
        data: where the data lie; made-up data are made again.
        split: `train`, `select`, `val`, `test` or `all`.
        options: what the domain's `score` takes besides.

    Raises:
        InputError: if the card does not say how its data are divided, or the split is empty.
    """
    with TemporaryDirectory() as scratch:
        splits = kind.reopen(card_of(model), data, Path(scratch))
        return kind.score(model, splits, split, **options)


def division(card: Card) -> dict[str, Any]:
    """How the data of a model are divided, as `Experiment.sources` wrote it.

    Raises:
        InputError: if the card does not say it.
    """
    for source in card.data:
        if isinstance(source.split, dict):
            return source.split
    raise InputError(f"{card.name}: its card does not say how its data are divided")
