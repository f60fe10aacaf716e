"""One scene over 2 and over 3 processes gives what one process gives: outputs, states and all gradients."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geomix import Encoder, PoM
from geomix.errors import UnsupportedError
from geomix.parallel.spread import SpreadPoM, spread


def test_two_and_three_processes_equal_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("spread_worker.py")
    workers = [
        subprocess.Popen(
            [sys.executable, script, str(rank), "3", str(tmp_path / "meeting")],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    complaints = [worker.communicate(timeout=200)[1] for worker in workers]
    for worker, complaint in zip(workers, complaints, strict=True):
        assert worker.returncode == 0, complaint[-2000:]


def test_a_spread_model_shares_the_weights_and_leaves_the_model_as_it_is() -> None:
    encoder = Encoder(8, 2, {"name": "pom"})
    twin = spread(encoder)
    assert list(twin.state_dict()) == list(encoder.state_dict())
    assert all(a is b for a, b in zip(twin.parameters(), encoder.parameters(), strict=True))
    assert isinstance(twin.blocks[0].mixer, SpreadPoM)
    assert type(encoder.blocks[0].mixer) is PoM


def test_what_cannot_be_spread_says_so() -> None:
    with pytest.raises(UnsupportedError, match="Attention cannot be spread over processes"):
        spread(Encoder(8, 2, [{"name": "pom"}, {"name": "attention", "heads": 2}]))
    with pytest.raises(UnsupportedError, match="rotary"):
        spread(PoM(8, rotary=True))
    with pytest.raises(UnsupportedError, match="token by token"):
        spread(PoM(8)).step(torch.zeros(1, 8), None)
