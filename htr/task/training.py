"""Training a line recogniser and measuring it on lines."""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch import Tensor

from geomix.checkpoint import Card, Source, card_of, load_model, save_model
from geomix.config import load_config
from geomix.errors import InputError
from geomix.learn.config import TrainConfig
from geomix.learn.loop import fit, restore
from geomix.learn.metrics import EditDistance
from geomix.learn.task import Task
from geomix.parallel.ranks import Nothing, gather, here, join, once, own
from htr.charset import Charset, CharsetMode, describe
from htr.data.batches import (
    Batch,
    TrainingLines,
    TrainingPages,
    collate,
    padded_batches,
    runs_of_pages,
    unrolled,
)
from htr.data.inputs import Sample, ready
from htr.data.sources import new_hands, read_labelled_lines, selection_pages, take
from htr.data.unroll import STRIDE
from htr.model import ctc
from htr.model.network import LineRecogniser
from htr.model.shards import Shards
from htr.predict.pages import model_reader
from htr.synthetic import synthetic_samples
from htr.task.experiment import HtrConfig
from htr.task.scoring import evaluate_lines

log = logging.getLogger(__name__)

LINE_WIDTH = 640
"""What counts as one line when a batch is filled, px at a height of 48."""


class HtrTask(Task):
    """A line recogniser under training, chosen by its character error rate on the selection pages.

    Args:
        model: what is trained.
        config: how.
        charset: the classes of the characters.
        shards: parts of each batch; of several processes each computes its share in one.
    """

    goal = "cer"
    model: LineRecogniser

    def __init__(self, model: LineRecogniser, config: TrainConfig, charset: Charset, shards: int = 1) -> None:
        super().__init__(model, config)
        self.charset = charset
        self._read: list[tuple[str, str]] = []
        # Convolutions on a CPU are a quarter faster in this layout.
        self.model.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parts = shards if here().world == 1 else 1
        self._shards = Shards(self.model, shards) if self._parts > 1 else None

    def loss(self, batch: Batch) -> Tensor:
        """CTC over the characters, a mean over the lines."""
        parts = batch.split(self._parts)
        if self._shards is None or len(parts) == 1:
            return batch_loss(self.model, batch)
        lines = [len(part.labels) / len(batch.labels) for part in parts]
        return self._shards.loss(batch_loss, parts, lines)

    def weight(self, batch: Batch) -> float:
        """The number of lines."""
        return len(batch.labels)

    def describe(self, batch: Batch) -> str:
        """The first lines of the batch."""
        return ", ".join(batch.names[:3])

    def judge(self, batch: Batch) -> None:
        """Read a validation batch by the best path."""
        served: LineRecogniser = self.served  # type: ignore[assignment]
        self._read += zip(batch.texts, greedy_texts(served, batch, self.charset), strict=True)

    def scores(self) -> dict[str, float]:
        """`cer` and `wer` on the selection pages, which the processes read together."""
        distance = EditDistance()
        for truth, text in chain.from_iterable(gather(self._read)):
            distance.add(truth, text)
        self._read = []
        scores = distance.scores()
        return {"cer": float(scores["cer"]), "wer": float(scores["wer"])}

    def transfer_batch_to_device(
        self, batch: Batch | Nothing, device: torch.device, dataloader_idx: int
    ) -> Batch | Nothing:
        """Bring a batch to the device; Lightning does not know the type."""
        return batch.to(device)


def batch_loss(model: LineRecogniser, batch: Batch) -> Tensor:
    """CTC loss of a model on a batch, a scalar."""
    logits = model.lines(batch.images, batch.slots)
    return ctc.loss(logits, batch.slots.tokens, batch.labels)


def greedy_texts(model: LineRecogniser, batch: Batch, charset: Charset) -> Iterator[str]:
    """Read each line of a batch by the best path."""
    with torch.inference_mode():
        logits = model.read(batch.images, batch.slots)
    probabilities = logits.float().softmax(-1).cpu().numpy()
    for start, end in pairwise(batch.slots.offsets().tolist()):
        yield charset.decode([symbol.number for symbol in ctc.best_path(probabilities[start:end])])


