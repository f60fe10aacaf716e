"""Properties of the Polynomial Mixer that hold for any weights."""

import pytest
import torch
from torch import Tensor

from geomix import PoM, Segments
from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers import State, build_mixer


@pytest.fixture
def pom() -> PoM:
    torch.manual_seed(0)
    return PoM(8, degree=3).double()


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(ours: Tensor, theirs: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def test_permuting_tokens_permutes_outputs(pom: PoM) -> None:
    x, order = tokens(2, 19, 8), torch.randperm(19)
    close(pom(x[:, order]), pom(x)[:, order])


def test_doubling_every_token_changes_nothing(pom: PoM) -> None:
    x = tokens(2, 19, 8)
    close(pom(torch.cat([x, x], 1))[:, :19], pom(x))


def test_a_sum_doubles_with_its_tokens() -> None:
    pom, x = PoM(8, normalize="sum").double(), tokens(1, 5, 8)
    close(pom(torch.cat([x, x], 1))[:, :5], 2 * pom(x))


@pytest.mark.parametrize("causal", [False, True])
def test_packed_equals_separate(pom: PoM, causal: bool) -> None:
    lengths = [3, 0, 1, 150]
    x = tokens(sum(lengths), 8)
    packed = pom(x, Segments.packed(torch.tensor([0, *lengths]).cumsum(0), causal=causal))
    for part, expected in zip(x.split(lengths), packed.split(lengths), strict=True):
        close(pom(part[None], Segments.dense(1, len(part), causal=causal))[0], expected)


def test_padding_changes_nothing_and_comes_out_as_zero(pom: PoM) -> None:
    x = tokens(2, 9, 8)
    padded = torch.cat([x, torch.full((2, 4, 8), torch.nan, dtype=torch.float64)], 1)
    valid = torch.tensor([True] * 9 + [False] * 4).expand(2, 13)
    y = pom(padded, Segments.from_mask(valid))
    close(y[:, :9], pom(x))
    assert (y[:, 9:] == 0).all()


def test_a_row_without_valid_tokens_is_zero_and_has_finite_gradients(pom: PoM) -> None:
    x = tokens(2, 3, 8).requires_grad_()
    valid = torch.tensor([[True, True, False], [False, False, False]])
    y = pom(x, Segments.from_mask(valid))
    y.square().sum().backward()
    assert (y[1] == 0).all() and x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize(
    "segments", [Segments.dense(1, 90, causal=True), Segments.dense(1, 90, block_size=7)]
)
def test_the_future_does_not_leak(pom: PoM, segments: Segments) -> None:
    x = tokens(1, 90, 8)
    before = pom(x, segments)
    x[:, 70:] = torch.inf
    assert torch.equal(pom(x, segments)[:, :70], before[:, :70])


@pytest.mark.parametrize("split", [0, 1, 20, 69, 70])
@pytest.mark.parametrize("block_size", [None, 10])
def test_prefill_then_next_blocks_equal_one_call(pom: PoM, split: int, block_size: int | None) -> None:
    if block_size is not None and split % block_size:
        return
    options = {"causal": True} if block_size is None else {"block_size": block_size}
    x = tokens(2, 70, 8)
    first, state = pom(x[:, :split], Segments.dense(2, split, **options), return_state=True)
    second, state = pom(
        x[:, split:], Segments.dense(2, 70 - split, **options), state=state, return_state=True
    )
    whole, after = pom(x, Segments.dense(2, 70, **options), return_state=True)
    close(torch.cat([first, second], 1), whole)
    close(state.total, after.total)
    assert torch.equal(state.count, after.count)


@pytest.mark.parametrize("prefill", [0, 1, 11])
def test_prefill_then_steps_equal_the_causal_call(pom: PoM, prefill: int) -> None:
    x = tokens(3, 15, 8)
    whole = pom(x, Segments.dense(3, 15, causal=True))
    _, state = pom(x[:, :prefill], Segments.dense(3, prefill, causal=True), return_state=True)
    for t in range(prefill, 15):
        y, state = pom.step(x[:, t], state)
        close(y, whole[:, t])
    assert state.count.tolist() == [15] * 3


def test_observing_in_any_split_and_order_then_reading_equals_one_call(pom: PoM) -> None:
    x = tokens(2, 40, 8)
    parts = [pom.observe(x[:, a:b]) for a, b in ((25, 40), (0, 1), (1, 25))]
    state = parts[0].merge(parts[1]).merge(parts[2])
    close(torch.cat([pom.read(x[:, :13], state), pom.read(x[:, 13:], state)], 1), pom(x))


def test_observing_and_reading_packed_and_masked_tokens(pom: PoM) -> None:
    x, segments = tokens(9, 8), Segments.packed([0, 4, 4, 9])
    close(pom.read(x, pom.observe(x, segments), segments), pom(x, segments))
    x, masked = tokens(2, 5, 8), Segments.from_mask(torch.tensor([[True] * 3 + [False] * 2, [True] * 5]))
    close(pom.read(x, pom.observe(x, masked), masked), pom(x, masked))


def test_gradients_flow_through_a_state(pom: PoM) -> None:
    x = tokens(2, 12, 8).requires_grad_()
    whole = pom(x, Segments.dense(2, 12, causal=True))
    expected = torch.autograd.grad(whole.square().sum(), x)[0]
    first, state = pom(x[:, :5], Segments.dense(2, 5, causal=True), return_state=True)
    second = pom(x[:, 5:], Segments.dense(2, 7, causal=True), state=state)
    close(torch.autograd.grad(first.square().sum() + second.square().sum(), x)[0], expected)
    state = pom.observe(x[:, :7]).merge(pom.observe(x[:, 7:]))
    streamed = torch.autograd.grad(pom.read(x, state).square().sum(), x)[0]
    close(streamed, torch.autograd.grad(pom(x).square().sum(), x)[0])


def test_strided_tokens_give_what_contiguous_tokens_give(pom: PoM) -> None:
    x = tokens(3, 8, 17)
    for strided in (x.transpose(1, 2), tokens(3, 17, 16)[..., ::2], tokens(6, 17, 8)[::2]):
        leaf, copy = strided.detach().requires_grad_(), strided.contiguous().detach().requires_grad_()
        close(pom(leaf), pom(copy))
        gradients = [torch.autograd.grad(pom(t).square().sum(), t)[0] for t in (leaf, copy)]
        close(*gradients)


@pytest.mark.parametrize("window", [1, 3, 7, 17])
def test_a_tile_with_its_halo_equals_the_scene(window: int) -> None:
    """In fp32, far from the origin of a wide scene: a window must not remember what lies outside it."""
    torch.manual_seed(0)
    pom, reach = PoM(4), window // 2
    x = torch.randn(1, 40, 900, 4)
    x[:, :, :300] *= 1000  # a bright neighbour that a running sum would carry along
    scene = pom(x.view(1, -1, 4), Segments.grid(1, (40, 900), window)).view(x.shape)
    y0, y1, x0, x1 = 10, 30, 700, 800
    tile = x[:, y0 - reach : y1 + reach, x0 - reach : x1 + reach]
    inner = pom(tile.reshape(1, -1, 4), Segments.grid(1, tile.shape[1:3], window)).view(tile.shape)
    inner = inner[:, reach : reach + y1 - y0, reach : reach + x1 - x0]
    torch.testing.assert_close(inner, scene[:, y0:y1, x0:x1], rtol=0, atol=1e-5)


def rms(error: Tensor, of: Tensor) -> float:
    return float((error.detach().double().square().mean() / of.detach().double().square().mean()).sqrt())


@pytest.mark.parametrize("causal", [False, True])
def test_a_million_tokens_lose_nothing_in_fp32(causal: bool) -> None:
    torch.manual_seed(0)
    pom = PoM(2, expand=1)
    x = torch.randn(1, 1_000_000, 2) + 1
    segments = Segments.dense(1, 1_000_000, causal=causal)
    with torch.no_grad():
        ours, truth = pom(x, segments), pom.double()(x.double(), segments)
    assert rms(ours - truth, truth) < 1e-6


def test_a_state_stepped_a_million_times_loses_nothing() -> None:
    phi = torch.rand(1000, 1, 1, generator=torch.Generator().manual_seed(0))
    state = State.empty(1, 1)
    steps = [State(row, torch.ones(1, dtype=torch.int64)) for row in phi]
    for _ in range(1000):
        for step in steps:
            state = state.merge(step)
    truth = phi.double().sum() * 1000
    assert int(state.count) == 1_000_000
    assert abs(float(state.total) - float(truth)) < 1e-6 * float(truth)


def test_bf16_keeps_its_state_in_fp32() -> None:
    torch.manual_seed(0)
    pom = PoM(8).bfloat16()
    x = torch.randn(1, 64, 8).bfloat16()
    y, state = pom(x, return_state=True)
    assert y.dtype == torch.bfloat16 and state.sum.dtype == torch.float32
    with torch.no_grad():
        truth = pom.double()(x.double())
    assert rms(y - truth, truth) < 2e-2


def test_autocast_computes_in_bf16_and_trains() -> None:
    torch.manual_seed(0)
    pom, x = PoM(8), torch.randn(2, 30, 8)
    truth = pom(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = pom(x)
    assert y.dtype == torch.bfloat16 and rms(y - truth, truth) < 2e-2
    y.float().square().sum().backward()
    assert pom.w_h.grad is not None and pom.w_h.grad.dtype == torch.float32


@pytest.mark.parametrize("degree", [1, 2, 5, 16])
def test_the_start_gives_a_signal_at_any_degree(degree: int) -> None:
    torch.manual_seed(0)
    y = PoM(64, degree=degree)(torch.randn(4, 200, 64))
    assert 0.05 < float(y.detach().square().mean().sqrt()) < 2


def test_rotary_steps_equal_the_causal_call_and_know_the_order() -> None:
    torch.manual_seed(0)
    pom, x, causal = PoM(8, rotary=True).double(), tokens(2, 20, 8), Segments.dense(2, 20, causal=True)
    y, state = pom(x[:, :7], Segments.dense(2, 7, causal=True), return_state=True)
    rows = [y]
    for t in range(7, 20):
        y, state = pom.step(x[:, t], state)
        rows.append(y[:, None])
    close(torch.cat(rows, 1), pom(x, causal))
    assert not torch.allclose(pom(x.flip(1)).flip(1), pom(x))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda pom, x: pom(x[..., :4]), SegmentsError, "width 8, got \\[1, 6, 4\\]"),
        (lambda pom, x: pom(x[0, 0]), SegmentsError, "tokens are \\[B, N, C\\]"),
        (lambda pom, x: pom(x, Segments.dense(1, 7)), SegmentsError, "describe tokens \\[1, 7, C\\]"),
        (
            lambda pom, x: pom(x, state=State.empty(3, 16)),
            SegmentsError,
            "1 sequences of width 16, got \\[3, 16\\]",
        ),
        (lambda pom, x: pom.read(x, State.empty(3, 16)), SegmentsError, "state holds 3"),
        (
            lambda pom, x: pom(x, Segments.grid(1, (2, 3), 3), return_state=True),
            UnsupportedError,
            "has no state",
        ),
        (lambda pom, x: pom.observe(x, Segments.grid(1, (2, 3), 3)), UnsupportedError, "can observe"),
        (lambda pom, x: State.empty(1, 2).merge(State.empty(2, 2)), SegmentsError, "one shape and device"),
        (lambda pom, x: PoM(8, gate_heads=5), UnsupportedError, "divide the state width 16, got 5"),
        (lambda pom, x: PoM(8, groups=3), UnsupportedError, "groups must divide"),
        (lambda pom, x: PoM(8, degree=0), UnsupportedError, "1 or more, got 0"),
        (
            lambda pom, x: PoM(8, activation="tanh"),
            UnsupportedError,
            "'tanh' is not known; choose one of clamped",
        ),
        (lambda pom, x: PoM(8, normalize="max"), UnsupportedError, "'mean' or 'sum', got 'max'"),
        (lambda pom, x: build_mixer({"name": "pon"}, 8), ValueError, "'pon' is not known"),
        (lambda pom, x: build_mixer({"name": "pom", "degrees": 2}, 8), ValueError, "degrees"),
    ],
)
def test_contradictions_are_named(pom: PoM, call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(pom, tokens(1, 6, 8))
