"""The kernels against the float64 reference: outputs and all gradients, on memory full of NaN.

On a GPU they run as they are, with bf16 added; elsewhere in Triton's interpreter (see conftest.py).
The interpreter multiplies bf16 wrongly without a word, so that type is left to the GPU.
"""

import mmap
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager

from geomix import PoM, Segments
from geomix.ops import kernels, reference
from geomix.ops.params import MixerFunctions, MixerParams

pytest.importorskip("triton")

from geomix.ops.kernels import launch, op
from geomix.ops.kernels.plan import plan_for

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RAGGED = [0, 0, 1, 5, 5, 84, 130]
LONG = [0, 7, 540, 600]
"""With a sequence of more than `plan.LONG` tokens."""
BOUNDS = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
"""Largest error of outputs and gradients over their size, both root mean squares."""
ON_GPU = pytest.param(
    torch.bfloat16, marks=[pytest.mark.gpu, pytest.mark.skipif(DEVICE.type == "cpu", reason="no GPU")]
)


def mask(batch: int, length: int, share: float) -> Tensor:
    valid = torch.rand(batch, length, generator=torch.Generator().manual_seed(7)) < share
    valid[-1] = False
    return valid


LAYOUTS = {
    "dense": lambda: Segments.dense(2, 37),
    "packed": lambda: Segments.packed(RAGGED),
    "causal": lambda: Segments.packed(RAGGED, causal=True),
    "blocks": lambda: Segments.packed(RAGGED, block_size=7),
    "ragged blocks": lambda: Segments.packed([0, 5, 9], [0, 0, 2, 2, 5, 6, 9, 9]),
    "long": lambda: Segments.packed(LONG),
    "long causal": lambda: Segments.packed(LONG, causal=True),
    "masked": lambda: Segments.from_mask(mask(3, 40, 0.6)),
    "masked causal": lambda: Segments.from_mask(mask(3, 40, 0.6), causal=True),
    "masked blocks": lambda: Segments.from_mask(mask(2, 60, 0.1), block_size=20),
}


@dataclass(frozen=True)
class Case:
    """One mixer, its tokens and what it has seen before, all in float64."""

    layout: str
    dim: int = 16
    width: int = 32
    degree: int = 2
    heads: int = 32
    bias: bool = False
    state: bool = False
    functions: MixerFunctions = field(default_factory=MixerFunctions)

    def build(self, dtype: torch.dtype) -> tuple[Segments, Tensor, MixerParams, Tensor | None, Tensor | None]:
        segments = LAYOUTS[self.layout]().to(DEVICE)
        torch.manual_seed(0)

        def draw(*shape: int, scale: float = 1.0, kind: torch.dtype = dtype) -> Tensor:
            # Rounded to the type under test, so that both sides compute from the same numbers.
            values = torch.randn(*shape, dtype=torch.float64) * scale
            return values.to(kind).double().to(DEVICE).requires_grad_()

        x = draw(segments.total, self.dim)
        params = MixerParams(
            draw(self.width, self.dim, scale=self.dim**-0.5),
            draw(self.width, self.degree, scale=0.5**self.degree, kind=torch.float32),
            draw(self.heads, self.dim, scale=self.dim**-0.5),
            draw(self.heads, kind=torch.float32),
            draw(self.dim, self.width, scale=self.width**-0.5),
            draw(self.dim) if self.bias else None,
        )
        if not self.state:
            return segments, x, params, None, None
        sequences = segments.num_sequences
        before = draw(sequences, self.width, scale=10, kind=torch.float32)
        return segments, x, params, before, (torch.arange(sequences) % 3 * 5).to(DEVICE)