class LineData(pl.LightningDataModule):
    """The lines of tars, split by page into training, selection and validation.

    Args:
        samples: all lines, as read.
        config: the settings.
        charset: the characters to learn; those of the training lines if not given.

    Raises:
        InputError: if there is no line to train on.
    """

    def __init__(self, samples: Sequence[Sample], config: HtrConfig, charset: Charset | None = None) -> None:
        super().__init__()
        self.config = config
        lines = ready(samples, config.inputs)
        self.select = selection_pages(lines, config.data.select_share)
        self.train_lines = fitting(take(lines, "train", self.select), config.data.fill)
        if not self.train_lines:
            raise InputError("there is no line to train on; is the split of all lines val?")
        self.select_lines = take(lines, "select", self.select)
        if not self.select_lines:
            log.warning(
                "fewer than ten pages in each set: none is held out to choose the checkpoint, the last is "
                "kept; pages in a folder named val would score it"
            )
        self.charset = charset or Charset.from_texts(sample.text for sample in self.train_lines)

    def train_dataloader(self) -> TrainingLines | TrainingPages:
        """Batches of augmented lines of equal width, or of unrolled pages."""
        settings = self.config.data
        columns = self.config.train.batch_size * LINE_WIDTH * self.config.model.height // 48
        if settings.page_lines > 1:
            return TrainingPages(
                self.train_lines,
                self.charset,
                lines=settings.page_lines,
                columns=columns,
                stretch=settings.stretch,
                changes=settings.augment,
            )
        return TrainingLines(
            self.train_lines,
            self.charset,
            columns=columns,
            weights=settings.weights,
            stretch=settings.stretch,
            changes=settings.augment,
        )

    def val_dataloader(self) -> "SelectionLines":
        """Batches of the selection lines, or this process's share of them, read as the model was trained."""
        lines = self.config.data.page_lines
        if lines == 1:
            groups = own(list(padded_batches(self.select_lines)))
            return SelectionLines([collate(group, self.charset) for group in groups])
        runs = own(runs_of_pages(self.select_lines, lines))
        pages = [unrolled([run], [[line.image for line in run]], self.charset) for run in runs]
        return SelectionLines(pages)


