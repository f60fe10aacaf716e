"""The experiment: what a YAML file of configs/htr says, and what handwriting adds to training."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from geomix.checkpoint import Card, Source, card_of
from geomix.errors import InputError
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, Metrics
from geomix.learn.start import take_weights
from geomix.parallel.ranks import here
from htr.charset import Charset, CharsetMode, describe
from htr.data.convention import conventional_samples
from htr.data.damage import damaged
from htr.data.held_out import divide
from htr.data.inputs import Inputs, Sample, ready
from htr.data.sources import (
    DataConfig,
    LineSplits,
    PageSplits,
    divide_lines,
    divide_pages,
    new_hands,
    read_labelled_lines,
    selection_pages,
)
from htr.model.network import LineRecogniser, ModelConfig
from htr.predict.lm import CharacterModel
from htr.predict.pages import model_reader
from htr.synthetic import synthetic_samples
from htr.task.scoring import evaluate_lines, evaluate_pages
from htr.task.training import LINE_WIDTH, HtrTask, LineData, fitting

log = logging.getLogger(__name__)

HELD_OUT = "val: the documents of htr/data/held_out.json; select: pages of train that chose the checkpoint"
"""How a card says that the list of held-out documents parted the lines."""


class HtrConfig(ExperimentConfig):
    """Model, data and training of one experiment."""

    model: ModelConfig
    """Its `classes` are set by the characters of the training lines."""
    contrast: bool = True
    """Whether paper and ink of each line are stretched to 0 and 1."""
    level: bool = True
    """Whether writing is made level, of one size and even first."""
    data: DataConfig = DataConfig()
    shards: int = Field(1, ge=1)
    """Parts in which threads compute each batch, with one thread each: for a CPU with many idle cores.
    `train.batch_size` counts lines of 640 px at a height of 48; a batch of short lines holds more of them."""
    sources: dict[str, Source] = Field({})
    """Origin and licence of each set, for the card."""

    @property
    def inputs(self) -> Inputs:
        """The preprocessing of a line."""
        return Inputs(height=self.model.height, contrast=self.contrast, level=self.level)


class HtrExperiment(Experiment[HtrConfig, LineSplits]):
    """Training and scoring of line recognisers.

    Args:
        config: the configuration, the name of one that comes with geomix, or a YAML file.
        charset: where a training starts from a model, whether its characters are kept, joined with those of
            the data, or replaced.
    """

    domain = "htr"
    kind = HtrConfig

    def __init__(self, config: HtrConfig | str | Path, charset: CharsetMode = "union") -> None:
        super().__init__(config)
        self.charset = charset

    def open(self, data: Any, folder: Path, start: nn.Module | None) -> LineSplits:
        """Read labelled lines, hold out pages that choose the epoch, and collect the characters to learn."""
        settings = self.config.data
        samples = self._read(data)
        splits = divide_lines(samples, selection_pages(samples, settings.select_share))
        worse = damaged(splits.train, settings.damaged, self.config.train.seed)
        learned = fitting(ready([*splits.train, *worse], self.config.inputs), settings.fill)
        if not learned:
            raise InputError("there is no line to train on; is the split of all lines val?")
        if not splits.select:
            log.warning(
                "fewer than ten pages in each set: none is held out to choose the checkpoint, the last is "
                "kept; pages in a folder named val would score it"
            )
        return splits.learning(learned, self._characters([line.text for line in learned], start))

    def _read(self, data: Any) -> list[Sample]:
        if data is None:
            log.warning(
                "no data given: training on lines drawn with a font, which teaches nothing about handwriting"
            )
            return synthetic_samples(self.config.data.synthetic, self.config.train.seed)
        samples = read_labelled_lines([data] if isinstance(data, str | Path) else data)
        samples = divide(samples) if self.config.data.held_out else samples
        return conventional_samples(samples) if self.config.data.conventional else samples

    def _characters(self, texts: Sequence[str], start: nn.Module | None) -> Charset:
        """The characters to learn: those of the texts, or as `charset` says where a model is gone on from."""
        if start is None:
            return Charset.from_texts(texts)
        known = Charset(card_of(start).charset or ())
        unknown = known.unknown(texts)
        if unknown:
            log.warning(
                "characters of the data that the model does not know (--charset %s): %s",
                *(self.charset, describe(unknown)),
            )
        return known.merge(texts, self.charset)

    def build(self, splits: LineSplits, start: nn.Module | None) -> LineRecogniser:
        """Make the model; one to start from gives its shape, and its weights but for unknown characters."""
        shape, own = self.config.model, {"classes": len(splits.charset)}
        if start is not None:
            own |= {"height": shape.height, "dropout": shape.dropout}  # type: ignore[dict-item]
            shape = start.config  # type: ignore[assignment]
        torch.manual_seed(self.config.train.seed)
        model = LineRecogniser(shape.model_copy(update=own))
        if start is not None:
            # The blank is class 0.
            ours, theirs = ["", *splits.charset.characters], ["", *(card_of(start).charset or ())]
            take_weights(model, start, ours, theirs, by_class={"head.weight": 0, "head.bias": 0})
        return model

    def task(self, model: nn.Module, splits: LineSplits) -> HtrTask:
        """Join the model to the CTC loss and to the character error rate."""
        return HtrTask(model, self.config.train, splits.charset, self.config.shards)  # type: ignore[arg-type]

    def batches(self, splits: LineSplits) -> LineData:
        """Draw augmented lines or unrolled pages, and the lines that choose the epoch."""
        config = self.config
        columns = config.train.batch_size * LINE_WIDTH * config.model.height // 48
        select = ready(splits.select, config.inputs)
        return LineData(splits.learned, select, splits.charset, config.data, columns)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Give the operators one thread where the parts of a batch have a thread each."""
        threads = torch.get_num_threads()
        if self.config.shards > 1 and here().world == 1:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def describe(self, splits: LineSplits) -> Mapping[str, Any]:
        """The characters and the preprocessing, for the card."""
        return {"charset": splits.charset.characters, "inputs": self.config.inputs.model_dump()}

    def sources(self, splits: LineSplits) -> tuple[Source, ...]:
        """Name each set of lines, with the pages of it that chose the epoch."""
        rule = HELD_OUT if self.config.data.held_out else "train and val as the data say"
        cards = []
        for name in sorted({line.source for line in splits.lines}):
            source = self.config.sources.get(name, Source(source=name, licence="unknown"))
            select = sorted({line.page for line in splits.select if line.source == name})
            cards.append(source.model_copy(update={"split": {"set": name, "rule": rule, "select": select}}))
        return tuple(cards)

    @classmethod
    def reopen(cls, card: Card, data: Any, scratch: Path) -> LineSplits | PageSplits:  # type: ignore[override]
        """Read lines, divided as the card of a model says, or find whole pages.

        Raises:
            InputError: if the data are both, or there are none.
        """
        paths = [data] if isinstance(data, str | Path) else list(data or ())
        pages = [path for path in map(Path, paths) if not _holds_lines(path)]
        if pages and len(pages) < len(paths):
            raise InputError(
                "--data: give tars of lines or pages; they have figures of their own, so not both"
            )
        if pages:
            return divide_pages(pages)
        if not paths:
            raise InputError(f"{card.name}: give the lines or pages to score on with --data")
        splits = [source.split for source in card.data if isinstance(source.split, dict)]
        select = {page for split in splits for page in split.get("select", ())}
        samples = read_labelled_lines(paths)
        if any(split.get("rule") == HELD_OUT for split in splits):
            samples = divide(samples)
        return divide_lines(samples, select)

    @classmethod
    def score(
        cls,
        model: nn.Module,
        splits: LineSplits | PageSplits,
        split: str,
        *,
        given_lines: bool = False,
        lm: CharacterModel | str | Path | None = None,
        beam: int | None = None,
        **options: Any,
    ) -> Metrics:
        """Read lines or whole pages as `transcribe` reads them, and compare them with their texts.

        Args:
            model: in eval mode, with its card.
            splits: labelled lines or pages.
            split: which of them.
            given_lines: on pages, read the true lines instead of finding any.
            lm: a language model for the beam search, loaded, by name or by file.
            beam: texts kept from token to token.
            options: none besides.
        """
        reader = model_reader(model, lm=lm, beam=beam)
        if isinstance(splits, PageSplits):
            return evaluate_pages(splits.of(split), reader, given_lines=given_lines)
        return evaluate_lines(splits.of(split), reader, new_hands(splits.lines))


def _holds_lines(path: Path) -> bool:
    """Whether a path is a tar of lines or a folder of them, rather than one of pages."""
    return path.suffix == ".tar" or any(path.glob("*.tar"))
