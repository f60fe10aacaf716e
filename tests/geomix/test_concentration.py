"""Tensor products of axis operators: contraction, symmetry, Kronecker product, trained basis."""

import pytest
import torch

from geomix import Segments
from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers import Concentration
from geomix.mixers.concentration import band_kernel, concentration_reference

SHAPES = [(6,), (4, 5), (2, 3, 4)]


def trained(shape: tuple[int, ...], dim: int = 3) -> Concentration:
    """A mixer some steps away from its start, in float64."""
    torch.manual_seed(0)
    mixer = Concentration(dim, shape=shape).double()
    optimizer = torch.optim.SGD(mixer.parameters(), lr=0.01)
    x = torch.randn(2, torch.Size(shape).numel(), dim, dtype=torch.float64)
    for _ in range(5):
        optimizer.zero_grad()
        (mixer(x) - x.flip(1)).square().sum().backward()
        optimizer.step()
    return mixer


@pytest.mark.parametrize(("length", "bandwidth", "trace"), [(16, 0.5, 8.0), (16, 0.2, 3.2)])
def test_the_band_kernel_has_its_trace_and_spectrum(length: int, bandwidth: float, trace: float) -> None:
    """The diagonal is the width of the band; with 0 in its place the spectrum would be centred on 0."""
    kernel = band_kernel(length, bandwidth)
    eigenvalues = torch.linalg.eigvalsh(kernel)
    assert float(kernel.trace()) == pytest.approx(trace)
    assert float(eigenvalues.min()) > -1e-12 and float(eigenvalues.max()) < 1 + 1e-12
    off_diagonal = kernel - kernel.diag().diag()
    assert float(torch.linalg.eigvalsh(off_diagonal).min()) < -0.15


def test_the_start_is_the_band_kernel() -> None:
    matrix = Concentration(2, shape=(12,), bandwidth=0.4).axes[0].matrix()
    torch.testing.assert_close(matrix.double(), band_kernel(12, 0.4), rtol=0, atol=2e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_axis_operator_is_symmetric_with_eigenvalues_between_0_and_1(shape: tuple[int, ...]) -> None:
    for operator in trained(shape).axes:
        matrix = operator.matrix().detach()
        torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12)
        eigenvalues = torch.linalg.eigvalsh(matrix)
        assert -1e-7 < float(eigenvalues.min()) and float(eigenvalues.max()) < 1 + 1e-7
        u = operator.basis.weight
        torch.testing.assert_close(
            u @ u.T, torch.eye(len(u), dtype=u.dtype), rtol=0, atol=1e-6
        )  # as the fp32 start


@pytest.mark.parametrize("shape", SHAPES)
def test_axis_by_axis_equals_the_kronecker_product(shape: tuple[int, ...]) -> None:
    mixer = trained(shape)
    x = torch.randn(1, torch.Size(shape).numel(), 3, dtype=torch.float64)
    expected = concentration_reference(x[0], [operator.matrix() for operator in mixer.axes])
    torch.testing.assert_close(mixer.concentrate(x)[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mixer(x)[0], expected + mixer.value(x)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_a_contraction_and_its_own_adjoint(shape: tuple[int, ...]) -> None:
    mixer = trained(shape)
    x, y = torch.randn(2, 1, torch.Size(shape).numel(), 3, dtype=torch.float64)
    assert bool(mixer.concentrate(x).norm() <= x.norm())
    left, right = (mixer.concentrate(x) * y).sum(), (x * mixer.concentrate(y)).sum()
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("p", [1, 2])
def test_schatten_norms_multiply(p: int) -> None:
    first, second = (operator.matrix().detach() for operator in trained((4, 5)).axes)

    def schatten(matrix: torch.Tensor) -> float:
        return float(torch.linalg.svdvals(matrix).pow(p).sum() ** (1 / p))

    assert schatten(torch.kron(first, second)) == pytest.approx(schatten(first) * schatten(second), rel=1e-10)


def test_open_eigenvalues_leave_tokens_as_they_are() -> None:
    mixer = Concentration(3, shape=(4, 5)).double()
    for operator in mixer.axes:
        torch.nn.init.constant_(operator.theta, 40.0)
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    torch.testing.assert_close(mixer.concentrate(x), x, rtol=0, atol=1e-6)


def test_tokens_that_are_not_valid_are_neither_read_nor_written() -> None:
    mixer, x = trained((4, 5)), torch.randn(1, 20, 3, dtype=torch.float64)
    valid = torch.ones(1, 20, dtype=torch.bool)
    valid[0, 7] = False
    segments = Segments.grid(1, (4, 5), valid=valid)
    y = mixer(x, segments)
    x[0, 7] = torch.nan
    assert torch.equal(mixer(x, segments).nan_to_num(9), y.nan_to_num(9)) and (y[0, 7] == 0).all()
    hidden = mixer.concentrate(torch.where(valid[..., None], x, 0.0))
    assert bool(hidden.norm() <= torch.where(valid[..., None], x, 0.0).norm())


def test_a_state_dict_brings_the_operator_back() -> None:
    mixer, other = trained((4, 5)), Concentration(3, shape=(4, 5)).double()
    other.load_state_dict(mixer.state_dict())
    torch.testing.assert_close(other.axes[0].matrix(), mixer.axes[0].matrix(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, x: m(x, Segments.grid(1, (5, 4))), UnsupportedError, "built for grids of \\[4, 5\\]"),
        (lambda m, x: m(x, Segments.grid(1, (4, 5), 3)), UnsupportedError, "without a window"),
        (lambda m, x: m(x, Segments.dense(1, 20, causal=True)), UnsupportedError, "cannot be causal"),
        (lambda m, x: m(x, return_state=True), UnsupportedError, "no state"),
        (lambda m, x: m(x[:, :7]), SegmentsError, "takes tokens \\[B, 20, 3\\]"),
        (lambda m, x: Concentration(3, shape=(4,), bandwidth=0), UnsupportedError, "between 0 and 1"),
        (lambda m, x: Concentration(3, shape=()), UnsupportedError, "axes of 1 or more"),
    ],
)
def test_what_it_cannot_serve_is_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(Concentration(3, shape=(4, 5)), torch.randn(1, 20, 3))


def test_it_is_built_in_the_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        mixer = Concentration(2, shape=(12,), bandwidth=0.4)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {weight.dtype for weight in mixer.parameters()} == {torch.float64}
    # The margin of the eigenvalues alone is left: fp32 would lose 1e-7 beside it.
    eigenvalues = torch.linalg.eigvalsh(mixer.axes[0].matrix())
    expected = torch.linalg.eigvalsh(band_kernel(12, 0.4)).clamp(1e-3, 1 - 1e-3)
    torch.testing.assert_close(eigenvalues, expected, rtol=0, atol=1e-13)


def test_in_bf16_its_operators_stay_exact_and_its_outputs_near_those_of_fp32() -> None:
    torch.manual_seed(0)
    mixer, x = Concentration(3, shape=(4, 5)), torch.randn(2, 20, 3)
    expected, u = mixer(x), mixer.axes[1].basis.weight
    narrow = mixer.bfloat16()
    assert torch.equal(narrow.axes[1].basis.weight, u) and narrow.value.weight.dtype == torch.bfloat16
    y = narrow(x.bfloat16().requires_grad_())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)
    y.sum().backward()
    assert narrow.axes[0].theta.grad.isfinite().all()
