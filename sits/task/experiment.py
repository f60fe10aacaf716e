"""The experiment: what a YAML file of configs/sits says, and what image series add to training."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, model_validator
from torch import nn

from geomix.checkpoint import Card, ClassInfo, card_of
from geomix.errors import InputError
from geomix.learn.batches import SampleData
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, division
from geomix.learn.start import take_weights
from geomix.learn.task import class_weights
from geomix.report import flat, table
from sits.data import (
    Crops,
    DataConfig,
    LabelledSeries,
    SitsSplits,
    collate,
    count_classes,
    open_splits,
)
from sits.data.augment import Augment, augment
from sits.data.batches import Whole
from sits.data.inputs import Inputs
from sits.io.options import ReadOptions
from sits.model import ModelConfig, TSViPoM
from sits.predict import Scorer
from sits.task.scoring import Metrics, score, score_by_month
from sits.task.training import SitsTask


class SitsConfig(ExperimentConfig):
    """Model, data and training of one experiment."""

    model: ModelConfig
    inputs: Inputs
    classes: tuple[ClassInfo, ...]
    """Classes in the order of the model's outputs; `id` is the code in the labels and in the map."""
    data: DataConfig
    crop: int = Field(24, gt=0)
    """Side of the training crops, pixels."""
    balanced: float = Field(0.0, ge=0, le=1)
    """Share of the crops that are laid around a pixel of a class drawn regardless of its frequency."""
    class_weight: float = Field(0.0, ge=0, le=1)
    """Classes weigh 1 / frequency to this power in the loss: 0 for as they come, 1 for all alike."""
    augment: Augment = Augment()

    @model_validator(mode="after")
    def _check(self) -> "SitsConfig":
        if self.model.bands != len(self.inputs.bands):
            raise ValueError(
                f"model.bands is {self.model.bands}, but inputs.bands names {len(self.inputs.bands)}"
            )
        if self.model.classes != len(self.classes):
            raise ValueError(f"model.classes is {self.model.classes}, but classes lists {len(self.classes)}")
        if self.model.day_code == "table" and self.inputs.days != "year":
            raise ValueError("a table of days needs `inputs.days: year`")
        if self.model.tile is not None and self.crop % self.model.tile:
            raise ValueError(f"crop must be a multiple of model.tile {self.model.tile}, got {self.crop}")
        return self


class SitsExperiment(Experiment[SitsConfig, SitsSplits]):
    """Training and scoring of time-series models."""

    domain = "sits"
    kind = SitsConfig

    def __init__(self, config: SitsConfig | str | Path, reading: ReadOptions | None = None) -> None:
        """Take a configuration.

        Args:
            config: the configuration, the name of one that comes with geomix, or a YAML file.
            reading: what is said about the images, in place of what the configuration says.

        Raises:
            InputError: if the data of the configuration are of a kind that is read in one way only.
        """
        super().__init__(config)
        if reading is None or reading == ReadOptions():
            return
        if not hasattr(self.config.data, "reading"):
            raise InputError(
                f"data of kind {self.config.data.kind} are read in one way; options of reading are for images"
            )
        self.config = self.config.changed({"data.reading": asdict(reading)})

    def open(self, data: Any, folder: Path, start: nn.Module | None) -> SitsSplits:
        """Open the labelled series; with a model to start from, their bands are prepared as its were."""
        inputs = self.config.inputs
        if start is not None:
            known = Inputs.of_card(card_of(start).inputs)
            if known.bands == inputs.bands:
                inputs = inputs.model_copy(update={"mean": known.mean, "std": known.std})
        return open_splits(self.config.data, data and Path(data), inputs, self.config.classes, folder)

    def build(self, splits: SitsSplits, start: nn.Module | None) -> TSViPoM:
        """Make the model; with a model to start from, classes of the same name keep their weights."""
        model = TSViPoM(self.config.model)
        if start is not None:
            ours = [one.name for one in self.config.classes]
            theirs = [one.name for one in card_of(start).classes or ()]
            take_weights(model, start, ours, theirs, by_class={"class_tokens": 0})
        return model

    def task(self, model: nn.Module, splits: SitsSplits) -> SitsTask:
        """Join the model to the cross entropy, with weights of the classes from the training part."""
        config = self.config
        counts = count_classes(splits.train, len(config.classes))
        return SitsTask(model, config.train, config.model.classes, class_weights(counts, config.class_weight))

    def batches(self, splits: SitsSplits) -> SampleData:
        """Draw random crops of the training series, and whole validation series."""
        config = self.config
        crops = Crops(
            splits.train,
            splits.inputs,
            config.crop,
            config.train.seed,
            partial(augment, changes=config.augment),
            config.balanced,
        )
        steps = config.train.epoch_steps or _steps_for_all(splits.train, config)
        return SampleData(
            crops,
            Whole(splits.val, splits.inputs),
            collate,
            per_epoch=steps * config.train.batch_size,
            batch_size=config.train.batch_size,
            workers=config.train.workers,
        )

    def describe(self, splits: SitsSplits) -> dict[str, Any]:
        """The preprocessing, with patch and reach in pixels, the classes and the dates, for the card."""
        model = self.config.model
        dates = [min(one.dates[0] for one in splits.train), max(one.dates[-1] for one in splits.train)]
        return {
            "inputs": {
                **splits.inputs.model_dump(mode="json"),
                "patch": model.patch,
                "reach": model.reach,
            },
            "classes": self.config.classes,
            "limits": {"dates": [day.isoformat() for day in dates]},
        }

    @classmethod
    def reopen(cls, card: Card, data: Any, scratch: Path) -> SitsSplits:
        """Open the labelled series and divide them as the card of a model says."""
        if card.classes is None:
            raise InputError(f"{card.name}: its card names no classes")
        config = TypeAdapter[Any](DataConfig).validate_python(division(card))
        return open_splits(config, data and Path(data), Inputs.of_card(card.inputs), card.classes, scratch)

    @classmethod
    def score(
        cls, model: nn.Module, splits: SitsSplits, split: str, by_month: bool = False, **_: Any
    ) -> Metrics:
        """Map the series of a split and compare the classes with the labels.

        Args:
            model: with its card.
            splits: from `open` or `reopen`.
            split: the name of a part, or `all`.
            by_month: also score what is known at the end of each month, under `by_month`.
        """
        scorer, series = Scorer(model, next(model.parameters()).device), splits.of(split)
        found = score(scorer, series)
        return {**found, "by_month": score_by_month(scorer, series)} if by_month else found

    @classmethod
    def text(cls, metrics: Metrics) -> str:
        """The figures as a table, and one with a row per month."""
        months = metrics.get("by_month", {})
        words = table(("metric", "value"), flat({k: v for k, v in metrics.items() if k != "by_month"}))
        rows = [(end, *row.values()) for end, row in months.items()]
        return words + "\n" + table(("until", "oa", "miou", "macro_f1"), rows) if rows else words


def _steps_for_all(series: Sequence[LabelledSeries], config: SitsConfig) -> int:
    """Batches whose crops have the area of all training pixels."""
    area = sum(one.part.height * one.part.width for one in series)
    return max(1, round(area / config.crop**2 / config.train.batch_size))
