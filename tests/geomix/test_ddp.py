"""Two processes that share a training do what one does, leave one record of it, and do not wait in vain."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from torch.utils.data import DataLoader

from geomix.checkpoint import read_card
from geomix.errors import InputError, ProcessError
from geomix.learn.epochs import EpochLoader
from geomix.parallel.ranks import NOTHING, here, join, naming_the_rank, own
from htr.charset import Charset
from htr.data.batches import TrainingLines, TrainingPages
from htr.data.inputs import Sample
from tests.geomix.ddp_worker import Points, collate, data, plain
from tests.helpers import ROOT

RANKS = 2


def place(rank, world=RANKS):
    """The environment of a process, as torchrun makes it."""
    numbers = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    return {name: str(number) for name, number in numbers.items()}


@pytest.fixture
def as_rank(monkeypatch):
    def become(rank, world=RANKS):
        for name, value in place(rank, world).items():
            monkeypatch.setenv(name, value)

    return become


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes wrote."""
    folder = tmp_path_factory.mktemp("ddp")
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.geomix.ddp_worker", folder / "meeting", folder],
            cwd=ROOT,
            env=os.environ | place(rank) | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        complaints = [worker.communicate(timeout=500)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for worker, complaint in zip(workers, complaints, strict=True):
        assert worker.returncode == 0, complaint[-3000:]
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


def lines(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("name", "changes"), [("plain", {}), ("accumulated", {"accumulate": 2})])
def test_two_processes_end_with_the_weights_losses_and_scores_of_one(folder, found, tmp_path, name, changes):
    alone = plain(tmp_path, **changes)
    for key, weight in found[0][name].items():
        assert (weight - alone[key]).abs().max() < 1e-5, key
    for line, expected in zip(lines(folder / "rank0" / name), lines(tmp_path), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        assert line["mse"] == pytest.approx(expected["mse"], abs=1e-5)


@pytest.mark.parametrize("name", ["plain", "accumulated", "unjudged", "straight", "stopped"])
def test_all_processes_hold_the_same_bits(found, name):
    for key, weight in found[0][name].items():
        assert torch.equal(weight, found[1][name][key]), key


def test_a_resumed_run_of_two_processes_ends_with_the_same_bits_as_a_straight_one(folder, found):
    for key, weight in found[0]["straight"].items():
        assert torch.equal(weight, found[0]["stopped"][key]), key
    kept = ("epoch", "loss", "mse")
    straight, stopped = (
        [[line[name] for name in kept] for line in lines(folder / run)]
        for run in found[0]
        if run in ("straight", "stopped")
    )
    assert straight == stopped
    assert len(straight) == 3


def test_the_clock_of_rank_0_counts_for_all(found):
    assert [one["ends"] for one in found] == [[False, False, True]] * RANKS


def test_rank_0_alone_writes(folder):
    written = {"last.ckpt", "best.ckpt", "log.jsonl", "log.csv"}
    assert {file.name for file in (folder / "rank0" / "plain").iterdir()} == written
    assert [file for file in (folder / "rank1").rglob("*") if file.is_file()] == []
    assert {file.name for file in (folder / "stopped").iterdir()} == written


def test_a_process_without_anything_to_judge_does_not_disturb_the_others(folder):
    assert lines(folder / "rank0" / "one judged")[0]["mse"] > 0
    assert "mse" not in lines(folder / "rank0" / "unjudged")[0]


def test_an_error_on_one_rank_ends_all_and_names_it(folder):
    rank0, rank1 = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS))
    assert rank1.startswith("NonFiniteError: rank 1 of 2: the loss is nan at batch 2 of epoch 0")
    assert rank0.startswith("ProcessError: rank 0 of 2: another process has ended or does not answer")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Application timeout caused pair closure", ProcessError),
        ("Timed out waiting 1800000ms for recv operation to complete", ProcessError),
        ("mat1 and mat2 shapes cannot be multiplied", RuntimeError),
    ],
)
def test_a_process_that_does_not_answer_is_an_error_of_its_own(as_rank, text, kind):
    as_rank(1)
    with pytest.raises(RuntimeError) as caught, naming_the_rank():
        raise RuntimeError(text)
    assert caught.type is kind
    assert "rank 1 of 2" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


def test_every_sample_goes_to_one_process(as_rank):
    def drawn(rank, world):
        as_rank(rank, world)
        torch.manual_seed(3)
        loader = data().train_dataloader()
        batches = list(loader)
        assert len(batches) == len(loader) == 4
        return [[] if batch is NOTHING else batch[2].tolist() for batch in batches]

    whole = drawn(0, 1)
    assert [len(batch) for batch in whole] == [5, 5, 5, 1]
    for world in (2, 3):
        shares = [drawn(rank, world) for rank in range(world)]
        for number, batch in enumerate(whole):
            assert sorted(batch) == sorted(value for share in shares for value in share[number])


