"""The mixer on a CPU: ratios of one run, so that they say something on any machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from geomix.bench import Row, Timing, measure
from geomix.bench.rivals import HEADS, attention_for, check_mixer, check_rivals, plain_formula, quadratic_mask
from geomix.mixers import PoM
from geomix.segments import Segments

LENGTHS = (1 << 10, 1 << 12, 1 << 14, 1 << 16)
WIDTHS = (256, 512)
GROWTH = (1 << 12, 1 << 14, 1 << 16)
CPU = torch.device("cpu")
ATTENTION = f"attention, {HEADS} heads"
FORMULA = "plain formula"
CHECKED: dict[str, Callable[[], PoM]] = {
    "full gate": lambda: PoM(24, degree=3),
    "four gates": lambda: PoM(24, gate_heads=4),
}


def rows(
    cap_seconds: float, lengths: tuple[int, ...] = LENGTHS, widths: tuple[int, ...] = WIDTHS
) -> Iterator[Row]:
    """Check the results, then measure forward, training, causal context, growth and memory."""
    check_rivals(CPU)
    check_mixer(CPU, torch.float32, CHECKED)
    for width in widths:
        yield from _against_rivals("forward", width, lengths, cap_seconds)
    yield from _against_rivals("forward and backward", widths[0], lengths[1:3], cap_seconds)
    yield from _causal(widths[0], lengths[:3], cap_seconds)
    yield from _growth(widths[0], tuple(length for length in GROWTH if length <= lengths[-1]))
    yield memory(lengths[-1] * 16, widths[0] // 2)


def _against_rivals(metric: str, width: int, lengths: tuple[int, ...], cap: float) -> Iterator[Row]:
    torch.manual_seed(0)
    pom, attention = PoM(width), attention_for(width, CPU, torch.float32)
    slow: set[str] = set()
    for length in lengths:
        x = torch.randn(1, length, width)
        calls: dict[str, Callable[[Tensor], Tensor]] = {
            ATTENTION: attention,
            FORMULA: lambda x: plain_formula(x, pom),
        }
        ours = _time(pom, x, metric, None)
        for rival, call in calls.items():
            # What is over the cap once stays over it: the lengths only grow.
            timing = None if rival in slow else _time(call, x, metric, cap)
            if timing is None:
                slow.add(rival)
            yield from compare(f"n={length} d={width}", metric, ours, rival, timing)


def _causal(width: int, lengths: tuple[int, ...], cap: float) -> Iterator[Row]:
    torch.manual_seed(0)
    pom, slow = PoM(width), False
    for length in lengths:
        x, segments = torch.randn(1, length, width), Segments.dense(1, length, causal=True)
        ours = _time(partial(pom, segments=segments), x, "causal forward", None)
        timing = None if slow else _time(lambda x: quadratic_mask(x, pom), x, "causal forward", cap)
        slow = timing is None
        yield from compare(f"n={length} d={width}", "causal forward", ours, "quadratic mask", timing)


def _growth(width: int, lengths: tuple[int, ...]) -> Iterator[Row]:
    torch.manual_seed(0)
    pom = PoM(width)
    for length in lengths:
        once, twice = (_time(pom, torch.randn(1, n, width), "forward", None) for n in (length, 2 * length))
        if once and twice:
            yield Row(
                f"n={length} to {2 * length} d={width}", "growth of time", twice.median / once.median, "x"
            )


def _time(call: Callable[[Tensor], Tensor], x: Tensor, metric: str, cap: float | None) -> Timing | None:
    if "backward" not in metric:
        with torch.inference_mode():
            return measure(lambda: call(x), cap_seconds=cap)
    leaf = x.clone().requires_grad_()
    return measure(lambda: torch.autograd.backward(call(leaf).sum()), cap_seconds=cap)


def compare(case: str, metric: str, ours: Timing | None, rival: str, theirs: Timing | None) -> Iterator[Row]:
    """Two rows: our time with its ratio, and the rival's time or that it was not run."""
    if ours is None:
        raise ValueError("our own time has no cap")
    ratio = None if theirs is None else theirs.median / ours.median
    yield Row(case, metric, 1e3 * ours.median, "ms", rival, ratio)
    yield Row(case, f"{metric} of {rival}", None if theirs is None else 1e3 * theirs.median, "ms")


_PROBE = """
import json, pathlib, re, sys, torch
from geomix.mixers import PoM
length, width, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
pom = PoM(width)
status = pathlib.Path("/proc/self/status")
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1])
with torch.inference_mode():
    pom(torch.randn(1, 256, width))
    before = peak()
    y = pom(torch.randn(1, length, width))
print(json.dumps({"peak": peak() - before, "ends": 2 * y.numel() * y.element_size()}))
"""


def memory(length: int, width: int) -> Row:
    """Most memory of one forward call, over the size of its input and output; in a process of its own."""
    command = [sys.executable, "-c", _PROBE, str(length), str(width), str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Row(
        f"n={length} d={width}", "peak memory over input and output", found["peak"] / found["ends"], "x"
    )
