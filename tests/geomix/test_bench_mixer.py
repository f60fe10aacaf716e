"""The benchmark of the mixer checks before it times, stops slow rivals, and needs nothing but torch."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from geomix.bench import mixer, mixer_cpu, mixer_cuda, rivals
from geomix.bench.mixer_cuda import Case
from geomix.errors import UnsupportedError
from geomix.mixers import PoM

CPU = torch.device("cpu")


@pytest.fixture
def hasty(monkeypatch):
    """Time everything once."""

    def measure(call, *, device=CPU, min_seconds=0.0, cap_seconds=None):  # fmt: skip
        call()
        return SimpleNamespace(median=0.5, fast=0.5, peak_memory=None)

    monkeypatch.setattr(mixer_cpu, "measure", measure)
    monkeypatch.setattr(mixer_cuda, "measure", measure)
    monkeypatch.setattr(mixer_cpu, "GROWTH", (32,))


def test_the_cpu_rows_hold_every_ratio(hasty):
    rows = list(mixer_cpu.rows(20.0, (32, 64, 128), (16, 32)))
    found = {(row.metric, row.versus) for row in rows if row.versus}
    for metric in ("forward", "forward and backward"):
        assert {(metric, "attention, 8 heads"), (metric, "plain formula")} <= found
    assert ("causal forward", "quadratic mask") in found
    assert [row.value for row in rows if row.metric == "growth of time"] == [1.0]
    (memory,) = [row for row in rows if row.metric == "peak memory over input and output"]
    assert memory.case == "n=2048 d=8"


def test_memory_beyond_input_and_output_does_not_grow_with_the_tokens():
    assert 0.9 < mixer_cpu.memory(1 << 17, 64).value < 3


def test_a_rival_over_the_cap_is_not_run_again(monkeypatch):
    asked = []

    def measure(call, cap_seconds=None):
        asked.append(cap_seconds)
        return None if cap_seconds else SimpleNamespace(median=1.0)

    monkeypatch.setattr(mixer_cpu, "measure", measure)
    rows = list(mixer_cpu._against_rivals("forward", 16, (8, 16, 32), 5.0))
    assert asked == [None, 5.0, 5.0, None, None]
    assert [row.value for row in rows if " of " in row.metric] == [None] * 6
    assert [row.ratio for row in rows] == [None] * 12


def test_the_cuda_rows_compare_with_rivals_and_the_roofline(hasty, monkeypatch):
    monkeypatch.setattr(mixer_cuda, "CUDA", CPU)
    monkeypatch.setattr(mixer_cuda, "DTYPE", torch.float32)
    cases = [
        Case("full", 16, 40, batch=2),
        Case("causal", 16, 40, causal=True),
        Case("blocks", 16, 40, block_size=8),
    ]
    rows = [row for case in cases for row in mixer_cuda._measure(case, 1e12, 1e14, 2.0)]
    versus = {(row.case.split(":")[0], row.versus) for row in rows}
    assert {("full", "plain formula"), ("causal", "quadratic mask"), ("blocks", "roofline")} <= versus
    assert ("blocks", "attention, 8 heads") not in versus


def test_the_roofline_counts_products_and_bytes():
    """A full gate and D = 2 C: 12 T C^2 operations forward, 36 with backward; 14 T C and 58 T C bytes."""
    case = Case("full", 64, 100)
    roof = lambda metric, copy, product: mixer_cuda._roof(case, 128, 128, metric, copy, product)  # noqa: E731
    assert roof("forward", 1e30, 1.0) == 12 * 100 * 64**2
    assert roof("forward and backward", 1e30, 1.0) == 36 * 100 * 64**2
    assert roof("forward", 1.0, 1e30) == 14 * 100 * 64
    assert roof("forward and backward", 1.0, 1e30) == 58 * 100 * 64


def test_a_wrong_result_is_not_timed(monkeypatch):
    right = PoM.forward
    monkeypatch.setattr(PoM, "forward", lambda *args, **kwargs: right(*args, **kwargs) * 1.001)
    with pytest.raises(rivals.WrongResultError, match="the plain formula is wrong: relative error 1.0e-03"):
        mixer.run(device="cpu")


def test_a_wrong_gradient_is_named(monkeypatch):
    mix = rivals.ops.mix

    def wrong(x, params, *rest):
        return mix(
            x, params._replace(b_s=params.b_s.detach() + 0.9 * (params.b_s - params.b_s.detach())), *rest
        )

    monkeypatch.setattr(rivals.ops, "mix", wrong)
    with pytest.raises(
        rivals.WrongResultError, match="full gate, full, torch.float32: gradient of b_s is wrong"
    ):
        mixer.run(device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_is_asked_for_in_vain():
    with pytest.raises(UnsupportedError, match="--device cpu"):
        mixer.run(device="cuda")
    done = subprocess.run(
        [sys.executable, "-m", "geomix.bench.mixer", "--device", "cuda"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is no CUDA device; measure the CPU with --device cpu\n"


def test_torch_and_triton_are_enough():
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pydantic", "yaml", "lightning", "cyclopts", "rich", "psutil"}:
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Refuse())
from geomix.bench import mixer, mixer_cpu, mixer_cuda, rows_table
from geomix.ops.kernels import op
from geomix.report import json_text
import torch
mixer_cpu.check_mixer(torch.device("cpu"), torch.float32, mixer_cpu.CHECKED)
row = next(mixer_cpu._growth(16, (8,)))
print(json_text(row.as_dict()), rows_table([row]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "growth of time" in done.stdout


def test_the_versions_name_the_commit():
    found = mixer.versions()
    assert set(found) >= {"geomix", "triton", "commit"}
    assert len(found["commit"]) == 12
