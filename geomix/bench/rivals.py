"""What the mixer is measured against, and the check that has to pass before a time of it is printed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from geomix import ops
from geomix.errors import GeomixError
from geomix.mixers import Attention, PoM
from geomix.ops import reference
from geomix.ops.params import MixerParams
from geomix.segments import Segments

HEADS = 8
"""Heads of the attention that stands beside the mixer."""
BOUNDS = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Largest error of outputs and gradients over their size, both root mean squares."""


class WrongResultError(GeomixError, ArithmeticError):
    """A result that must not be timed."""


def plain_features(x: Tensor, params: MixerParams) -> Tensor:
    """Compute the features as the equation reads: all powers as one tensor, [B, N, D, k]."""
    h = torch.nn.functional.leaky_relu(x @ params.w_h.T, 0.01).clamp(-0.1, 6)
    powers = torch.stack([h**p for p in range(1, params.coeff.shape[1] + 1)], dim=-1)
    return (powers * params.coeff).sum(-1)


def plain_read(x: Tensor, mean: Tensor, params: MixerParams) -> Tensor:
    """Gate the mean and project it, one operation after another."""
    s = torch.sigmoid(x @ params.w_s.T + params.b_s)
    s = s.repeat_interleave(params.w_h.shape[0] // s.shape[-1], dim=-1)
    return (s * mean) @ params.w_o.T


def plain_formula(x: Tensor, pom: PoM) -> Tensor:
    """Mix dense tokens by the formula in plain torch, every token seeing all; [B, N, C]."""
    return plain_read(x, plain_features(x, pom.params).mean(1, keepdim=True), pom.params)


def quadratic_mask(x: Tensor, pom: PoM) -> Tensor:
    """Mix dense tokens causally through an n x n mask, as code without a scan does; [B, N, C]."""
    mask = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).tril()
    mask /= mask.sum(1, keepdim=True)
    return plain_read(x, mask @ plain_features(x, pom.params), pom.params)


def attention_for(dim: int, device: torch.device, dtype: torch.dtype) -> Attention:
    """Build the attention of the same width: projections, softmax in torch's fused kernel."""
    return Attention(dim, heads=HEADS).to(device, dtype).requires_grad_()


def error(actual: Tensor, expected: Tensor) -> float:
    """The root mean square of the error over that of what was expected."""
    actual, expected = actual.detach().double(), expected.detach().double()
    apart = (actual - expected).square().mean().sqrt()
    return float(apart / expected.square().mean().sqrt().clamp(min=1e-30))


def check_rivals(device: torch.device) -> None:
    """Make sure that the rivals compute what the mixer computes.

    Raises:
        WrongResultError: if one of them does not.
    """
    pom, x = PoM(32, degree=3).to(device), torch.randn(2, 50, 32, device=device)
    _demand(error(plain_formula(x, pom), pom(x)), 1e-5, "the plain formula")
    causal = Segments.dense(2, 50, causal=True)
    _demand(error(quadratic_mask(x, pom), pom(x, causal)), 1e-5, "the quadratic mask")


def check_mixer(device: torch.device, dtype: torch.dtype, mixers: dict[str, Callable[[], PoM]]) -> None:
    """Hold the mixer against the float64 reference: outputs, sums and all gradients, in every mode.

    Args:
        device: where it runs.
        dtype: the type that is going to be timed.
        mixers: what to build, by a name for messages.

    Raises:
        WrongResultError: if a result is wrong.
    """
    layouts: dict[str, Callable[[], Segments]] = {
        "full": lambda: Segments.packed([0, 3, 3, 82, 700]),
        "causal": lambda: Segments.packed([0, 3, 3, 82, 700], causal=True),
        "blocks": lambda: Segments.packed([0, 3, 3, 82, 700], block_size=30),
        "masked": lambda: Segments.from_mask(torch.arange(300).view(3, 100) % 7 > 1),
        "masked causal": lambda: Segments.from_mask(torch.arange(300).view(3, 100) % 7 > 1, causal=True),
    }
    for shape, build in mixers.items():
        for mode, make in layouts.items():
            _check(f"{shape}, {mode}", build(), make().to(device), dtype)


def _check(name: str, pom: PoM, segments: Segments, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    device = segments.device
    pom = pom.to(device, dtype)
    # As under autocast: in fp16 the gradient of a high power would overflow.
    pom.coeff, pom.b_s = nn.Parameter(pom.coeff.float()), nn.Parameter(pom.b_s.float())
    torch.nn.init.normal_(pom.b_s)
    x = torch.randn(segments.total, pom.dim, device=device).to(dtype)
    before = torch.randn(segments.num_sequences, pom.width, device=device)
    count = torch.arange(segments.num_sequences, device=device)
    dy, dtotal = torch.randn_like(x), torch.randn_like(before)
    results = []
    for kind in (None, torch.float64):
        inputs = (x, before, *pom.parameters())
        leaves = [value.detach().to(kind or value.dtype).requires_grad_() for value in inputs]
        params = MixerParams(*leaves[2:])
        path = ops if kind is None else reference
        y, total = path.mix(leaves[0], params, segments, pom.functions, leaves[1], count)
        grads = torch.autograd.grad([y, total], leaves, [dy.to(y.dtype), dtotal.to(total.dtype)])
        results.append([y, total, *grads])
    weights = [f"gradient of {weight}" for weight, _ in pom.named_parameters()]
    names = ["output", "sum", "gradient of x", "gradient of the state", *weights]
    for part, ours, exact in zip(names, *results, strict=True):
        _demand(error(ours, exact), BOUNDS[dtype], f"{name}, {dtype}: {part}")


def _demand(found: float, bound: float, what: str) -> None:
    if not found <= bound:
        raise WrongResultError(f"{what} is wrong: relative error {found:.1e}, at most {bound:.0e} is right")
