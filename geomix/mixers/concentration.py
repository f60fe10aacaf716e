"""Fixed-size grids mixed axis by axis with operators that can only shrink.

    y = V x + (S_1 x .. x S_r) x        S_j = U_j diag(sigmoid(theta_j)) U_j^T,  U_j orthonormal

Each S_j is symmetric with eigenvalues in [0, 1], and so is their tensor product: the mixing cannot blow up.
It starts as concentration on a frequency band, the kernel sin(pi w D) / (pi D) of the distance D, with w on
the diagonal. Cost: O(N * (n_1 + .. + n_r)) for N = n_1 * .. * n_r tokens, where a dense matrix costs O(N^2).

Source: tensorised concentration operators P_A Q_B P_A with Slepian's kernel; the value projection beside them
is that of the published layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers.base import Mixer
from geomix.mixers.state import State
from geomix.segments import Segments

EIGENVALUE_MARGIN = 1e-3
"""How far from 0 and 1 eigenvalues start: Slepian's come within 1e-11, where a sigmoid has no gradient."""


class AxisOperator(nn.Module):
    """One symmetric operator along an axis, with eigenvalues between 0 and 1."""

    def __init__(self, length: int, bandwidth: float) -> None:
        """Start as concentration on the band [-bandwidth / 2, bandwidth / 2].

        Args:
            length: tokens along the axis, n.
            bandwidth: share of all frequencies, over 0 to 1.
        """
        super().__init__()
        eigenvalues, vectors = torch.linalg.eigh(band_kernel(length, bandwidth))
        eigenvalues = eigenvalues.clamp(EIGENVALUE_MARGIN, 1 - EIGENVALUE_MARGIN)
        dtype = torch.get_default_dtype()
        self.theta = nn.Parameter(eigenvalues.logit().to(dtype))
        basis = nn.Linear(length, length, bias=False)
        # The Cayley map keeps the basis orthonormal through training; no penalty is needed.
        self.basis = orthogonal(basis, orthogonal_map="cayley")
        self.basis.weight = vectors.to(dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the operator, but keep it in fp32 or wider: its basis must stay orthonormal."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            is_narrow = moved.is_floating_point() and moved.itemsize < torch.float32.itemsize
            return tensor.to(moved.device, torch.float32) if is_narrow else moved

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def matrix(self) -> Tensor:
        """Return S, [n, n]."""
        u = cast(Tensor, self.basis.weight)
        return (u * self.theta.sigmoid()) @ u.mT


class Concentration(Mixer):
    """Mix the tokens of a grid of fixed size by a tensor product of axis operators."""

    def __init__(self, dim: int, *, shape: Sequence[int], bandwidth: float = 0.5) -> None:
        """Build one operator an axis and the value projection.

        Args:
            dim: width of the tokens, C.
            shape: the axes of the grid.
            bandwidth: share of all frequencies that passes at the start, over 0 to 1.

        Raises:
            UnsupportedError: if an axis is empty or the bandwidth not in (0, 1].
        """
        super().__init__()
        self.dim, self.shape = dim, tuple(int(size) for size in shape)
        if not self.shape or min(self.shape) < 1:
            raise UnsupportedError(f"concentration needs axes of 1 or more tokens, got {list(self.shape)}")
        if not 0 < bandwidth <= 1:
            raise UnsupportedError(f"the bandwidth must lie between 0 and 1, got {bandwidth}")
        self.axes = nn.ModuleList(AxisOperator(size, bandwidth) for size in self.shape)
        self.value = nn.Linear(dim, dim)

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor:
        """Mix the tokens of grids.

        Args:
            x: tokens, [B, n_1 * .. * n_r, C].
            segments: `Segments.grid` of the shape that the mixer was built for, or None.
            state: must be None.
            return_state: must be False.

        Returns:
            Outputs of the shape of `x`, 0 where a token is not valid.

        Raises:
            UnsupportedError: if a state, causality, a window or another grid is asked for.
            SegmentsError: if tokens and segments do not fit.
        """
        if state is not None or return_state:
            raise UnsupportedError("concentration has no state; use the mixer 'pom' to stream or to step")
        if segments is not None:
            if not segments.is_full:
                raise UnsupportedError("concentration is symmetric and cannot be causal; use the mixer 'pom'")
            if segments.window is not None or segments.grid_shape != self.shape:
                raise UnsupportedError(
                    f"this mixer was built for grids of {list(self.shape)} without a window, got {segments!r}"
                )
            segments.check(x)
            segments = segments.to(x.device)
        length = torch.Size(self.shape).numel()
        if x.ndim != 3 or x.shape[1] != length or x.shape[2] != self.dim:
            raise SegmentsError(f"this mixer takes tokens [B, {length}, {self.dim}], got {list(x.shape)}")
        y: Tensor = self.value(x) + self.concentrate(_hide(x, segments))
        return _hide(y, segments)

    def concentrate(self, x: Tensor) -> Tensor:
        """Apply the tensor product of the axis operators alone, [B, N, C] to [B, N, C]; a contraction."""
        y = x.view(-1, *self.shape, self.dim)
        for axis, operator in enumerate(self.axes, start=1):
            if not isinstance(operator, AxisOperator):
                raise TypeError("every axis has an AxisOperator")
            y = torch.tensordot(operator.matrix().to(y.dtype), y, dims=([1], [axis])).movedim(0, axis)
        return y.reshape(x.shape)


def band_kernel(length: int, bandwidth: float) -> Tensor:
    """Return the matrix that keeps the symmetric frequency band of a share `bandwidth`, float64, [n, n].

    sin(pi w D) / (pi D) of the distance D, and its limit w on the diagonal; the eigenvalues lie in [0, 1]
    and sum to n * w.
    """
    place = torch.arange(length, dtype=torch.float64)
    return bandwidth * torch.sinc(bandwidth * (place[:, None] - place))


def concentration_reference(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Apply the whole tensor product as one matrix, [N, C] to [N, C]; for tests on tiny grids."""
    whole = matrices[0]
    for matrix in matrices[1:]:
        whole = torch.kron(whole, matrix)
    return whole @ x


def _hide(x: Tensor, segments: Segments | None) -> Tensor:
    if segments is None or segments.valid is None:
        return x
    return torch.where(segments.valid.view(segments.shape)[..., None], x, 0.0)
