"""A compiled mixer: one graph, the same numbers, for inference and for training."""

import subprocess
import sys

import pytest
import torch

from geomix import PoM, Segments

SEGMENTS = {
    "full": lambda: Segments.dense(2, 13),
    "causal": lambda: Segments.dense(2, 13, causal=True),
    "blocks": lambda: Segments.dense(2, 13, block_size=4),
    "masked": lambda: Segments.from_mask(torch.arange(26).view(2, 13) % 3 > 0, causal=True),
    "packed": lambda: Segments.packed([0, 4, 4, 26]),
    "one row": lambda: Segments.of(torch.empty(26, 8)),
    "window": lambda: Segments.grid(2, (13,), 3),
}


@pytest.fixture(autouse=True)
def _afresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_compiled_mixer_is_one_graph_with_the_numbers_of_the_plain_one(name: str) -> None:
    torch.manual_seed(0)
    segments = SEGMENTS[name]()
    pom = PoM(8, bias=name == "causal", gate_heads=4 if name == "blocks" else None).double()
    compiled = torch.compile(pom, backend="aot_eager", fullgraph=True)
    x = torch.randn(*segments.shape, 8, dtype=torch.float64, requires_grad=True)
    ours, theirs = compiled(x, segments), pom(x, segments)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    weights = [x, *pom.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), weights) for y in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, segments), theirs, rtol=0, atol=0)
        if name in ("full", "one row"):  # segments that are made inside the graph
            torch.testing.assert_close(compiled(x), theirs, rtol=0, atol=0)


def test_a_compiled_mixer_takes_any_length_and_a_state() -> None:
    torch.manual_seed(0)
    pom = PoM(8).double()

    def both(x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        y, state = pom(x, Segments.dense(*x.shape[:2], causal=True), return_state=True)
        seen = pom.observe(x)
        return y.sum() + pom(more, state=state).square().sum() + seen.sum.square().sum()

    compiled = torch.compile(both, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (7, 12):
        x, more = torch.randn(3, length, 8).double(), torch.randn(3, 2 * length, 8).double()
        gradients = [torch.autograd.grad(f(x, more), list(pom.parameters())) for f in (compiled, both)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


def test_the_compiler_is_not_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, torch\nfrom geomix import PoM\nPoM(4)(torch.ones(1, 2, 4)).sum().backward()\n"
        "found = {'torch._dynamo', 'torch._inductor'} & {*sys.modules}\nassert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
