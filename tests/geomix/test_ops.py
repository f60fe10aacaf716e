"""The way in slices against the definition (an n x n mask, float64) and the reference, with gradients."""

import pytest
import torch
from torch import Tensor

from geomix import PoM, Segments
from geomix.ops import cpu, reference
from geomix.ops.elementwise import ACTIVATIONS, GATES, polynomial, polynomial_slope

RAGGED = [0, 0, 1, 5, 5, 135, 300]


def _mask(*shape: int, share: float = 0.6) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(7)) < share


LAYOUTS = {
    "dense": lambda: Segments.dense(3, 37),
    "dense long": lambda: Segments.dense(2, 300),
    "dense causal": lambda: Segments.dense(2, 130, causal=True),
    "dense blocks": lambda: Segments.dense(2, 13, block_size=5),
    "packed": lambda: Segments.packed(RAGGED),
    "packed causal": lambda: Segments.packed(RAGGED, causal=True),
    "packed blocks": lambda: Segments.packed(RAGGED, block_size=3),
    "packed ragged blocks": lambda: Segments.packed([0, 5, 9], [0, 0, 2, 2, 5, 6, 9, 9]),
    "masked": lambda: Segments.from_mask(_mask(4, 50)),
    "masked causal": lambda: Segments.from_mask(_mask(4, 80), causal=True),
    "masked blocks": lambda: Segments.from_mask(_mask(4, 200, share=0.1), block_size=7),
    "grid": lambda: Segments.grid(2, (4, 5)),
    "window": lambda: Segments.grid(3, (7, 9), 5),
    "window wide": lambda: Segments.grid(1, (4, 3), 9),
    "window masked": lambda: Segments.grid(3, (7, 9), (3, 11), valid=_mask(3, 63)),
    "window volume": lambda: Segments.grid(2, (3, 4, 5), 3),
    "dense short blocks": lambda: Segments.dense(5, 12, block_size=6),
    "one token": lambda: Segments.packed([0, 1]),
    "no token": lambda: Segments.packed([0, 0]),
    "no sequence": lambda: Segments.dense(0, 4),
}
STATELESS = [name for name in LAYOUTS if "window" in name]


