import csv
import json
import logging
import random
import sys
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from geomix.errors import (
    CheckpointError,
    InputError,
    MissingFileError,
    MissingPackageError,
    NonFiniteError,
    OutputExistsError,
)
from geomix.learn.config import TrainConfig
from geomix.learn.loop import fit, restore
from geomix.learn.task import Task


class Noise(Dataset):
    """Samples that draw from every source of random numbers."""

    def __init__(self, size=20, bad=None):
        self.size, self.bad = size, bad

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        x = torch.full((4,), index / self.size) + 0.1 * torch.randn(4)
        x = x + np.random.rand() + random.random()  # noqa: NPY002
        return (x * float("nan") if index == self.bad else x), x.mean() - 1


class Data(pl.LightningDataModule):
    def __init__(self, train=None, workers=0, validate=True):
        super().__init__()
        self.train, self.workers, self.validate = train or Noise(), workers, validate

    def train_dataloader(self):
        return DataLoader(self.train, 4, shuffle=True, num_workers=self.workers, drop_last=True)

    def val_dataloader(self):
        return DataLoader(Noise(), 4) if self.validate else []


class Toy(Task):
    goal = "mse"

    def __init__(self, config, width=8):
        torch.manual_seed(0)
        layers = nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 1)
        super().__init__(nn.Sequential(*layers), config)
        self.errors = []

    def loss(self, batch):
        return (self.model(batch[0])[:, 0] - batch[1]).square().mean()

    def judge(self, batch):
        self.errors.append((self.served(batch[0])[:, 0] - batch[1]).square().mean())

    def scores(self):
        mean = torch.stack(self.errors).mean().item()
        self.errors.clear()
        return {"mse": mean}

    def describe(self, batch):
        return f"{len(batch[0])} samples"


def settings(**changes):
    return TrainConfig(**{"epochs": 4, "batch_size": 4, "learning_rate": 0.01, "ema": 0.9} | changes)


