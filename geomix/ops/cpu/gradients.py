"""Back through the mixer, slice by slice: the chain rule of the equations in `reference.py`.

y_i = W_o g_i + b_o        g_i = s_i * H_i        H_i = C_i / n_i        C_i = sum of phi_j that i sees
dg = W_o^T dy        dH = dg * s        da = sigma'(dg * H)
dphi_j = sum of dH_i / n_i over the i that see j        dz = h'(phi'(dphi))
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.ops.cpu import lowrank
from geomix.ops.cpu.plan import Slice
from geomix.ops.cpu.projections import Projections, by_head
from geomix.ops.elementwise import polynomial_slope
from geomix.segments import Segments


class Gradients:
    """The gradients of one backward pass, gathered slice by slice."""

    def __init__(self, projections: Projections, dy: Tensor | None) -> None:
        """Start from zeros; `dy` is the gradient of the output, [T, C], or None where only sums are read."""
        self.projections, self.dy = projections, dy
        params, x, dtype = projections.params, projections.x, projections.dtype
        self.dx = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.dw_h, self.dcoeff, self.dw_s, self.db_s, self.dw_o = (
            x.new_zeros(weight.shape, dtype=dtype)
            for weight in (params.w_h, params.coeff, params.w_s, params.b_s, params.w_o)
        )

    def through_gate(self, part: Slice, mean: Tensor) -> Tensor:
        """Go back through the output projection and the gate of a slice.

        Args:
            part: the slice.
            mean: what its tokens read, [n, D], one row for each L / n tokens.

        Returns:
            The gradient of what the tokens read: one row per token, [L, D], or summed by block, [n, D].
        """
        if self.dy is None:
            raise ValueError("the gate has no gradient to go back through")
        work, rows = self.projections, slice(part.start, part.stop)
        x, dy, s = work.x[rows], self.dy[rows], work.gates(part)
        if work.is_low_rank(mean, part):
            ds, dmean = lowrank.backward(dy, s, mean, work.params.w_o, self.dw_o)
        else:
            ds, dmean = self._through_output(dy, s, mean)
        da = work.gate.backward_(ds, s)
        self.db_s += da.sum(0)
        da = da.to(x.dtype)
        _accumulate(self.dw_s, da.T, x)
        torch.mm(da, work.params.w_s, out=self.dx[rows])
        return dmean

    def _through_output(self, dy: Tensor, s: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the gates, [L, G], and of what each token reads, [L, D]."""
        work, groups, heads = self.projections, mean.shape[0], s.shape[1]
        _accumulate(self.dw_o, dy.T, work.gated(s, mean))
        dg = work.matmul(dy, work.params.w_o, "dg")
        product = by_head(work.like(dg, "g"), groups, heads)
        torch.mul(by_head(dg, groups, heads), by_head(mean, groups, heads), out=product)
        ds = product.reshape(dg.shape) if heads == dg.shape[1] else product.sum(-1).view(s.shape)
        by_head(dg, 1, heads).mul_(s.view(1, *s.shape, 1))
        return ds, dg

    def through_features(self, part: Slice, dphi: Tensor, segments: Segments) -> None:
        """Go back through the polynomial, the activation and the projection of a slice.

        Args:
            part: the slice.
            dphi: gradient of its features, [n, D], one row for each L / n tokens.
            segments: which tokens are valid.
        """
        work, tokens = self.projections, slice(part.start, part.stop)
        h, kept = work.activate(part)
        dh = polynomial_slope(h, work.coeff, out=work.like(h, "phi"))
        groups = dphi.shape[0]
        rows = dh.view(groups, -1, dh.shape[1]).mul_(dphi[:, None])
        power = torch.mul(h.view(rows.shape), dphi[:, None], out=work.like(h, "g").view(rows.shape)).view(
            h.shape
        )
        if segments.valid is not None:
            hidden = ~segments.valid[tokens, None]
            dh.masked_fill_(hidden, 0.0)
            power.masked_fill_(hidden, 0.0)
        for column in range(self.dcoeff.shape[1]):
            self.dcoeff[:, column] += power.sum(0)
            if column + 1 < self.dcoeff.shape[1]:
                power.mul_(h)
        dz = work.activation.backward_(dh, kept).to(work.x.dtype)
        _accumulate(self.dw_h, dz.T, work.x[tokens])
        self.dx[tokens].addmm_(dz, work.params.w_h)

    def result(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Return the gradients of the tokens and of each weight, in the weights' types."""
        params = self.projections.params
        db_o = None if params.b_o is None or self.dy is None else self.dy.sum(0).to(params.b_o.dtype)
        return (
            self.dx,
            self.dw_h.to(params.w_h.dtype),
            self.dcoeff.to(params.coeff.dtype),
            self.dw_s.to(params.w_s.dtype),
            self.db_s.to(params.b_s.dtype),
            self.dw_o.to(params.w_o.dtype),
            db_o,
        )


def _accumulate(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to a running total, which may be of a wider type."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
