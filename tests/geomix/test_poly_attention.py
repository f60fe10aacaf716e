"""Attention with a polynomial in the place of softmax: definition, scaling, and the theory of the scale."""

import pytest
import torch
from torch import Tensor

from geomix import Segments
from geomix.errors import UnsupportedError
from geomix.mixers import PolyAttention
from geomix.mixers.poly_attention import poly_attention, poly_attention_reference
from geomix.mixers.quadratic import Visible

MASK = torch.rand(4, 70, generator=torch.Generator().manual_seed(7)) < 0.6
MASK[0] = False
LAYOUTS = {
    "dense": Segments.dense(3, 37),
    "causal": Segments.dense(2, 150, causal=True),
    "blocks": Segments.dense(2, 13, block_size=5),
    "packed": Segments.packed([0, 0, 1, 5, 5, 35, 70, 105]),
    "packed causal": Segments.packed([0, 0, 1, 5, 5, 135, 300], causal=True),
    "packed blocks": Segments.packed([0, 5, 9], [0, 0, 2, 2, 5, 6, 9, 9]),
    "masked": Segments.from_mask(MASK),
    "masked causal": Segments.from_mask(MASK, causal=True),
    "masked blocks": Segments.from_mask(MASK, block_size=9),
    "no token": Segments.packed([0, 0]),
}
ALL = Visible(None, None, False)


def sees(segments: Segments) -> Tensor:
    sequence, block = segments.sequence_of_token, segments.block_of_token
    pairs = (sequence[:, None] == sequence) & (block[:, None] >= block)
    return pairs if segments.valid is None else pairs & segments.valid


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("scale", [None, 1 / 14])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_equals_the_definition_with_gradients(
    name: str, degree: int, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geomix.mixers.quadratic.ROWS", 11)
    torch.manual_seed(0)
    segments, mixer = LAYOUTS[name], PolyAttention(8, degree=degree, heads=2, scale=scale).double()
    x = torch.randn(segments.total, 8, dtype=torch.float64, requires_grad=True)
    ours = mixer(x.view(*segments.shape, 8), segments).view(-1, 8)
    qkv = mixer.qkv(x).view(-1, 3, 2, 4)
    theirs = mixer.out(poly_attention_reference(qkv, sees(segments), degree, scale).flatten(1))
    if segments.valid is not None:
        theirs = theirs * segments.valid[:, None]
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    gradients = [torch.autograd.grad(y.square().sum(), [x, mixer.qkv.weight]) for y in (ours, theirs)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def tokens(length: int = 9) -> Tensor:
    return torch.randn(1, length, 3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_degree_one_is_associative() -> None:
    q, k, v = tokens()[0].permute(1, 2, 0, 3)
    expected = (q @ (k.mT @ v) / (4 * 9) ** 0.5).transpose(0, 1)
    torch.testing.assert_close(poly_attention(tokens(), ALL, 1)[0], expected)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_scaling_queries_scales_outputs_by_the_power(degree: int) -> None:
    scaled = tokens()
    scaled[:, :, 0] *= 3
    torch.testing.assert_close(
        poly_attention(scaled, ALL, degree), 3**degree * poly_attention(tokens(), ALL, degree)
    )


def test_an_even_power_does_not_know_the_sign_of_a_query() -> None:
    flipped = tokens()
    flipped[:, :, 0] *= -1
    torch.testing.assert_close(poly_attention(flipped, ALL, 2), poly_attention(tokens(), ALL, 2))


def test_doubling_every_token_multiplies_outputs_by_the_root_of_two() -> None:
    doubled = poly_attention(torch.cat([tokens(), tokens()], 1), ALL, 3)[:, :9]
    torch.testing.assert_close(doubled, 2**0.5 * poly_attention(tokens(), ALL, 3))


def test_permuting_tokens_permutes_outputs() -> None:
    order = torch.randperm(9)
    torch.testing.assert_close(
        poly_attention(tokens()[:, order], ALL, 3), poly_attention(tokens(), ALL, 3)[:, order]
    )


def test_frobenius_norms_grow_as_the_theory_says() -> None:
    """Theorem 4.1 bounds softmax by sqrt(N); theorem 4.2: s^p grows as N, s^p / sqrt(N) as sqrt(N)."""
    random, width, runs = torch.Generator().manual_seed(0), 16, 8
    lengths, norms = [64, 256, 1024], {"softmax": [], "1": [], "2": [], "3": []}
    for length in lengths:
        sums = dict.fromkeys(norms, 0.0)
        for _ in range(runs):
            x = torch.randn(length, width, generator=random, dtype=torch.float64)
            q, k = (torch.randn(width, width, generator=random, dtype=torch.float64) / 8 for _ in range(2))
            s = (x @ q) @ (x @ k).T / width**0.5
            sums["softmax"] += float(s.softmax(-1).norm())
            for power in (1, 2, 3):
                sums[str(power)] += float((s**power).norm())
        for name, total in sums.items():
            norms[name].append(total / runs)
    assert all(norm <= length**0.5 for norm, length in zip(norms["softmax"], lengths, strict=True))
    for power in ("1", "2", "3"):
        raw = [norm / length for norm, length in zip(norms[power], lengths, strict=True)]
        scaled = [
            norm / length**0.5 / length**0.5 for norm, length in zip(norms[power], lengths, strict=True)
        ]
        assert max(raw) / min(raw) < 1.5  # grows as N
        assert max(scaled) / min(scaled) < 1.5  # divided by sqrt(N): grows as sqrt(N)
        assert norms[power][2] / norms[power][0] == pytest.approx(16, rel=0.5)


def test_what_it_cannot_serve_is_named() -> None:
    mixer, x = PolyAttention(8, heads=2), torch.randn(1, 6, 8)
    with pytest.raises(UnsupportedError, match="poly_attention has no state"):
        mixer(x, return_state=True)
    with pytest.raises(UnsupportedError, match="no local window"):
        mixer(x, Segments.grid(1, (2, 3), 3))
    with pytest.raises(UnsupportedError, match="must be 1, 2 or 3, got 4"):
        PolyAttention(8, degree=4)
