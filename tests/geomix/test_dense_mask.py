"""Any mask: exact against equation 4 in float64, with gradients; simpler masks are recognised."""

import re

import pytest
import torch
from torch import Tensor

from geomix import Attention, PoM, Segments
from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers import Concentration, PolyAttention, TreeAttention
from geomix.mixers.poly_attention import poly_attention_reference
from geomix.mixers.tree_attention import tree_attention_reference
from geomix.ops import reference
from geomix.ops.cpu.context import context_of

N = 7
PLACE = torch.arange(N)


def random_mask(batch: int = 2) -> Tensor:
    """No structure; the first token of the last row sees nothing, and nobody sees the last token."""
    mask = torch.rand(batch, N, N, generator=torch.Generator().manual_seed(4)) > 0.5
    mask[-1, 0], mask[:, :, -1] = False, False
    return mask


def packed(*lengths: int) -> Tensor:
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return number[:, None] == number


MASKS = {
    "any": random_mask(),
    "any, one for all rows": random_mask(1),
    "full": torch.ones(1, N, N).bool(),
    "causal": torch.ones(2, N, N).tril().bool(),
    "blocks": (PLACE // 3)[:, None] >= PLACE // 3,
    "other blocks in each row": torch.stack([b[:, None] >= b for b in (PLACE // 3, PLACE // 2)]),
    "packed": packed(2, 4, 1),
    "packed and causal": packed(2, 5) & torch.ones(N, N).tril().bool(),
    "band": (PLACE[:, None] - PLACE).abs() <= 2,
}


def segments_of(name: str) -> Segments:
    mask = MASKS[name]
    return Segments.dense_mask(mask if mask.ndim == 3 else mask[None], batch=2)


def equation_4(pom: PoM, x: Tensor, mask: Tensor) -> Tensor:
    """y_i = W_o( s_i * mean of the phi_j with M_ij = 1 ) + b, written out."""
    h = torch.nn.functional.leaky_relu(x @ pom.w_h.T, 0.01).clamp(-0.1, 6)
    phi = sum(pom.coeff[:, p] * h ** (p + 1) for p in range(pom.coeff.shape[1]))
    seen = mask.to(x.dtype)
    mean = torch.einsum("bij,bjd->bid", seen, phi) / seen.sum(-1, keepdim=True).clamp(min=1)
    return (torch.sigmoid(x @ pom.w_s.T + pom.b_s) * mean) @ pom.w_o.T + pom.b_o


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_gives_the_equation_and_its_gradients(name: str) -> None:
    torch.manual_seed(0)
    pom, x = PoM(6, degree=3, bias=True).double(), torch.randn(2, N, 6).double().requires_grad_()
    mask = MASKS[name].expand(2, N, N)
    segments = segments_of(name)
    results = [pom(x, segments), equation_4(pom, x, mask)]
    simple = segments.simpler or segments
    slow, _ = reference.mix(x.view(-1, 6), pom.params, simple, pom.functions)
    results.append(slow.view(x.shape))
    leaves = [x, *pom.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), leaves) for y in results]
    for other, grads in zip(results[1:], gradients[1:], strict=True):
        torch.testing.assert_close(results[0], other, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(gradients[0], grads, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("any", "a mask of its own"),
        ("full", "2 sequences, 14 tokens, full"),
        ("causal", "2 sequences, 14 tokens, causal"),
        ("blocks", "2 sequences, 14 tokens, 6 blocks"),
        ("other blocks in each row", "2 sequences, 14 tokens, 7 blocks"),
        ("packed", "computed as Segments\\(6 sequences, 14 tokens, full"),
        ("packed and causal", "computed as Segments\\(4 sequences, 14 tokens, causal"),
        ("band", "grid \\[7\\], window \\(5,\\)"),
    ],
)
def test_a_mask_of_a_simpler_kind_is_recognised_and_said(name: str, said: str) -> None:
    segments = segments_of(name)
    assert segments.shape == (2, N)
    assert re.search(said, repr(segments))


def test_a_mask_one_bit_away_from_a_simpler_kind_is_not_taken_for_it() -> None:
    for name in ("full", "causal", "blocks", "packed", "band"):
        for place in [(0, 0), (3, 3), (6, 6), (6, 0), (0, 6), (3, 4), (2, 1)]:
            mask = MASKS[name].expand(2, N, N).clone()
            mask[1][place] ^= True
            segments = Segments.dense_mask(mask)
            simple = segments.simpler or segments
            if simple.mask is None:
                eye = torch.eye(2 * N).double()
                sees = reference.visible_sum(eye, simple).view(2, N, 2, N)
                found = torch.stack([sees[b, :, b] for b in range(2)]).bool()
                assert torch.equal(found, mask) and sees.sum() == mask.sum()


def test_attention_takes_any_mask() -> None:
    torch.manual_seed(0)
    mask, x = random_mask(), torch.randn(2, N, 4).double()
    attention = Attention(4, heads=1).double()
    q, k, v = attention.qkv(x).view(2, N, 3, 4).unbind(2)
    score = (q @ k.mT / 2).masked_fill(~mask, -torch.inf)
    weights = torch.where(mask.any(-1, keepdim=True), score.softmax(-1), 0.0)
    torch.testing.assert_close(
        attention(x, Segments.dense_mask(mask)), attention.out(weights @ v), rtol=1e-12, atol=1e-12
    )
    poly = PolyAttention(4, heads=1, degree=1).double()
    parts = poly.qkv(x).view(2, N, 3, 1, 4)
    slow = torch.stack([poly_attention_reference(parts[b], mask[b], 1) for b in range(2)])
    torch.testing.assert_close(
        poly(x, Segments.dense_mask(mask)), poly.out(slow.flatten(-2)), rtol=1e-12, atol=1e-12
    )
    tree = TreeAttention(4, heads=1, edges=((1, 2), (2, 3))).double()
    queries, values = tree.queries(x).view(2, N, 3, 4), tree.values(x).view(2, N, 2, 4)
    parts = (queries.transpose(1, 2), values.transpose(1, 2), mask)
    slow = torch.stack(
        [tree_attention_reference(q, v, tree.edges, m) for q, v, m in zip(*parts, strict=True)]
    )
    torch.testing.assert_close(tree(x, Segments.dense_mask(mask)), tree.out(slow), rtol=1e-12, atol=1e-12)


def test_what_a_row_reads_has_the_same_bits_in_any_batch() -> None:
    phi, mask = torch.randn(3, N, 8, generator=torch.Generator().manual_seed(0)), random_mask(3)

    def means(phi: Tensor, mask: Tensor) -> Tensor:
        context = context_of(Segments.dense_mask(mask), 8, phi.dtype, None, "mean")
        return torch.cat([context.mean(part, phi.flatten(0, 1)) for part in context.slices]).view(phi.shape)

    together = means(phi, mask)
    for row in range(3):
        assert torch.equal(means(phi[row : row + 1], mask[row : row + 1])[0], together[row])


def test_a_compiled_mixer_takes_a_mask() -> None:
    torch.manual_seed(0)
    pom, x, segments = PoM(6), torch.randn(2, N, 6), Segments.dense_mask(random_mask())
    compiled = torch.compile(pom, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, segments), pom(x, segments))
    torch.compiler.reset()


def test_what_a_mask_cannot_do_is_named() -> None:
    segments = Segments.dense_mask(random_mask())
    x = torch.randn(2, N, 6)
    for refuse, error, message in (
        (lambda: PoM(6)(x, segments, return_state=True), UnsupportedError, "a mask has no state"),
        (lambda: Concentration(6, shape=(N,))(x, segments), UnsupportedError, "cannot be causal"),
        (lambda: Segments.dense_mask(torch.ones(2, 3, 4).bool()), SegmentsError, r"bool \[2 or 1, N, N\]"),
        (lambda: Segments.dense_mask(torch.ones(2, 3, 3)), SegmentsError, "got torch.float32"),
        (lambda: Segments.dense_mask(random_mask(), batch=3), SegmentsError, r"\[3 or 1, N, N\]"),
        (lambda: PoM(6)(x[:1], segments), SegmentsError, "describe tokens"),
    ):
        with pytest.raises(error, match=message):
            refuse()


@pytest.mark.parametrize("shape", [(2, 0), (2, 1), (1, 0)])
def test_masks_of_no_or_one_token_are_masks(shape: tuple[int, int]) -> None:
    batch, length = shape
    x = torch.randn(batch, length, 6)
    for seen in (True, False):
        y = PoM(6)(x, Segments.dense_mask(torch.full((batch, length, length), seen)))
        assert y.shape == x.shape and (seen or not y.any())
