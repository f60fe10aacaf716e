"""The elementwise functions of the mixer and their derivatives: activation h, gate sigma, polynomial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from geomix.errors import UnsupportedError

aten = torch.ops.aten

CLAMP_LOW, CLAMP_HIGH, LEAK = -0.1, 6.0, 0.01
"""Bounds and slope of the default activation: those of the published module."""


@dataclass(frozen=True)
class Pointwise:
    """A function applied to each element, and how a gradient goes back through it."""

    forward: Callable[[Tensor], Tensor]
    """Input to output; differentiable by autograd."""
    forward_: Callable[[Tensor], Tensor]
    """The same, free to overwrite its input."""
    backward_: Callable[[Tensor, Tensor], Tensor]
    """(gradient of the output, output, or input where `keeps_input`) to gradient of the input; may overwrite
    the gradient."""
    keeps_input: bool = False
    """True where the backward needs the input; then `forward_` leaves it as it is."""


def _clamped_leaky_relu_(z: Tensor) -> Tensor:
    return F.leaky_relu_(z, LEAK).clamp_(CLAMP_LOW, CLAMP_HIGH)


def _clamped_leaky_relu_backward_(grad: Tensor, h: Tensor) -> Tensor:
    # Both derivatives can be read off the output: it leaks where h <= 0 and is flat on the bounds.
    aten.hardtanh_backward(grad, h, CLAMP_LOW, CLAMP_HIGH, grad_input=grad)
    aten.leaky_relu_backward(grad, h, LEAK, True, grad_input=grad)
    return grad


def _leaky_relu_(z: Tensor) -> Tensor:
    return F.leaky_relu_(z, LEAK)


def _leaky_relu_backward_(grad: Tensor, h: Tensor) -> Tensor:
    aten.leaky_relu_backward(grad, h, LEAK, True, grad_input=grad)
    return grad


def _leaky_softsign(z: Tensor) -> Tensor:
    u = F.leaky_relu(z, LEAK)
    return u / (1 + u.abs() / CLAMP_HIGH)


def _leaky_softsign_(z: Tensor) -> Tensor:
    u = F.leaky_relu_(z, LEAK)
    return u.div_(u.abs().div_(CLAMP_HIGH).add_(1))


def _leaky_softsign_backward_(grad: Tensor, h: Tensor) -> Tensor:
    # With u = leaky_relu(z), dh/du = 1 / (1 + |u| / 6)^2 = (1 - |h| / 6)^2.
    grad.mul_(h.abs().div_(-CLAMP_HIGH).add_(1).square_())
    aten.leaky_relu_backward(grad, h, LEAK, True, grad_input=grad)
    return grad


def _relu_backward_(grad: Tensor, h: Tensor) -> Tensor:
    aten.threshold_backward(grad, h, 0.0, grad_input=grad)
    return grad


def _gelu_backward_(grad: Tensor, z: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(grad, z)  # type: ignore[no-any-return]


def _sigmoid_backward_(grad: Tensor, s: Tensor) -> Tensor:
    aten.sigmoid_backward(grad, s, grad_input=grad)
    return grad


def _hardsigmoid_(a: Tensor) -> Tensor:
    return a.mul_(1 / 6).add_(0.5).clamp_(0.0, 1.0)


def _hardsigmoid_backward_(grad: Tensor, s: Tensor) -> Tensor:
    aten.hardtanh_backward(grad, s, 0.0, 1.0, grad_input=grad)
    return grad.mul_(1 / 6)


def _same(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Pointwise] = {
    "clamped_leaky_relu": Pointwise(
        lambda z: F.leaky_relu(z, LEAK).clamp(CLAMP_LOW, CLAMP_HIGH),
        _clamped_leaky_relu_,
        _clamped_leaky_relu_backward_,
    ),
    "leaky_relu": Pointwise(lambda z: F.leaky_relu(z, LEAK), _leaky_relu_, _leaky_relu_backward_),
    "leaky_softsign": Pointwise(_leaky_softsign, _leaky_softsign_, _leaky_softsign_backward_),
    "gelu": Pointwise(F.gelu, F.gelu, _gelu_backward_, keeps_input=True),
    "relu": Pointwise(F.relu, F.relu_, _relu_backward_),
    "identity": Pointwise(_same, _same, lambda grad, _: grad),
}
"""What h may be.

`clamped_leaky_relu` is clamp(leaky_relu(z, 0.01), -0.1, 6), as published. It maps all z >= 6 to 6 and all
z <= -10 to -0.1, so tokens that differ only there cannot be told apart: the injectivity that the universality
of the mixer rests on (arXiv 2604.06129, lemma 3.3) holds only for tokens in between. `leaky_softsign` is
u / (1 + |u| / 6) with u = leaky_relu(z, 0.01): it keeps powers as small, and is injective. `leaky_relu` is
injective too, but its powers grow without bound.
"""

GATES: dict[str, Pointwise] = {
    "sigmoid": Pointwise(torch.sigmoid, torch.sigmoid_, _sigmoid_backward_),
    "hardsigmoid": Pointwise(lambda a: (a / 6 + 0.5).clamp(0.0, 1.0), _hardsigmoid_, _hardsigmoid_backward_),
}
"""What sigma may be; `hardsigmoid` is clamp(a / 6 + 1 / 2, 0, 1), as published."""


def pick(table: dict[str, Pointwise], name: str, role: str) -> Pointwise:
    """Look a function up by name.

    Raises:
        UnsupportedError: if the table has no such name.
    """
    if name not in table:
        raise UnsupportedError(f"{role} {name!r} is not known; choose one of {', '.join(table)}")
    return table[name]


def polynomial(h: Tensor, coeff: Tensor, out: Tensor | None = None) -> Tensor:
    """Evaluate sum_p coeff[:, p - 1] * h^p by Horner's rule; there is no constant term.

    Args:
        h: activated projections, [..., D].
        coeff: one coefficient per channel and power, [D, k].
        out: where to write, of the shape of `h`, or None for new memory.
    """
    degree = coeff.shape[1]
    if degree == 1:
        return torch.mul(h, coeff[:, 0], out=out)
    value = torch.addcmul(coeff[:, degree - 2], h, coeff[:, degree - 1], out=out)
    for power in range(degree - 2, 0, -1):
        value.mul_(h).add_(coeff[:, power - 1])
    return value.mul_(h)


def polynomial_slope(h: Tensor, coeff: Tensor, out: Tensor | None = None) -> Tensor:
    """Evaluate the derivative sum_p p * coeff[:, p - 1] * h^(p - 1) by Horner's rule.

    Args:
        h: activated projections, [..., D].
        coeff: one coefficient per channel and power, [D, k].
        out: where to write, of the shape of `h`, or None for new memory.
    """
    degree = coeff.shape[1]
    scaled = coeff * torch.arange(1, degree + 1, dtype=coeff.dtype, device=coeff.device)
    if degree == 1:
        value = torch.empty_like(h) if out is None else out
        return value.copy_(scaled[:, 0].expand_as(h))
    value = torch.addcmul(scaled[:, degree - 2], h, scaled[:, degree - 1], out=out)
    for power in range(degree - 2, 0, -1):
        value.mul_(h).add_(scaled[:, power - 1])
    return value
