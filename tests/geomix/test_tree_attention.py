"""Attention over tuples of tokens: messages along a forest against the sum over all tuples."""

import pytest
import torch
from torch import Tensor

from geomix import Attention, Segments
from geomix.errors import UnsupportedError
from geomix.mixers import TreeAttention
from geomix.mixers.quadratic import Visible
from geomix.mixers.tree_attention import (
    children_of,
    over_all_tuples,
    over_forest,
    tree_attention_reference,
)

FORESTS = {
    "attention": ((1, 2),),
    "path": ((1, 2), (2, 3)),
    "long path": ((1, 2), (2, 3), (3, 4)),
    "branching": ((1, 2), (1, 3), (3, 4)),
    "named out of order": ((1, 3), (3, 2)),
    "two trees": ((1, 2), (3, 4)),
}
MASK = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
ALL = Visible(None, None, False)


def parts(variables: int, length: int = 4, width: int = 3) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(variables)
    shape = (2, 1, length, width)
    queries = 2 * torch.randn(variables, *shape, generator=random, dtype=torch.float64)
    return queries, torch.randn(variables - 1, *shape, generator=random, dtype=torch.float64)


@pytest.mark.parametrize("name", FORESTS)
def test_messages_equal_the_sum_over_all_tuples(name: str) -> None:
    edges = FORESTS[name]
    variables = max(map(max, edges))
    queries, values = parts(variables)
    ours = over_forest(queries, values, children_of(edges), ALL)
    torch.testing.assert_close(ours, over_all_tuples(queries, values, edges, None), rtol=0, atol=1e-13)
    if name != "two trees":
        for b in range(2):
            slow = tree_attention_reference(queries[:, b, 0], values[:, b, 0], edges, torch.ones(4, 4).bool())
            torch.testing.assert_close(ours[b, 0], slow, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "segments",
    [
        Segments.from_mask(MASK),
        Segments.from_mask(MASK, causal=True),
        Segments.dense(3, 4, causal=True),
        Segments.dense(3, 4, block_size=2),
        Segments.packed([0, 4, 4, 5, 12]),
        Segments.packed([0, 4, 4, 5, 12], causal=True),
    ],
    ids=repr,
)
def test_every_layout_masks_every_edge(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomix.mixers.quadratic.ROWS", 2)
    torch.manual_seed(0)
    edges = ((1, 2), (2, 3))
    mixer = TreeAttention(3, edges=edges, heads=1).double()
    x = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    ours = mixer(x.view(*segments.shape, 3), segments).view(12, 3)
    queries = mixer.queries(x).view(12, 3, 3).transpose(0, 1)
    values = mixer.values(x).view(12, 2, 3).transpose(0, 1)
    sequence, block = segments.sequence_of_token, segments.block_of_token
    sees = (sequence[:, None] == sequence) & (block[:, None] >= block)
    if segments.valid is not None:
        sees &= segments.valid
    theirs = mixer.out(tree_attention_reference(queries, values, edges, sees))
    if segments.valid is not None:
        theirs = theirs * segments.valid[:, None]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(y.square().sum(), [x, mixer.queries.weight]) for y in (ours, theirs)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_one_edge_is_softmax_attention_scaled_by_the_width() -> None:
    queries, values = parts(2)
    scaled = torch.nn.functional.scaled_dot_product_attention(queries[0], queries[1], values[0], scale=1 / 3)
    torch.testing.assert_close(over_forest(queries, values, children_of(((1, 2),)), ALL), scaled)


def test_values_that_are_one_constant_multiply() -> None:
    queries, _ = parts(4)
    values = torch.full((3, 2, 1, 4, 3), 2.0, dtype=torch.float64)
    ours = over_forest(queries, values, children_of(FORESTS["long path"]), ALL)
    torch.testing.assert_close(ours, torch.full_like(ours, 8.0))


def test_sharp_keys_compose_two_functions() -> None:
    """Token i looks up f1(i), whose token looks up f2: values 1 at the first step leave f2(f1(i))."""
    first, second = torch.tensor([2, 0, 1, 3]), torch.tensor([1, 3, 0, 2])
    one_hot = torch.eye(4, dtype=torch.float64)
    sharp = 1000.0
    q1, q2, q3 = sharp * one_hot[first], one_hot, one_hot
    # Edge 1-2: q1_i . q2_j is sharp at j = f1(i). Edge 2-3: q2_j . q3_l at l = j; the value of l names f2(l).
    queries = torch.stack([q1, torch.cat([q2], 0), sharp * q3])[:, None, None]
    values = torch.stack([torch.ones(4, 4, dtype=torch.float64), one_hot[second]])[:, None, None]
    ours = over_forest(queries, values, children_of(((1, 2), (2, 3))), ALL)[0, 0]
    torch.testing.assert_close(ours, one_hot[second[first]], rtol=0, atol=1e-9)


def test_permuting_tokens_permutes_outputs() -> None:
    torch.manual_seed(0)
    mixer, x, order = (
        TreeAttention(8, heads=2).double(),
        torch.randn(1, 9, 8, dtype=torch.float64),
        torch.randperm(9),
    )
    torch.testing.assert_close(mixer(x[:, order]), mixer(x)[:, order])


def test_rows_that_are_not_valid_are_zero_and_leave_no_nan() -> None:
    mixer, x = TreeAttention(8, heads=2), torch.randn(3, 4, 8)
    x[~MASK] = torch.nan
    y = mixer(x, Segments.from_mask(MASK))
    assert y.isfinite().all() and (y[~MASK] == 0).all()
    torch.testing.assert_close(y[:1, MASK[0]], mixer(x[:1, MASK[0]]))


@pytest.mark.parametrize("edges", [((1, 2), (2, 3), (3, 1)), ((1, 2, 3),)], ids=["strassen", "tensor"])
def test_cycles_and_triples_are_computed_over_all_tuples(edges: tuple[tuple[int, ...], ...]) -> None:
    torch.manual_seed(0)
    mixer, x = TreeAttention(4, edges=edges, heads=2).double(), torch.randn(2, 5, 4, dtype=torch.float64)
    q = mixer.queries(x).view(2, 5, 3, 2, 2)
    v = mixer.values(x).view(2, 5, 2, 2, 2)
    if len(edges) == 1:
        score = torch.einsum("bihd,bjhd,bkhd->bhijk", q[:, :, 0], q[:, :, 1], q[:, :, 2]) / 2
    else:
        pair = [
            torch.einsum("bihd,bjhd->bhij", q[:, :, a], q[:, :, b]) / 2 for a, b in ((0, 1), (1, 2), (0, 2))
        ]
        score = pair[0][..., None] + pair[1][:, :, None] + pair[2][:, :, :, None]
    weight = score.flatten(3).softmax(-1).view(score.shape)
    expected = mixer.out(torch.einsum("bhijk,bjhd,bkhd->bihd", weight, v[:, :, 0], v[:, :, 1]).flatten(2))
    torch.testing.assert_close(mixer(x), expected)


def test_a_cycle_may_have_more_variables_than_the_alphabet_had_letters() -> None:
    """Nine variables over two tokens are 512 tuples, each weighed by hand here."""
    edges = [(v, v % 9 + 1) for v in range(1, 10)]
    queries, values = parts(9, length=2)
    ours = over_all_tuples(queries, values, edges, None)
    slow = tree_attention_reference(queries[:, 1, 0], values[:, 1, 0], edges, torch.ones(2, 2).bool())
    torch.testing.assert_close(ours[1, 0], slow, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("again", [(2, 1), (1, 2)])
def test_an_edge_given_twice_is_refused_and_not_counted_double(again: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedError, match=f"once, in either direction; \\[{again[0]}, {again[1]}\\]"):
        TreeAttention(8, edges=((1, 2), (2, 3), again))


def test_what_it_cannot_serve_is_named() -> None:
    x, cycle = torch.randn(1, 6, 8), ((1, 2), (2, 3), (3, 1))
    with pytest.raises(UnsupportedError, match="no causal form"):
        TreeAttention(8, edges=cycle)(x, Segments.dense(1, 6, causal=True))
    with pytest.raises(UnsupportedError, match="all 3-tuples of 300 tokens, 216,000,000 scores"):
        TreeAttention(8, edges=cycle)(torch.randn(1, 300, 8))
    with pytest.raises(UnsupportedError, match="without a gap, got \\[1, 3\\]"):
        TreeAttention(8, edges=((1, 3),))
    with pytest.raises(UnsupportedError, match="two or more different variables"):
        TreeAttention(8, edges=((1, 1),))
    with pytest.raises(UnsupportedError, match="up to 49 variables, got 50"):
        TreeAttention(8, edges=[(v, v % 50 + 1) for v in range(1, 51)])
    with pytest.raises(UnsupportedError, match="tree_attention has no state"):
        TreeAttention(8)(x, return_state=True)


def test_parameters_are_those_of_t_queries_and_one_value_less() -> None:
    mixer = TreeAttention(8, heads=2, out_bias=False)
    assert sum(p.numel() for p in (mixer.queries.weight, mixer.values.weight)) == 5 * 64
    assert sum(p.numel() for p in Attention(8, heads=2).qkv.parameters()) == 3 * 64