def seen(segments: Segments) -> Tensor:
    """Which token sees which, bool [T, T], by comparing every pair."""
    sequence, block = segments.sequence_of_token, segments.block_of_token
    sees = (sequence[:, None] == sequence) & (block[:, None] >= block)
    if segments.window is not None and segments.grid_shape is not None:
        axes = [torch.arange(size) for size in segments.grid_shape]
        place = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).view(-1, len(axes))
        place = place.repeat(segments.num_sequences, 1)
        apart = (place[:, None] - place).abs()
        sees &= (apart <= torch.tensor(segments.window) // 2).all(-1)
    return sees if segments.valid is None else sees & segments.valid


def brute_force(
    x: Tensor, pom: PoM, segments: Segments, before: Tensor | None, count: Tensor | None
) -> Tensor:
    """The mixer from its definition, one n x n matrix."""
    params = pom.params
    h = (x @ params.w_h.T).where(x @ params.w_h.T > 0, 0.01 * (x @ params.w_h.T)).clamp(-0.1, 6)
    phi = sum(params.coeff[:, p] * h ** (p + 1) for p in range(params.coeff.shape[1]))
    sees = seen(segments).double()
    total, n = sees @ phi, sees.sum(1, keepdim=True)
    if before is not None and count is not None:
        total, n = total + before[segments.sequence_of_token], n + count[segments.sequence_of_token, None]
    s = torch.sigmoid(x @ params.w_s.T + params.b_s)
    s = s.repeat_interleave(pom.width // s.shape[1], 1)
    y = (s * total / n.clamp(min=1)) @ params.w_o.T
    y = y if params.b_o is None else y + params.b_o
    return y if segments.valid is None else y * segments.valid[:, None]


def _case(segments: Segments, dim: int = 6, **options) -> tuple[PoM, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    pom = PoM(dim, bias=True, **options).double()
    torch.nn.init.normal_(pom.b_s)
    torch.nn.init.normal_(pom.b_o)
    x = 2 * torch.randn(segments.total, dim, dtype=torch.float64)
    before = torch.randn(segments.num_sequences, pom.width, dtype=torch.float64)
    return pom, x, before, torch.arange(segments.num_sequences) % 4


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("gate_heads", [None, 4, 1])
@pytest.mark.parametrize("with_state", [False, True])
def test_both_paths_equal_the_definition(name: str, gate_heads: int | None, with_state: bool) -> None:
    if with_state and name in STATELESS:
        return
    segments = LAYOUTS[name]()
    pom, x, before, count = _case(segments, gate_heads=gate_heads, degree=3)
    state = (before, count) if with_state else (None, None)
    expected = brute_force(x, pom, segments, *state)
    for path in (cpu, reference):
        y, _ = path.mix(x, pom.params, segments, pom.functions, *state)
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("gate_heads", [None, 4])
def test_gradients_of_the_fast_path_equal_those_of_the_reference(name: str, gate_heads: int | None) -> None:
    segments = LAYOUTS[name]()
    pom, x, before, count = _case(segments, gate_heads=gate_heads, degree=3)
    gradients = []
    for path in (cpu, reference):
        leaves = [x.clone().requires_grad_(), before.clone().requires_grad_(), *pom.parameters()]
        state = (None, None) if name in STATELESS else (leaves[1], count)
        y, total = path.mix(leaves[0], pom.params, segments, pom.functions, *state)
        random = torch.Generator().manual_seed(3)
        loss = (y * torch.randn(y.shape, generator=random, dtype=y.dtype)).sum()
        if name not in STATELESS:
            loss = loss + (total * torch.randn(total.shape, generator=random, dtype=y.dtype)).sum()
        gradients.append(torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["packed", "packed causal", "packed ragged blocks", "masked", "window masked"]
)
def test_gradcheck(name: str) -> None:
    segments = {
        "packed": Segments.packed([0, 2, 2, 5]),
        "packed causal": Segments.packed([0, 2, 2, 5], causal=True),
        "masked": Segments.from_mask(torch.tensor([[True, False, True]])),
        "window masked": Segments.grid(
            1, (2, 3), 3, valid=torch.tensor([[True, True, False, True, True, True]])
        ),
    }.get(name) or LAYOUTS[name]()
    pom, x, before, count = _case(segments, dim=2, expand=1)
    stateless = name in STATELESS

    def call(x: Tensor, before: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        params = pom.params._replace(
            **dict(zip(["w_h", "coeff", "w_s", "b_s", "w_o", "b_o"], weights, strict=True))
        )
        result = cpu.mix(
            x, params, segments, pom.functions, *((None, None) if stateless else (before, count))
        )
        return result[:1] if stateless else result

    weights = [weight.detach().clone().requires_grad_() for weight in pom.params if weight is not None]
    before = before.requires_grad_(not stateless)
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), before, *weights))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("degree", [1, 2, 5, 16])
def test_every_activation_gate_and_degree_has_the_gradient_of_autograd(
    activation: str, gate: str, degree: int
) -> None:
    segments = Segments.dense(2, 20)
    pom, x, *_ = _case(segments, degree=degree, activation=activation, gate=gate, normalize="sum")
    results = []
    for path in (cpu, reference):
        leaf = x.clone().requires_grad_()
        y, _ = path.mix(leaf, pom.params, segments, pom.functions)
        results.append([y, *torch.autograd.grad(y.square().sum(), [leaf, *pom.parameters()])])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.detach().abs().max()))


def test_polynomial_by_hand() -> None:
    h, coeff = torch.tensor([[2.0]]), torch.tensor([[10.0, 1.0, 3.0]])
    assert polynomial(h, coeff).item() == 10 * 2 + 4 + 3 * 8
    assert polynomial_slope(h, coeff).item() == 10 + 2 * 2 + 9 * 4


