"""A small training, and one of two processes that share it; started by test_ddp.py.

python -m tests.geomix.ddp_worker MEETING_FILE FOLDER, with the environment that torchrun makes
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

from geomix.errors import GeomixError
from geomix.learn.batches import SampleData
from geomix.learn.config import TrainConfig
from geomix.learn.loop import fit
from geomix.learn.task import Task
from geomix.parallel.ranks import here, total


class Points(Dataset):
    """Sample i is always the same, and counts as much as its weight says."""

    def __init__(self, size=0):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        x = torch.from_numpy(np.random.default_rng([7, number]).normal(size=6)).float()
        return x[:4], x[:4].sin().sum() + 1, x[5].abs() + 0.1


def collate(samples):
    return [torch.stack(part) for part in zip(*samples, strict=True)]


def data(judged=3, batch_size=5):
    """Batches of 5, 5, 5 and 1: no two processes have equal shares, and of the last one has none."""
    return SampleData(Points(), Points(judged), collate, per_epoch=16, batch_size=batch_size)


class Toy(Task):
    goal = "mse"

    def __init__(self, config, *layers):
        torch.manual_seed(0)
        super().__init__(nn.Sequential(nn.Linear(4, 8), *layers, nn.GELU(), nn.Linear(8, 1)), config)
        self.errors = torch.zeros(2)
        self.bad = None

    def loss(self, batch):
        x, y, weight = batch
        if self.bad == self.global_step:
            return self.model(x).sum() * float("nan")
        return ((self.model(x)[:, 0] - y).square() * weight).sum() / weight.sum()

    def weight(self, batch):
        return batch[2].sum()

    def judge(self, batch):
        error = (self.served(batch[0])[:, 0] - batch[1]).square()
        self.errors += torch.stack([error.sum(), torch.tensor(float(len(error)))])

    def scores(self):
        error, count = total(self.errors).tolist()
        self.errors = torch.zeros(2)
        return {"mse": error / count}


def settings(**changes):
    # 6 steps of 4 batches: the second turn of each epoch is cut short.
    base = {"epochs": 3, "epoch_steps": 6, "batch_size": 5, "learning_rate": 0.01, "ema": 0.9}
    return TrainConfig(**base | changes)


def plain(folder, **changes):
    """A training without anything that depends on the share of a process."""
    config = settings(**changes)
    task = Toy(config)
    fit(task, data(), config, folder, device="cpu")
    return task.state_dict()


def normed(config):
    """A task with all that depends on the share: batch norm and dropout."""
    return Toy(config, nn.BatchNorm1d(8), nn.Dropout(0.3))


def straight_and_stopped(folder):
    config = settings(batch_size=8)
    straight = stopped = normed(config)
    fit(straight, data(batch_size=8), config, folder / "straight", device="cpu")
    # Rank 0 alone is told of a limit, and is obeyed.
    limit = None if here().rank else 0
    ends = []
    for _ in range(3):
        torch.rand(here().rank)
        stopped = normed(config)
        ends.append(fit(stopped, data(batch_size=8), config, folder / "stopped", True, limit, device="cpu"))
    return {"straight": straight.state_dict(), "stopped": stopped.state_dict(), "ends": ends}


def unjudged(folder):
    """Where nothing is judged, no validation brings the batch norms of the ranks together."""
    config = settings(epochs=1, batch_size=8)
    task = normed(config)
    fit(task, data(judged=0, batch_size=8), config, folder, device="cpu")
    return task.state_dict()


def fail(folder):
    """A training in which rank 1 meets a NaN."""
    config = settings()
    task = Toy(config)
    task.bad = 2 if here().rank else None
    try:
        fit(task, data(), config, folder, device="cpu")
    except GeomixError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def main():
    meeting, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    place = here()
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(minutes=3),
    )
    # Each with a folder of its own, to see who writes.
    own = folder / f"rank{place.rank}"
    found = {
        "plain": plain(own / "plain"),
        "accumulated": plain(own / "accumulated", accumulate=2),
        "unjudged": unjudged(own / "unjudged"),
        **straight_and_stopped(folder),
    }
    config = settings(epochs=1)
    fit(Toy(config), data(judged=1), config, own / "one judged", device="cpu")
    torch.save(found, folder / f"{place.rank}.pt")
    complaint = fail(folder / "failed")
    (folder / f"{place.rank}.json").write_text(json.dumps(complaint))


if __name__ == "__main__":
    main()
