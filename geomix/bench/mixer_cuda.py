"""The mixer on a GPU: every mode against attention, the plain formula and the machine's own roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.bench import Row, Timing, measure
from geomix.bench.mixer_cpu import compare
from geomix.bench.rivals import (
    HEADS,
    WrongResultError,
    attention_for,
    check_mixer,
    check_rivals,
    error,
    plain_formula,
    quadratic_mask,
)
from geomix.mixers import PoM
from geomix.segments import Segments

CUDA = torch.device("cuda")
DTYPE = torch.bfloat16
CAP = 2.0
"""Seconds that a run of a rival may take at most: the whole measurement shall end within minutes."""
CHECKED: dict[str, Callable[[], PoM]] = {
    "full gate": lambda: PoM(256),
    "sixteen gates": lambda: PoM(256, degree=3, gate_heads=16),
    "degree 10": lambda: PoM(64, degree=10),
    "widths that no tile fits": lambda: PoM(100, bias=True),
}


@dataclass(frozen=True)
class Case:
    """One shape: `batch` sequences of `length` tokens of `dim` channels."""

    name: str
    dim: int
    length: int
    batch: int = 1
    degree: int = 2
    gate_heads: int | None = None
    causal: bool = False
    block_size: int | None = None

    @property
    def title(self) -> str:
        """What the case is called in the rows."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{self.name}: n={batch}{self.length} d={self.dim} k={self.degree}"


CASES = (
    Case("full", 1024, 1 << 16),
    Case("full", 256, 1 << 16),
    Case("full", 128, 1 << 20),
    Case("full, degree 10", 256, 1 << 16, degree=10),
    Case("full, 16 gates", 1024, 1 << 16, gate_heads=16),
    Case("causal", 1024, 1 << 16, causal=True),
    Case("causal", 256, 1 << 16, causal=True),
    Case("blocks of 1024", 1024, 1 << 16, block_size=1024),
    Case("many short", 128, 79, batch=3456),
    Case("many short", 1152, 256, batch=1024),
    Case("small", 256, 1 << 10),
)


def rows(cap_seconds: float) -> Iterator[Row]:
    """Check every mode and type, measure the machine, then the cases."""
    check_rivals(CUDA)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check_mixer(CUDA, dtype, CHECKED)
    _check_large()
    copy, product = _copy_rate(), _product_rate()
    yield Row("machine", "copy", copy / 1e12, "TB/s")
    yield Row("machine", f"matrix product, {DTYPE}", product / 1e12, "TFLOP/s")
    for case in CASES:
        yield from _measure(case, copy, product, min(cap_seconds, CAP))
        torch.cuda.empty_cache()


def _measure(case: Case, copy: float, product: float, cap: float) -> Iterator[Row]:
    torch.manual_seed(0)
    pom = PoM(case.dim, degree=case.degree, gate_heads=case.gate_heads).to(CUDA, DTYPE)
    attention = attention_for(case.dim, CUDA, DTYPE)
    segments = Segments.dense(case.batch, case.length, causal=case.causal, block_size=case.block_size)
    segments = segments.to(CUDA)
    x = torch.randn(case.batch, case.length, case.dim, device=CUDA, dtype=DTYPE)
    rivals: dict[str, Callable[[Tensor], Tensor]] = {}
    if case.block_size is None:
        rivals[f"attention, {HEADS} heads"] = lambda x: attention(x, segments)
        rivals["quadratic mask" if case.causal else "plain formula"] = (
            (lambda x: quadratic_mask(x, pom)) if case.causal else (lambda x: plain_formula(x, pom))
        )
    for metric in ("forward", "forward and backward"):
        ours = _time(lambda x: pom(x, segments), x, metric, None)
        if ours is None:
            raise ValueError("our own time has no cap")
        roof = _roof(case, pom.width, pom.w_s.shape[0], metric, copy, product)
        yield Row(case.title, metric, 1e3 * ours.median, "ms", "roofline", roof / ours.median)
        yield Row(case.title, f"memory, {metric}", _mega(ours), "MB")
        for rival, call in rivals.items():
            theirs = _time(call, x, metric, cap)
            yield from compare(case.title, metric, ours, rival, theirs)
            mega = None if theirs is None else _mega(theirs)
            yield Row(case.title, f"memory, {metric} of {rival}", mega, "MB")


def _time(call: Callable[[Tensor], Tensor], x: Tensor, metric: str, cap: float | None) -> Timing | None:
    """Time a call; None where it takes longer than the cap or more memory than there is."""
    try:
        if "backward" not in metric:
            with torch.inference_mode():
                return measure(lambda: call(x), device=CUDA, min_seconds=0.2, cap_seconds=cap)
        leaf, grad = x.clone().requires_grad_(), torch.ones_like(x)
        return measure(
            lambda: torch.autograd.backward(call(leaf), grad), device=CUDA, min_seconds=0.2, cap_seconds=cap
        )
    except torch.cuda.OutOfMemoryError:
        if cap is None:
            raise
        return None


def _mega(timing: Timing) -> float | None:
    return None if timing.peak_memory is None else timing.peak_memory / 1e6


def _roof(case: Case, width: int, heads: int, metric: str, copy: float, product: float) -> float:
    """Seconds that a mixer of three products would take if it did nothing but multiply, or nothing but move.

    Counted are the least operations of the mode and what four forward and seven backward launches must read
    and write: x twice, the gated means out and in, the output; and so on for the gradients.
    """
    tokens, dim, size = case.batch * case.length, case.dim, DTYPE.itemsize
    low_rank = heads < width and not case.causal
    if low_rank:
        flops, moved = 2 * tokens * dim * (width + 2 * heads), tokens * 3 * dim * size
    else:
        flops, moved = 2 * tokens * dim * (2 * width + heads), tokens * (3 * dim + 2 * width) * size
    if "backward" in metric:
        flops += 2 * 2 * tokens * dim * (2 * width + heads)
        moved += tokens * (6 * dim + 5 * width + 3 * heads) * size
    return max(flops / product, moved / copy)


def _copy_rate() -> float:
    """Bytes a second that the GPU reads and writes when it copies."""
    source = torch.empty(1 << 29, dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source), device=CUDA)
    return 2 * source.numel() / timing.fast if timing else 0.0


def _product_rate() -> float:
    """Operations a second of a large matrix product."""
    a = torch.randn(8192, 8192, device=CUDA, dtype=DTYPE)
    timing = measure(lambda: a @ a, device=CUDA)
    return 2 * 8192**3 / timing.fast if timing else 0.0


def _check_large() -> None:
    """Hold the last sequence of a pack of more than 2^31 numbers against the same sequence alone."""
    dim, last = 512, 1000
    tokens = (1 << 22) + last
    pom = PoM(dim, expand=1).to(CUDA, DTYPE)
    x = torch.zeros(tokens, dim, device=CUDA, dtype=DTYPE)
    x[-last:] = torch.randn(last, dim, device=CUDA)
    with torch.inference_mode():
        for causal in (False, True):
            packed = Segments.packed([0, tokens - last, tokens], causal=causal).to(CUDA)
            alone = Segments.packed([0, last], causal=causal).to(CUDA)
            found = error(pom(x, packed)[-last:], pom(x[-last:], alone))
            if not found <= 1e-2:
                raise WrongResultError(f"a sequence behind 2^31 numbers is wrong: relative error {found:.1e}")