def test_processes_draw_one_order_and_dropout_of_their_own(as_rank):
    def drawn(rank, world=RANKS):
        as_rank(rank, world)
        loader = EpochLoader(DataLoader(range(8), shuffle=True), seed=1, steps=12, epoch=lambda: 3)
        return zip(*[(int(batch), float(torch.rand(()))) for batch in loader], strict=True)

    (order, dropout), (other_order, other_dropout) = drawn(0), drawn(1)
    assert order == other_order
    assert sorted(order[:8]) == list(range(8))
    assert order[:4] != order[8:]
    assert not set(dropout) & set(other_dropout)
    assert [order, dropout] == list(drawn(0, 1))


def test_every_item_is_judged_by_one_process(as_rank):
    expected = [collate([Points()[number]])[0] for number in range(3)]
    for rank, mine in enumerate([[0, 2], [1]]):
        as_rank(rank)
        got = [batch[0] for batch in data().val_dataloader()]
        assert all(torch.equal(x, expected[number]) for x, number in zip(got, mine, strict=True))
    as_rank(1)
    assert data(judged=1).val_dataloader() == []


def written(number):
    """A line of some width."""
    image = np.random.default_rng(number).integers(0, 255, (32, 30 + 10 * number), np.uint8)
    return Sample(str(number), "page", "set", "train", "abc"[number % 3], image)


@pytest.mark.parametrize(
    "loader",
    [
        TrainingLines(list(map(written, range(6))), Charset("abc"), columns=150),
        TrainingPages(list(map(written, range(6))), Charset("abc"), columns=250, lines=2),
    ],
    ids=["lines", "pages"],
)
def test_handwritten_lines_go_to_one_process_each_and_are_drawn_as_alone(as_rank, loader):
    def drawn(rank, world=RANKS):
        as_rank(rank, world)
        torch.manual_seed(1)
        return [{} if batch is NOTHING else images(batch) for batch in loader]

    def images(batch):
        slots = zip(batch.slots.row, batch.slots.start, batch.slots.width, strict=True)
        cut = [batch.images[row, :, start : start + width] for row, start, width in slots]
        return dict(zip(batch.names, cut, strict=True))

    shares = zip(drawn(0, 1), drawn(0), drawn(1), strict=True)
    assert {} in drawn(1), "some batch has a single line or page"
    for alone, mine, theirs in shares:
        assert len(mine) + len(theirs) == len(alone)
        both = mine | theirs
        assert all(torch.equal(both[name], image) for name, image in alone.items())


def test_a_batch_that_cannot_be_shared_is_an_error_before_any_waiting(as_rank):
    as_rank(0, 4)
    with pytest.raises(InputError, match="a batch_size of 3 is too small for 4 processes"):
        join(3, "cpu")


def test_half_an_environment_is_an_error(monkeypatch):
    assert own([1, 2, 3]) == [1, 2, 3]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="the environment says RANK=, WORLD_SIZE=2.* with torchrun"):
        here()


SMALL = {
    "sits": {
        "data": {"kind": "synthetic", "patches": 5, "size": 12, "dates": 4},
        "train": {"epochs": 1, "epoch_steps": 2, "batch_size": 4},
    },
    "pointcloud": {
        "data": {"kind": "synthetic", "clouds": 3, "size": 16, "density": 2},
        "train": {"epochs": 1, "epoch_steps": 2, "batch_size": 2},
    },
    "htr": {"data": {"synthetic": 20}, "train": {"epochs": 1, "epoch_steps": 2}},
}


@pytest.mark.parametrize("domain", SMALL)
def test_torchrun_trains_the_smallest_configuration(domain, tmp_path):
    config = yaml.safe_load((ROOT / "configs" / domain / "tiny.yaml").read_text())
    for part, changes in SMALL[domain].items():
        config[part] = config.get(part, {}) | changes
    file, run = tmp_path / "tiny.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(config))
    # Standalone: torchrun finds a free port.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "geomix", domain, "train", file, "-o", run, "--device", "cpu"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [str(run / "tiny.safetensors")]
    assert done.stderr.count("epoch 1 of 1") == 1
    assert read_card(run / "tiny.safetensors").metrics
    assert len(lines(run)) == 1
    assert {file.name for file in run.iterdir()} - {"best.ckpt", "config.yaml", "log.csv", "synthetic"} == {
        "last.ckpt",
        "log.jsonl",
        "tiny.safetensors",
    }