CASES = {
    "dense, widths that no tile fits": Case("dense", dim=20, width=40, heads=40, state=True),
    "packed": Case("packed", degree=3, state=True),
    "packed causal": Case("causal", bias=True, state=True),
    "packed blocks": Case("blocks", bias=True),
    "ragged blocks": Case("ragged blocks", degree=1, state=True),
    "a long sequence": Case("long", state=True),
    "a long sequence, causal": Case("long causal", state=True),
    "masked": Case("masked", bias=True, state=True),
    "masked causal": Case("masked causal"),
    "masked blocks": Case("masked blocks", state=True),
    "few gates, low rank": Case("masked", heads=2, bias=True, state=True),
    "few gates, short blocks": Case("blocks", heads=4),
    "few gates, causal": Case("causal", heads=16, state=True),
    "heads wider than a tile": Case("dense", width=128, heads=2),
    "heads wider than a tile, causal": Case("causal", width=128, heads=2),
    "heads that no tile fits": Case("dense", width=30, heads=10),
    "degree 16": Case("causal", degree=16),
    "gelu, hard gate, sum": Case(
        "blocks", functions=MixerFunctions("gelu", "hardsigmoid", "sum"), state=True
    ),
    "leaky softsign": Case("causal", functions=MixerFunctions("leaky_softsign", "sigmoid", "mean")),
    "leaky relu": Case("dense", functions=MixerFunctions("leaky_relu", "sigmoid", "mean")),
    "relu": Case("dense", functions=MixerFunctions("relu", "sigmoid", "mean")),
    "identity, causal sum": Case(
        "causal", functions=MixerFunctions("identity", "sigmoid", "sum"), state=True
    ),
}
IN_HALF = ["dense, widths that no tile fits", "masked causal", "few gates, low rank"]