def test_mix_by_hand() -> None:
    """Two tokens 1 and 3, coefficients 10 and 1: features 11 and 39, mean 25; both gates are sigmoid(0)."""
    pom = PoM(1, expand=1).double()
    with torch.no_grad():
        for weight, value in zip(
            pom.parameters(), ([[1.0]], [[10.0, 1.0]], [[0.0]], [0.0], [[1.0]]), strict=True
        ):
            weight.copy_(torch.tensor(value))
    assert pom(torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)).tolist() == [[[12.5], [12.5]]]


def test_slices_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for segments in (
        Segments.packed([0, 700, 701, 2000]),
        Segments.dense(40, 50),
        Segments.dense(3, 600, causal=True),
    ):
        pom, x, *_ = _case(segments)
        monkeypatch.setattr("geomix.ops.cpu.plan.SLICE_ELEMENTS", 1 << 19)
        leaf = x.clone().requires_grad_()
        whole = cpu.mix(leaf, pom.params, segments, pom.functions)[0]
        gradient = torch.autograd.grad(whole.square().sum(), [leaf, *pom.parameters()])
        monkeypatch.setattr("geomix.ops.cpu.plan.SLICE_ELEMENTS", 128 * pom.width)
        sliced = cpu.mix(leaf, pom.params, segments, pom.functions)[0]
        torch.testing.assert_close(sliced, whole, rtol=0, atol=1e-13)
        parts = torch.autograd.grad(sliced.square().sum(), [leaf, *pom.parameters()])
        for ours, theirs in zip(parts, gradient, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
def test_sums_agree_bit_for_bit_whatever_a_sequence_is_packed_with(causal: bool) -> None:
    lengths, width = [300, 1, 77, 128, 129], 8
    phi = torch.randn(sum(lengths), width)
    from geomix.ops.cpu.context import context_of

    def means(lengths: list[int], phi: Tensor) -> Tensor:
        cu = torch.tensor([0, *lengths]).cumsum(0)
        context = context_of(Segments.packed(cu, causal=causal), width, phi.dtype, None, "mean")
        for part in context.slices:
            rows = phi[part.start : part.stop]
            context.add(part, rows, torch.ones(width, 1), torch.empty_like(rows))
        context.close()
        rows = [context.mean(part, phi[part.start : part.stop]) for part in context.slices]
        spread = [
            r.repeat_interleave(part.length // len(r), 0)
            for r, part in zip(rows, context.slices, strict=True)
        ]
        return torch.cat(spread)

    together = means(lengths, phi).split(lengths)
    alone = [means([length], part) for length, part in zip(lengths, phi.split(lengths), strict=True)]
    for ours, theirs in zip(together, alone, strict=True):
        assert torch.equal(ours, theirs)


def test_the_default_activation_merges_large_tokens_and_leaky_softsign_does_not() -> None:
    """Lemma 3.3 of the paper needs an h that maps no two values to one; its powers must stay small too."""
    z = torch.cat([torch.linspace(-1e4, 1e4, 20_001), torch.tensor([6.5, 7.0])]).double().sort().values
    merged, apart = (ACTIVATIONS[name].forward(z) for name in ("clamped_leaky_relu", "leaky_softsign"))
    assert (merged[z >= 6] == 6).all() and (merged[z <= -10] == -0.1).all()
    assert (apart.unique_consecutive().numel() == z.unique_consecutive().numel()) and apart.abs().max() < 6
    assert (apart.diff()[z.diff() > 0] > 0).all()


@pytest.mark.parametrize(
    "segments",
    [Segments.dense(2, 70, block_size=7), Segments.dense(2, 70, causal=True), Segments.grid(2, (7, 10), 3)],
    ids=repr,
)
def test_a_second_backward_pass_gives_the_same_gradients(segments: Segments) -> None:
    torch.manual_seed(0)
    pom, x = PoM(6).double(), torch.randn(2, 70, 6, dtype=torch.float64, requires_grad=True)
    y = pom(x, segments).square().sum()
    once = torch.autograd.grad(y, [x, *pom.parameters()], retain_graph=True)
    again = torch.autograd.grad(y, [x, *pom.parameters()])
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one, other)
