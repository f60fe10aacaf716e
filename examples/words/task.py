"""The experiment: what this domain adds to training."""

from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from geomix.checkpoint import Card, ClassInfo, card_of
from geomix.learn.batches import Repeated, SampleData
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, Metrics, division
from geomix.learn.metrics import confusion, scores
from geomix.learn.splits import Splits
from geomix.learn.start import take_weights
from geomix.learn.task import SegmentationTask
from words.data import Batch, Sentence, TextData, collate, divide
from words.model import ModelConfig, Tagger
from words.predict import predict


class WordsConfig(ExperimentConfig):
    """Model, data and training of one experiment."""

    model: ModelConfig
    classes: tuple[ClassInfo, ...]
    data: TextData = TextData()


class WordsTask(SegmentationTask):
    """A tagger under training."""

    def loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.letters, batch.offsets), batch.labels)

    def judge(self, batch: Batch) -> None:
        found = self.served(batch.letters, batch.offsets).argmax(1)
        self.matrix += confusion(found, batch.labels, self.classes)


class WordsExperiment(Experiment[WordsConfig, Splits[Sentence]]):
    """Training and scoring of taggers."""

    domain = "words"
    kind = WordsConfig

    def open(self, data: Path, folder: Path, start: nn.Module | None) -> Splits[Sentence]:
        return divide(self.config.data, data)

    def build(self, splits: Splits[Sentence], start: nn.Module | None) -> Tagger:
        model = Tagger(self.config.model)
        if start is not None:
            take_weights(model, start)
        return model

    def task(self, model: nn.Module, splits: Splits[Sentence]) -> WordsTask:
        return WordsTask(model, self.config.train, self.config.model.classes)

    def batches(self, splits: Splits[Sentence]) -> SampleData:
        join = partial(collate, classes=[one.name for one in self.config.classes])
        size = self.config.train.batch_size
        return SampleData(
            Repeated(splits.train), Repeated(splits.val), join, per_epoch=len(splits.train), batch_size=size
        )

    def describe(self, splits: Splits[Sentence]) -> dict[str, Any]:
        return {"classes": self.config.classes}

    @classmethod
    def reopen(cls, card: Card, data: Path, scratch: Path) -> Splits[Sentence]:
        return divide(TextData(**division(card)), data)

    @classmethod
    def score(cls, model: nn.Module, splits: Splits[Sentence], split: str, **options: Any) -> Metrics:
        names, items = [one.name for one in card_of(model).classes or ()], splits.of(split)
        return scores(confusion(predict(model, items), collate(items, names).labels, len(names)))
