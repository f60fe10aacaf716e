"""Resumable training: each epoch depends only on its number, and leaves a record."""

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader

from geomix.files import new_file
from geomix.learn.config import TrainConfig
from geomix.learn.runlog import RunLog
from geomix.learn.task import Task
from geomix.parallel.ranks import NOTHING, Nothing, first, gather, here, share_buffers
from geomix.progress import progress

log = logging.getLogger(__name__)


def seed_everything(seed: int, epoch: int = 0, turn: int = 0, rank: int = 0) -> None:
    """Seed Python, NumPy and torch from a seed, an epoch, a turn within it and a rank."""
    place = [turn, rank] if turn or rank else []
    number = int(np.random.SeedSequence([seed, epoch, *place]).generate_state(1)[0])
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - libraries that augment still draw from it
    torch.manual_seed(number)


class EpochLoader:
    """The batches of one epoch after another, each with its own random numbers.

    The seed is set when the first batch is requested. Lightning then knows the epoch, also after a resume,
    and the order of samples, the seeds of loader processes, augmentation and dropout all follow from it. If
    an epoch passes over the data several times, each turn has its own seed. All processes draw the same
    order; afterwards each has its own random numbers for dropout.
    """

    def __init__(self, batches: "DataLoader[Any]", seed: int, steps: int, epoch: Callable[[], int]) -> None:
        self._batches = batches
        self._seed = seed
        self._steps = steps
        self._epoch = epoch

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch()
        turns = chain.from_iterable(self._turn(epoch, turn) for turn in count())
        yield from progress(islice(turns, self._steps), f"Epoch {epoch + 1}", self._steps)

    def _turn(self, epoch: int, turn: int) -> Iterator[Any]:
        seed_everything(self._seed, epoch, turn)
        rank = here().rank
        for number, batch in enumerate(self._batches):
            if rank and number == 0:
                seed_everything(self._seed, epoch, turn, rank)
            yield batch


class Idle:
    """The validation of a process that has no item to judge while other processes have."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Nothing]:
        yield NOTHING


def validation(batches: Any) -> Any:
    """The loader of this process's share of the validation, or None if no process has any."""
    if not any(gather(len(batches))):
        return None
    return batches if len(batches) else Idle()


class EpochEnd(pl.Callback):
    """After each epoch: write one line of the log and the checkpoints, and check the clock.

    Of several processes rank 0 writes, and its scores and its clock count.
    """

    def __init__(self, folder: Path, config: TrainConfig, max_minutes: float | None) -> None:
        self._folder = folder
        self._epochs = config.epochs
        self._log = None if here().rank else RunLog(folder, config.tensorboard)
        self._max_minutes = max_minutes
        self._start = self._epoch_start = time.monotonic()
        self._longest = 0.0
        self._losses: list[torch.Tensor] = []
        self._scores: dict[str, float] = {}
        self._best: float | None = None
        self.finished = False

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best = state_dict["best"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        task: Task = pl_module
        self._scores = first(task.scores())

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        task: Task = pl_module
        now = time.monotonic()
        seconds, self._epoch_start = now - self._epoch_start, now
        loss = fmean(gather(float(torch.stack(self._losses).mean())))
        done = trainer.current_epoch + 1
        is_best = self._is_best(task)
        # The line before the checkpoint: a run that dies in between repeats the epoch and its line.
        if self._log is not None:
            self._log.add({"epoch": done, "loss": loss, **self._scores, "seconds": round(seconds, 2)})
        share_buffers(task)
        self._checkpoint(trainer, is_best)
        figures = {"loss": loss, **self._scores}
        words = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        log.info(
            "epoch %d of %d: %s (%.0f s)%s", done, self._epochs, words, seconds, ", best" if is_best else ""
        )
        self._losses, self._scores = [], {}
        self.finished = done >= self._epochs
        self._longest = max(self._longest, seconds)
        if not self.finished and first(self._is_late(now)):
            if here().rank == 0:
                log.warning("time is up after epoch %d of %d; resume to go on", done, self._epochs)
            trainer.should_stop = True

    def _is_late(self, now: float) -> bool:
        """Whether another epoch would probably end after the time limit."""
        return self._max_minutes is not None and now - self._start + self._longest > 60 * self._max_minutes

    def _is_best(self, task: Task) -> bool:
        score = self._scores.get(task.goal)
        if score is None or score != score:
            return False
        if self._best is not None and (score <= self._best if task.higher_is_better else score >= self._best):
            return False
        self._best = score
        return True

    def _checkpoint(self, trainer: pl.Trainer, is_best: bool) -> None:
        last = self._folder / "last.ckpt"
        with new_file(last, overwrite=True) as temporary:
            # All processes must call it; rank 0 writes.
            trainer.save_checkpoint(temporary)
        if is_best and here().rank == 0:
            with new_file(self._folder / "best.ckpt", overwrite=True) as temporary:
                shutil.copyfile(last, temporary)