class SelectionLines:
    """The batches on which the checkpoint is chosen; a plain list would mean one loader a batch."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)


def fitting(samples: Sequence[Sample], fill: float) -> list[Sample]:
    """Keep the lines whose label fits its tokens, and say which do not.

    Args:
        samples: lines at the model's height.
        fill: the largest share of a line's tokens that its label may need.
    """
    kept: list[Sample] = []
    dropped: list[Sample] = []
    for sample in samples:
        tokens = -(-sample.image.shape[1] // STRIDE)
        (kept if ctc.tokens_needed(sample.text) <= fill * tokens else dropped).append(sample)
    if dropped:
        names = ", ".join(sample.id for sample in dropped[:5]) + (", ..." if len(dropped) > 5 else "")
        log.warning("left out %d lines whose text is too long for their width: %s", len(dropped), names)
    return kept


def build_task(config: HtrConfig, charset: Charset) -> HtrTask:
    """Make a fresh model for a charset, ready to be trained."""
    shape = config.model.model_copy(update={"classes": len(charset)})
    torch.manual_seed(config.train.seed)
    return HtrTask(LineRecogniser(shape), config.train, charset, config.shards)


def train(
    config: HtrConfig | str | Path,
    run_dir: str | Path,
    data: str | Path | Sequence[str | Path] | None = None,
    *,
    start: LineRecogniser | str | Path | None = None,
    charset: CharsetMode = "union",
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
) -> Path:
    """Train a model and write it with its card.

    Args:
        config: the settings, the name of a configuration that comes with geomix, or a YAML file.
        run_dir: folder of the run: checkpoints, log and the model file.
        data: tars of lines, folders of tars, or folders of pages with PAGE or ALTO; lines drawn with a font
            if not given.
        start: a model to go on from, by name or file (fine-tuning); a fresh one if not given.
        charset: with `start`, whether its characters are kept, joined with those of the data, or replaced.
        resume: go on with the run in the folder.
        max_minutes: stop in time; the run can be resumed.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The model file, `<run_dir>/<name>.safetensors`; its card holds the scores of selection and validation.

    Raises:
        InputError: if there is no line to train on.
    """
    if not isinstance(config, HtrConfig):
        config = load_config(config, "htr", HtrConfig)
    join(config.train.batch_size, device)
    samples = _samples(data, config)
    lines = LineData(samples, config)
    before = load_model(start, domain="htr") if isinstance(start, str | Path) else start
    if isinstance(before, LineRecogniser):
        config, lines.charset = _go_on(config, before, lines, charset)
    task = build_task(config, lines.charset)
    if isinstance(before, LineRecogniser):
        grow(task.model, before, lines.charset, Charset(card_of(before).charset or ()))
        task = HtrTask(task.model, config.train, lines.charset, config.shards)
    count = sum(parameter.numel() for parameter in task.model.parameters())
    log.info("%s: %s parameters, %d characters", config.name, f"{count:,}", len(lines.charset) - 1)
    threads = torch.get_num_threads()
    if config.shards > 1 and here().world == 1:
        # A part has one thread: the operators inside must not start more.
        torch.set_num_threads(1)
    try:
        fit(task, lines, config.train, run_dir, resume, max_minutes, device)
    finally:
        torch.set_num_threads(threads)
    restore(task, run_dir)
    file = Path(run_dir) / f"{config.name}.safetensors"
    return once(lambda: write_model(task, lines, samples, config, file))


def _samples(data: str | Path | Sequence[str | Path] | None, config: HtrConfig) -> list[Sample]:
    if data is None:
        log.warning(
            "no data given: training on lines drawn with a font, which teaches nothing about handwriting"
        )
        return synthetic_samples(config.data.synthetic, config.train.seed)
    return read_labelled_lines([data] if isinstance(data, str | Path) else data)


def _go_on(
    config: HtrConfig, before: LineRecogniser, lines: LineData, mode: CharsetMode
) -> tuple[HtrConfig, Charset]:
    """The shape of the model to go on from, at the configured height, and the characters to learn."""
    known = Charset(card_of(before).charset or ())
    unknown = known.unknown(sample.text for sample in lines.train_lines)
    if unknown:
        log.warning(
            "characters of the data that the model does not know (--charset %s): %s", mode, describe(unknown)
        )
    shape = before.config.model_copy(update={"height": config.model.height, "dropout": config.model.dropout})
    return config.model_copy(update={"model": shape}), known.merge((s.text for s in lines.train_lines), mode)


def grow(model: LineRecogniser, before: LineRecogniser, charset: Charset, known: Charset) -> None:
    """Give a fresh model the weights of another one; shared characters keep their row of the head.

    Args:
        model: of the shape of `before` but for the number of classes.
        before: what is gone on from.
        charset: the characters of `model`.
        known: the characters of `before`.
    """
    weights = {name: value for name, value in before.state_dict().items() if not name.startswith("head.")}
    model.load_state_dict(weights, strict=False)
    shared = [char for char in charset.characters if char in known.characters]
    ours, theirs = [0, *charset.encode("".join(shared))], [0, *known.encode("".join(shared))]
    with torch.no_grad():
        model.head.weight[ours] = before.head.weight[theirs]
        model.head.bias[ours] = before.head.bias[theirs]


def write_model(
    task: HtrTask, lines: LineData, samples: Sequence[Sample], config: HtrConfig, file: Path
) -> Path:
    """Write the served weights with their card, whose scores come from reading as `evaluate` reads."""
    model: LineRecogniser = task.served.eval()  # type: ignore[assignment]
    card = Card(
        domain="htr",
        name=config.name,
        model=model.config.model_dump(mode="json"),
        charset=lines.charset.characters,
        inputs=config.inputs.model_dump(),
        data=_data_of(samples, lines, config),
        limits=config.limits,
    )
    save_model(model, card, file, overwrite=True)
    reader = model_reader(load_model(file))
    metrics = {
        split: evaluate_lines(chosen, reader, new_hands(samples))
        for split in ("select", "val")
        if (chosen := take(samples, split, lines.select))
    }
    save_model(model, card.model_copy(update={"metrics": metrics}), file, overwrite=True)
    for split, scores in metrics.items():
        log.info("%s: cer %.4g, wer %.4g, %d lines", split, scores["cer"], scores["wer"], scores["lines"])
    return file


def _data_of(samples: Sequence[Sample], lines: LineData, config: HtrConfig) -> tuple[Source, ...]:
    sets = sorted({sample.source for sample in samples})
    pages = {sample.page: sample.source for sample in samples}
    cards = []
    for name in sets:
        source = config.sources.get(name, Source(source=name, licence="unknown"))
        select = sorted(page for page in lines.select if pages[page] == name)
        rule = "train and val as the data say; select: pages of train that chose the checkpoint"
        cards.append(source.model_copy(update={"split": {"set": name, "rule": rule, "select": select}}))
    return tuple(cards)
