"""Training samples that are drawn by number: as many an epoch as asked for, the same for the same seed."""

from collections.abc import Callable, Iterator, Sized
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

Collate = Callable[[list[Any]], Any]


class SampleNumbers(Sampler[int]):
    """Sample numbers of an epoch, drawn from torch's own numbers, which training seeds by the epoch."""

    def __init__(self, per_epoch: int) -> None:
        self.per_epoch = per_epoch

    def __iter__(self) -> Iterator[int]:
        first = int(torch.randint(2**48, ()))
        yield from range(first, first + self.per_epoch)

    def __len__(self) -> int:
        return self.per_epoch


class SampleData(pl.LightningDataModule):
    """Samples drawn by number to train on, and whole items, one a batch, to validate on."""

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
            batch_size=self.batch_size,
            sampler=SampleNumbers(self.per_epoch),
            collate_fn=self.collate,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Whole items; none where nothing is held out for validation."""
        if not len(cast(Sized, self.val)):
            return []
        return DataLoader(self.val, batch_size=1, collate_fn=self.collate)
