"""Softmax attention under the common call, against its definition."""

import pytest
import torch
from torch import Tensor

from geomix import Attention, Segments
from geomix.errors import SegmentsError, UnsupportedError

MASK = torch.rand(4, 33, generator=torch.Generator().manual_seed(7)) < 0.6
MASK[0] = False
LAYOUTS = {
    "dense": Segments.dense(3, 37),
    "causal": Segments.dense(2, 40, causal=True),
    "blocks": Segments.dense(2, 13, block_size=5),
    "packed": Segments.packed([0, 0, 1, 5, 5, 35, 70, 105]),
    "packed causal": Segments.packed([0, 0, 1, 5, 5, 135, 300], causal=True),
    "packed blocks": Segments.packed([0, 5, 9], [0, 0, 2, 2, 5, 6, 9, 9]),
    "masked": Segments.from_mask(MASK),
    "masked causal": Segments.from_mask(MASK, causal=True),
    "grid": Segments.grid(2, (4, 5)),
    "no token": Segments.packed([0, 0]),
}


def definition(x: Tensor, mixer: Attention, segments: Segments) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over every pair that may see each other; 0 where nothing is seen."""
    sequence, block = segments.sequence_of_token, segments.block_of_token
    sees = (sequence[:, None] == sequence) & (block[:, None] >= block)
    if segments.valid is not None:
        sees &= segments.valid
    q, k, v = mixer.qkv(x).view(len(x), 3, mixer.heads, mixer.head_dim).permute(1, 2, 0, 3)
    scores = (q @ k.mT / mixer.head_dim**0.5).masked_fill(~sees, -torch.inf)
    y = mixer.out((scores.softmax(-1).nan_to_num() @ v).transpose(0, 1).flatten(1))
    return y if segments.valid is None else y * segments.valid[:, None]


@pytest.mark.parametrize("name", LAYOUTS)
def test_attention_equals_its_definition_with_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomix.mixers.quadratic.ROWS", 7)
    torch.manual_seed(0)
    segments, mixer = LAYOUTS[name], Attention(8, heads=2, qkv_bias=True).double()
    x = torch.randn(segments.total, 8, dtype=torch.float64, requires_grad=True)
    ours = mixer(x.view(*segments.shape, 8), segments).view(-1, 8)
    theirs = definition(x, mixer, segments)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    gradients = [
        torch.autograd.grad(y.square().sum(), leaves, materialize_grads=True) for y in (ours, theirs)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_padding_does_not_reach_valid_tokens() -> None:
    mixer, x = Attention(8, heads=2), torch.randn(1, 5, 8)
    padded = torch.cat([x, torch.full((1, 3, 8), 1e4)], 1)
    y = mixer(padded, Segments.from_mask(torch.tensor([[True] * 5 + [False] * 3])))
    torch.testing.assert_close(y[:, :5], mixer(x))
    assert (y[:, 5:] == 0).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda m, x: m(x, return_state=True),
            UnsupportedError,
            "no state of fixed size; use the mixer 'pom'",
        ),
        (lambda m, x: m(x, Segments.grid(1, (2, 3), 3)), UnsupportedError, "no local window"),
        (lambda m, x: m(x, Segments.dense(2, 3)), SegmentsError, "describe tokens \\[2, 3, C\\]"),
        (lambda m, x: m(x[..., :4]), SegmentsError, "width 8, got \\[1, 6, 4\\]"),
        (lambda m, x: Attention(8, heads=3), UnsupportedError, "heads must divide the width 8, got 3"),
    ],
)
def test_what_attention_cannot_serve_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(Attention(8, heads=2), torch.randn(1, 6, 8))