def plain(params: MixerParams, dtype: torch.dtype = torch.float32) -> MixerParams:
    """The same weights without history, in another type."""
    return MixerParams(*(weight if weight is None else weight.detach().to(dtype) for weight in params))


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what is allocated with NaN: a kernel that leaves an element out shows."""

    def poison(allocate: Any) -> Any:
        def fill(*args: Any, **kwargs: Any) -> Tensor:
            made = allocate(*args, **kwargs)
            return made.fill_(float("nan")) if made.is_floating_point() else made

        return fill

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poison(getattr(owner, name)))


def error(actual: Tensor, expected: Tensor) -> float:
    """The root mean square of the error over that of what was expected."""
    actual, expected = actual.detach().double(), expected.detach()
    apart = (actual - expected).square().mean().sqrt()
    return float(apart / expected.square().mean().sqrt().clamp(min=1e-30))


def results(path: Any, dtype: torch.dtype | None, case: Case, like: torch.dtype) -> dict[str, Tensor]:
    """Outputs, sums and all gradients of a case; computed in `dtype`, or in float64 if None."""
    segments, x, params, before, count = case.build(like)
    kinds = {"x": dtype, "w_h": dtype, "w_s": dtype, "w_o": dtype, "b_o": dtype}
    leaves = {
        name: (value.detach() if dtype is None else value.detach().to(kinds.get(name, torch.float32)))
        for name, value in {"x": x, **params._asdict(), "before": before}.items()
        if value is not None
    }
    for leaf in leaves.values():
        leaf.requires_grad_()
    weights = MixerParams(**{name: leaves.get(name) for name in MixerParams._fields})
    y, total = path.mix(leaves["x"], weights, segments, case.functions, leaves.get("before"), count)
    random = torch.Generator().manual_seed(3)
    dy, dtotal = (
        torch.randn(value.shape, generator=random, dtype=torch.float64).to(DEVICE) for value in (y, total)
    )
    outputs, grads = [y, total], [dy.to(like).to(y.dtype), dtotal.float().to(total.dtype)]
    gradients = torch.autograd.grad(outputs, list(leaves.values()), grads)
    return {"y": y, "total": total} | dict(zip(leaves, gradients, strict=True))


def compare(case: Case, dtype: torch.dtype) -> None:
    expected, actual = results(reference, None, case, dtype), results(op, dtype, case, dtype)
    for name, value in expected.items():
        assert error(actual[name], value) < BOUNDS[dtype], name
    assert actual["y"].dtype == dtype
    assert actual["total"].dtype == torch.float32


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_of_the_reference(name: str) -> None:
    compare(CASES[name], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, ON_GPU])
@pytest.mark.parametrize("name", IN_HALF)
def test_16_bit_outputs_and_gradients_are_close_to_the_reference(name: str, dtype: torch.dtype) -> None:
    compare(CASES[name], dtype)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter takes seconds a tile")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [512, 8])
def test_full_tiles_on_a_gpu(dtype: torch.dtype, causal: bool, heads: int) -> None:
    LAYOUTS["large"] = lambda: Segments.packed([0, 79, 3000, 7001], causal=causal)
    compare(Case("large", dim=256, width=512, heads=heads, state=True), dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_a_sequence_gives_the_same_bits_alone_and_packed(causal: bool) -> None:
    _, x, params, *_ = Case("packed").build(torch.float32)
    x, params = x.detach().float(), plain(params)
    x = torch.cat([x] * 5)[:600]
    functions = MixerFunctions()
    alone = [op.mix(part, params, Segments.packed([0, len(part)], causal=causal).to(DEVICE), functions)
             for part in (x[:79], x[79:])]  # fmt: skip
    together = op.mix(x, params, Segments.packed([0, 79, 600], causal=causal).to(DEVICE), functions)
    again = op.mix(x, params, Segments.packed([0, 79, 600], causal=causal).to(DEVICE), functions)
    assert together[1].equal(torch.cat([total for _, total in alone]))
    assert all(ours.equal(theirs) for ours, theirs in zip(together, again, strict=True))
    # The last product is torch's, whose bits depend on the number of rows.
    assert error(together[0], torch.cat([y for y, _ in alone]).double()) < 1e-6


@pytest.mark.parametrize(
    "case", [CASES["packed"], CASES["masked"], CASES["a long sequence"]], ids=["packed", "masked", "long"]
)
def test_observe_sums_and_goes_back(case: Case) -> None:
    segments, x, params, *_ = case.build(torch.float32)
    expected = reference.sequence_sum(reference.features(x, params, case.functions), segments)
    grad = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, [x, params.w_h, params.coeff], grad)
    leaves = MixerParams(*(None if p is None else p.detach().float().requires_grad_() for p in params))
    leaf = x.detach().float().requires_grad_()
    total = op.observe(leaf, leaves, segments, case.functions)
    grads = torch.autograd.grad(total, [leaf, leaves.w_h, leaves.coeff], grad.float())
    for ours, theirs in zip([total, *grads], [expected, *expected_grads], strict=True):
        assert error(ours, theirs) < BOUNDS[torch.float32]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_million_tokens_are_summed_to_1e_6(reverse: bool) -> None:
    """8,192 chunks of 128 tokens, all of one sign: the case in which a running sum in fp32 loses most."""
    chunks = 8192
    sums = torch.rand(chunks, 2, generator=torch.Generator().manual_seed(0)).to(DEVICE) * 128
    order = torch.arange(chunks, device=DEVICE)
    tokens = launch.Tokens(
        sums, order[:8].repeat(6, 1), torch.tensor([0, chunks], device=DEVICE), chunks, None
    )
    rows, total = launch.scan(tokens, sums, order, None, chunks, reverse=reverse, shift=False)
    exact = sums.double().flip(0).cumsum(0).flip(0) if reverse else sums.double().cumsum(0)
    assert error(rows, exact) < 3e-7
    assert error(total, exact[:1] if reverse else exact[-1:]) < 3e-7


def test_tokens_may_lie_in_any_strides() -> None:
    _, x, params, *_ = Case("dense").build(torch.float32)
    x, params = x.detach().float(), plain(params)
    segments, functions = Segments.dense(2, 37).to(DEVICE), MixerFunctions()
    wide = torch.full((74, 40), float("nan"), device=DEVICE)
    wide[:, 3:19] = x
    expected, _ = op.mix(x, params, segments, functions)
    for strided in (x.T.contiguous().T, wide[:, 3:19], wide.flip(0)[:, 3:19].flip(0)):
        leaf = strided.requires_grad_()
        y, _ = op.mix(leaf, params, segments, functions)
        assert error(y, expected.double()) < 1e-6
        (gradient,) = torch.autograd.grad(y.sum(), leaf)  # of an expanded scalar: stride 0
        assert gradient.isfinite().all()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="takes an allocation of this size on a GPU")
def test_offsets_beyond_32_bits() -> None:
    """Two rows 2^31 elements apart; the memory between them is only reserved, never touched."""
    apart = 2**31 + 16
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (apart + 16)), dtype=torch.float16)
    x = memory.as_strided((2, 16), (apart, 1))
    x.copy_(torch.randn(2, 16))
    _, _, params, *_ = Case("dense").build(torch.float16)
    params = plain(params, torch.float16)
    segments, functions = Segments.packed([0, 2]), MixerFunctions()
    far, _ = op.mix(x, params, segments, functions)
    near, _ = op.mix(x.contiguous(), params, segments, functions)
    assert far.equal(near)


@pytest.mark.parametrize("name", ["packed", "packed causal", "few gates, low rank"])
def test_four_launches_forward_and_seven_backward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def count(owner: Any, method: str) -> None:
        call = getattr(owner, method)

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            started.append(getattr(self, "__name__", method))
            return call(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, counted)

    for owner, method in (
        (Tensor, "__matmul__"),
        (Tensor, "sum"),
        (torch, "addmm"),
        (type(launch.scan_sums), "run"),
    ):
        count(owner, method)
    segments, x, params, before, counts = replace(CASES[name], bias=False).build(torch.float32)
    leaves = [value.detach().float().requires_grad_() for value in (x, *params[:5])]
    plan_for(segments)
    started.clear()
    y, _ = op.mix(leaves[0], MixerParams(*leaves[1:]), segments, CASES[name].functions, before, counts)
    assert len(started) <= 4, started
    started.clear()
    torch.autograd.grad(y, leaves, torch.ones_like(y))
    assert len(started) <= 7, started


def test_a_compiled_mixer_takes_any_length_without_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # memory is poisoned by Python functions, which the compiler would trace
    monkeypatch.setattr(kernels, "why_not", kernels.why_not_these)
    torch.manual_seed(0)
    pom = PoM(16).to(DEVICE)
    graphs: list[Any] = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return aot_eager(graph, example)

    compiled = torch.compile(pom, backend=backend, fullgraph=True, dynamic=True)
    for cu in ([0, 5, 20], [0, 3, 3, 40], [0, 1, 90, 100, 131]):
        segments = Segments.packed(torch.tensor(cu, device=DEVICE))
        x = torch.randn(cu[-1], 16, device=DEVICE)
        assert error(compiled(x, segments), pom(x, segments).double()) < 1e-6
        gradient, expected = (torch.autograd.grad(m(x, segments).sum(), pom.w_h)[0] for m in (compiled, pom))
        assert error(gradient, expected.double()) < 1e-6
    assert len(graphs) == 1
    for batch, length in ((2, 7), (3, 20)):
        x = torch.randn(batch, length, 16, device=DEVICE)
        assert error(compiled(x), pom(x).double()) < 1e-6
    assert len(graphs) == 2  # tokens that are not packed are another rank


def test_the_public_call_chooses_the_kernels_and_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pom, segments = PoM(16), Segments.dense(1, 5)
    x = torch.randn(5, 16)
    why_not = kernels.why_not_these
    assert kernels.why_not(x, pom.params, segments) == "the tokens lie on cpu, the kernels run on CUDA"
    assert why_not(x, pom.params, segments) is None
    assert "float64" in str(why_not(x.double(), pom.params, segments))
    assert "differ in type" in str(why_not(x.half(), pom.params, segments))
    assert "degrees up to 16" in str(why_not(x, PoM(16, degree=17).params, segments))
    assert "window" in str(why_not(x, pom.params, Segments.grid(1, (1, 5), 3)))
    assert "no tokens" in str(why_not(x[:0], pom.params, Segments.dense(1, 0)))
    expected, observed = pom(x[None], segments), pom.observe(x[None])
    calls = []
    monkeypatch.setattr(kernels, "why_not", why_not)
    for name in ("mix", "observe"):
        call = getattr(op, name)
        monkeypatch.setattr(
            op, name, lambda *args, call=call, name=name: (calls.append(name), call(*args))[1]
        )
    assert error(pom(x[None], segments), expected.double()) < 1e-6
    assert error(pom.observe(x[None]).sum, observed.sum.double()) < 1e-6
    assert calls == ["mix", "observe"]


def test_autocast_reaches_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "why_not", kernels.why_not_these)
    pom, x = PoM(16).to(DEVICE), torch.randn(2, 20, 16, device=DEVICE)
    expected = pom(x)
    with torch.autocast(DEVICE.type, torch.float16):
        y, state = pom(x, return_state=True)
    y.float().sum().backward()
    assert (y.dtype, state.sum.dtype, pom.w_h.grad.dtype) == (torch.float16, torch.float32, torch.float32)
    assert error(y, expected.double()) < BOUNDS[torch.float16]