def same(a, b):
    return all(
        torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("changes", [{}, {"workers": 2}, {"accumulate": 2, "epoch_steps": 7}], ids=str)
def test_a_resumed_run_ends_with_the_same_bits_as_a_straight_one(tmp_path, changes):
    config = settings(**changes)
    straight = Toy(config)
    assert fit(straight, Data(workers=config.workers), config, tmp_path / "straight", device="cpu")
    finished = False
    for _ in range(4):
        # Whatever happened to the random numbers before, the run does not depend on it.
        torch.rand(3)
        random.random()
        stopped = Toy(config)
        finished = fit(
            stopped,
            Data(workers=config.workers),
            config,
            tmp_path / "stopped",
            True,
            max_minutes=0,
            device="cpu",
        )
    assert finished
    assert same(straight, stopped)
    lines = [
        [json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]
        for run in ("straight", "stopped")
    ]
    assert [[line["epoch"], line["loss"], line["mse"]] for line in lines[0]] == [
        [line["epoch"], line["loss"], line["mse"]] for line in lines[1]
    ]
    assert len(lines[0]) == 4


def test_every_epoch_has_an_order_of_its_own(tmp_path):
    seen = []

    class Watching(Toy):
        def loss(self, batch):
            seen.append(batch[0].sum().item())
            return super().loss(batch)

    config = settings(epochs=2)
    fit(Watching(config), Data(), config, tmp_path, device="cpu")
    assert len(seen) == len(set(seen)) == 10


def test_an_epoch_cut_short_is_repeated(tmp_path):
    config = settings(epochs=3)
    straight = Toy(config)
    fit(straight, Data(), config, tmp_path / "straight", device="cpu")

    class Dying(Toy):
        def loss(self, batch):
            if self.global_step == 7:
                raise ConnectionError("power cut")
            return super().loss(batch)

    with pytest.raises(ConnectionError):
        fit(Dying(config), Data(), config, tmp_path / "dying", device="cpu")
    again = Toy(config)
    fit(again, Data(), config, tmp_path / "dying", resume=True, device="cpu")
    assert same(straight, again)


def test_training_lowers_the_loss_and_keeps_the_best(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = settings(epochs=6, learning_rate=0.05, ema=0.5)
    fit(Toy(config), Data(), config, tmp_path, device="cpu")
    scores = [json.loads(line)["mse"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert scores[-1] < scores[0]
    assert "epoch 6 of 6: loss " in caplog.text
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert best["callbacks"]["EpochEnd"]["best"] == min(scores)
    assert best["epoch"] == scores.index(min(scores))


@pytest.mark.parametrize(("higher", "best"), [(False, 3), (True, 1)])
def test_the_best_epoch_is_known_across_resumes(tmp_path, higher, best):
    class Scripted(Toy):
        higher_is_better = higher

        def scores(self):
            super().scores()
            return {"mse": [float("nan"), 5.0, 4.0, 3.0, 4.5][self.current_epoch]}

    config = settings(epochs=5)
    for _ in range(5):
        fit(Scripted(config), Data(), config, tmp_path, resume=True, max_minutes=0, device="cpu")
    kept = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert kept["epoch"] == best
    restored = Scripted(config)
    restore(restored, tmp_path)
    assert torch.equal(restored.model[0].weight, kept["state_dict"]["model.0.weight"])


def test_a_run_that_dies_while_it_saves_repeats_the_epoch_and_its_line(tmp_path, monkeypatch):
    config = settings(epochs=3)
    saves = iter([None, OSError("disk full")])
    real = pl.Trainer.save_checkpoint

    def save(self, path):
        if error := next(saves, None):
            raise error
        real(self, path)

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", save)
    with pytest.raises(OSError, match="disk full"):
        fit(Toy(config), Data(), config, tmp_path, device="cpu")
    fit(Toy(config), Data(), config, tmp_path, resume=True, device="cpu")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_without_validation_the_last_weights_are_restored(tmp_path):
    config = settings(epochs=1)
    task = Toy(config)
    fit(task, Data(validate=False), config, tmp_path, device="cpu")
    assert not (tmp_path / "best.ckpt").exists()
    restored = Toy(config)
    restore(restored, tmp_path)
    assert same(task, restored)


def test_restoring_what_is_not_there_or_another_model_is_an_error(tmp_path):
    config = settings(epochs=1)
    with pytest.raises(MissingFileError, match=r"holds no best\.ckpt or last\.ckpt"):
        restore(Toy(config), tmp_path)
    fit(Toy(config), Data(validate=False), config, tmp_path, device="cpu")
    with pytest.raises(CheckpointError, match=r"last\.ckpt: holds another model"):
        restore(Toy(config, width=9), tmp_path)


def test_a_run_is_not_overwritten(tmp_path):
    config = settings(epochs=1)
    fit(Toy(config), Data(), config, tmp_path, device="cpu")
    with pytest.raises(OutputExistsError, match="holds a run already; resume it or choose another folder"):
        fit(Toy(config), Data(), config, tmp_path, device="cpu")


def test_a_loss_that_is_not_finite_names_its_batch(tmp_path):
    config = settings()
    with pytest.raises(NonFiniteError, match=r"the loss is nan at batch \d of epoch 0 \(4 samples\)"):
        fit(Toy(config), Data(Noise(bad=3)), config, tmp_path, device="cpu")


def test_a_gradient_that_is_not_finite_names_its_batch(tmp_path):
    class Steep(Toy):
        def loss(self, batch):
            # The derivative of the root at 0 is infinite.
            return (0 * self.model(batch[0])).square().sum().sqrt()

    config = settings(clip=None)
    with pytest.raises(NonFiniteError, match=r"the gradient is nan at batch 0 of epoch 0"):
        fit(Steep(config), Data(), config, tmp_path, device="cpu")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_average_follows_the_weights_step_by_step(tmp_path, accumulate):
    config = settings(epochs=1, epoch_steps=6, accumulate=accumulate)
    task = Toy(config)
    assert task.served is task.average
    seen = []
    hook = task.on_train_batch_end
    task.on_train_batch_end = lambda *args: (hook(*args), seen.append(task.model[0].weight.detach().clone()))
    expected = task.average[0].weight.clone()
    fit(task, Data(), config, tmp_path, device="cpu")
    steps = seen[accumulate - 1 :: accumulate]
    for number, weight in enumerate(steps, start=1):
        decay = min(0.9, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * weight
    assert len(steps) == 6 / accumulate
    torch.testing.assert_close(task.average[0].weight, expected)
    assert not task.average[0].weight.requires_grad
    assert Toy(settings(ema=None)).average is None


def test_clipping_limits_the_gradient_of_all_weights_together():
    task = Toy(settings(clip=1e-3))
    for parameter in task.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    task.on_before_optimizer_step(None)
    norm = sum(p.grad.square().sum() for p in task.model.parameters()).sqrt()
    torch.testing.assert_close(norm, torch.tensor(1e-3), rtol=1e-3, atol=0)


def test_half_precision_trains(tmp_path):
    config = settings(epochs=1, precision="bf16")
    task = Toy(config)
    fit(task, Data(), config, tmp_path, device="cpu")
    assert task.model[0].weight.dtype == torch.float32


def test_data_without_a_batch_is_an_error(tmp_path):
    config = settings()
    with pytest.raises(InputError, match="no training batch: fewer samples than the batch size of 4"):
        fit(Toy(config), Data(Noise(3)), config, tmp_path, device="cpu")


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"warmup": 1.0}, {"precision": "fp16"}, {"lr": 1}], ids=str)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        settings(**wrong)


def test_the_csv_has_a_column_for_figures_that_only_some_epochs_have(tmp_path):
    config = settings(epochs=3, val_every=2)
    fit(Toy(config), Data(), config, tmp_path, device="cpu")
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [bool(row["mse"]) for row in rows] == [False, True, False]


def test_event_files_for_tensorboard_hold_the_figures_or_the_package_is_named(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, epoch):
            written.append((name, epoch))

        def flush(self):
            pass

    config = settings(epochs=1, tensorboard=True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    fit(Toy(config), Data(), config, tmp_path / "a", device="cpu")
    assert written == [str(tmp_path / "a" / "tensorboard"), ("loss", 1), ("mse", 1), ("seconds", 1)]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match="needs the package tensorboard"):
        fit(Toy(config), Data(), config, tmp_path / "b", device="cpu")
