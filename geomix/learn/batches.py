"""Training samples drawn by number: any number per epoch, and the same ones for the same seed.

Each of several processes takes its share of every batch, so batches do not depend on their number.
"""

import math
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, TypeVar, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

from geomix.parallel.ranks import NOTHING, own

T = TypeVar("T")
Collate = Callable[[list[Any]], Any]


class BatchNumbers(Sampler[list[int]]):
    """The sample numbers of each batch of an epoch, or this process's share of them, which may be empty.

    They are drawn from the generator of torch, which training seeds per epoch, alike on all processes.
    """

    def __init__(self, per_epoch: int, batch_size: int) -> None:
        self.per_epoch, self.batch_size = per_epoch, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        first = int(torch.randint(2**48, ()))
        numbers = range(first, first + self.per_epoch)
        for start in range(0, self.per_epoch, self.batch_size):
            yield [*own(numbers[start : start + self.batch_size])]

    def __len__(self) -> int:
        return math.ceil(self.per_epoch / self.batch_size)


class Repeated(Dataset[T]):
    """Items by number, over and over: a data set for samples that are not drawn at random."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> T:
        return self._items[number % len(self._items)]


class _Collated:
    """Makes a batch of samples, or `NOTHING` if there are none."""

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> Any:
        return self._collate(samples) if samples else NOTHING


class SampleData(pl.LightningDataModule):
    """Samples drawn by number for training, and whole items, one per batch, for validation."""

    def __init__(
        self,
        train: Dataset[Any],
        val: Dataset[Any],
        collate: Collate,
        *,
        per_epoch: int,
        batch_size: int,
        workers: int = 0,
    ) -> None:
        super().__init__()
        self.train, self.val, self.collate = train, val, collate
        self.per_epoch, self.batch_size, self.workers = per_epoch, batch_size, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of samples."""
        return DataLoader(
            self.train,
            batch_sampler=BatchNumbers(self.per_epoch, self.batch_size),
            collate_fn=_Collated(self.collate),
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Whole items, or this process's share of them; empty if nothing is held out for validation."""
        mine = own(range(len(cast(Sized, self.val))))
        if not mine:
            return []
        return DataLoader(Subset(self.val, mine), batch_size=1, collate_fn=self.collate)
