"""The Polynomial Mixer slice by slice: a few matrix products, everything else in the cache.

Forward and backward walk the tokens in slices. Only the tokens are saved for the backward pass; projections
are computed again. Memory beyond input and output is one slice of features and one row a chunk of tokens.
The equations are those of `reference.py`, the backward that of the chain rule:

    y_i = W_o g_i + b_o        g_i = s_i * H_i        H_i = C_i / n_i        C_i = sum of phi_j that i sees
    dg = W_o^T dy        dH = dg * s        da = sigma'(dg * H)
    dphi_j = sum of dH_i / n_i over the i that see j        dz = h'(phi'(dphi))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.ops import lowrank
from geomix.ops.context import Initial, Slice, make_context
from geomix.ops.functions import polynomial_slope
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype
from geomix.ops.slicework import SliceWork, by_head
from geomix.segments import Segments


def mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute what `reference.mix` computes, in slices; same arguments and results."""
    y, total = _Mix.apply(x, *params, initial_sum, initial_count, segments, functions)  # type: ignore[no-untyped-call]
    return y, total


def observe(x: Tensor, params: MixerParams, segments: Segments, functions: MixerFunctions) -> Tensor:
    """Sum the features of each sequence without reading them: [sequences, D]; differentiable."""
    total: Tensor = _Observe.apply(x, params.w_h, params.coeff, segments, functions)  # type: ignore[no-untyped-call]
    return total


def _gather(work: SliceWork, context: Any) -> Tensor:
    """Let the context see the features of all slices; return the sum of each sequence."""
    if context.needs_sums:
        for part in context.slices:
            context.add(part, work.powers(part), work.coeff)
    total: Tensor = context.close()
    return total


def _run_forward(work: SliceWork, context: Any, y: Tensor) -> Tensor:
    total = _gather(work, context)
    b_o = work.params.b_o
    for part in context.slices:
        mean = context.mean(part, work.features(part) if context.needs_features else None)
        s, out = work.gates(part), y[part.start : part.stop]
        if work.is_low_rank(mean, part):
            out.copy_(lowrank.forward(s, mean, work.params.w_o))
        else:
            torch.mm(work.gated(s, mean), work.params.w_o.T, out=out)
        if b_o is not None:
            out += b_o
    return total


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w_h: Tensor,
        coeff: Tensor,
        w_s: Tensor,
        b_s: Tensor,
        w_o: Tensor,
        b_o: Tensor | None,
        initial_sum: Tensor | None,
        initial_count: Tensor | None,
        segments: Segments,
        functions: MixerFunctions,
    ) -> tuple[Tensor, Tensor]:
        params = MixerParams(w_h, coeff, w_s, b_s, w_o, b_o)
        context = _context(x, params, segments, functions, initial_sum, initial_count)
        work = SliceWork(x, params, functions, max((part.length for part in context.slices), default=0))
        y = x.new_empty(x.shape)
        total = _run_forward(work, context, y)
        if segments.valid is not None:
            y.masked_fill_(~segments.valid[:, None], 0.0)
        ctx.save_for_backward(x, *params, initial_sum, initial_count)
        ctx.segments, ctx.functions = segments, functions
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        x, w_h, coeff, w_s, b_s, w_o, b_o, initial_sum, initial_count = ctx.saved_tensors
        params = MixerParams(w_h, coeff, w_s, b_s, w_o, b_o)
        segments: Segments = ctx.segments
        context = _context(x, params, segments, ctx.functions, initial_sum, initial_count)
        work = SliceWork(x, params, ctx.functions, max((part.length for part in context.slices), default=0))
        if segments.valid is not None:
            dy = dy.masked_fill(~segments.valid[:, None], 0.0)
        grads = _Gradients(work, dy)
        _gather(work, context)
        for part in context.slices:
            grads.through_gate(part, context)
        dinitial = context.close_grad(dtotal)
        for part in context.slices:
            grads.through_features(part, context.grad(part), segments)
        if initial_sum is None:
            dinitial = None
        return (*grads.result(), dinitial, None, None, None)


def _context(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None,
    initial_count: Tensor | None,
) -> Any:
    initial = None if initial_sum is None or initial_count is None else Initial(initial_sum, initial_count)
    return make_context(segments, params.w_h.shape[0], sum_dtype(x.dtype), initial, functions.normalize)


class _Gradients:
    """The gradients of one backward pass, gathered slice by slice."""

    def __init__(self, work: SliceWork, dy: Tensor | None) -> None:
        self.work, self.dy = work, dy
        params, zeros = work.params, work.x.new_zeros
        self.dx = torch.empty_like(work.x, memory_format=torch.contiguous_format)
        self.dw_h, self.dw_s, self.dw_o = (
            zeros(w.shape, dtype=work.dtype) for w in (params.w_h, params.w_s, params.w_o)
        )
        self.dcoeff, self.db_s = (
            zeros(params.coeff.shape, dtype=work.dtype),
            zeros(params.b_s.shape, dtype=work.dtype),
        )

    def through_gate(self, part: Slice, context: Any) -> None:
        """Go back through the output projection and the gate of a slice."""
        if self.dy is None:
            raise ValueError("the gate has no gradient to go back through")
        work, x, dy = self.work, self.work.x[part.start : part.stop], self.dy[part.start : part.stop]
        mean = context.mean(part, work.features(part) if context.needs_features else None)
        s = work.gates(part)
        if work.is_low_rank(mean, part):
            ds, dmean = lowrank.backward(dy, s, mean, work.params.w_o, self.dw_o)
        else:
            ds, dmean = self._through_output(dy, s, mean)
        context.add_grad(part, dmean)
        da = work.gate.backward_(ds, s)
        self.db_s += da.sum(0)
        da = da.to(x.dtype)
        _accumulate(self.dw_s, da.T, x)
        torch.mm(da, work.params.w_s, out=self.dx[part.start : part.stop])

    def _through_output(self, dy: Tensor, s: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the gates, [L, G], and of what each token reads, [L, D]."""
        work, groups, heads = self.work, mean.shape[0], s.shape[1]
        _accumulate(self.dw_o, dy.T, work.gated(s, mean))
        dg = work.matmul(dy, work.params.w_o, "dg")
        product = by_head(work.buffer("g", *dg.shape), groups, heads)
        torch.mul(by_head(dg, groups, heads), by_head(mean, groups, heads), out=product)
        ds = product.reshape(dg.shape) if heads == dg.shape[1] else product.sum(-1).view(s.shape)
        by_head(dg, 1, heads).mul_(s.view(1, *s.shape, 1))
        return ds, dg

    def through_features(self, part: Slice, dphi: Tensor, segments: Segments) -> None:
        """Go back through the polynomial, the activation and the projection of a slice."""
        work, x = self.work, self.work.x[part.start : part.stop]
        h, kept = work.activate(part)
        dh = polynomial_slope(h, work.coeff, out=work.buffer("phi", *h.shape))
        groups = dphi.shape[0]
        rows = dh.view(groups, -1, dh.shape[1]).mul_(dphi[:, None])
        power = torch.mul(
            h.view(rows.shape), dphi[:, None], out=work.buffer("g", *h.shape).view(rows.shape)
        ).view(h.shape)
        if segments.valid is not None:
            hidden = ~segments.valid[part.start : part.stop, None]
            dh.masked_fill_(hidden, 0.0)
            power.masked_fill_(hidden, 0.0)
        for column in range(self.dcoeff.shape[1]):
            self.dcoeff[:, column] += power.sum(0)
            if column + 1 < self.dcoeff.shape[1]:
                power.mul_(h)
        dz = work.activation.backward_(dh, kept).to(x.dtype)
        _accumulate(self.dw_h, dz.T, x)
        self.dx[part.start : part.stop].addmm_(dz, work.params.w_h)

    def result(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tokens and of each weight, in the weights' types."""
        params = self.work.params
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


class _Observe(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_h: Tensor, coeff: Tensor, segments: Segments, functions: MixerFunctions
    ) -> Tensor:
        ctx.save_for_backward(x, w_h, coeff)
        ctx.segments, ctx.functions = segments, functions
        context, work = _observing(x, w_h, coeff, segments, functions)
        return _gather(work, context)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        x, w_h, coeff = ctx.saved_tensors
        context, work = _observing(x, w_h, coeff, ctx.segments, ctx.functions)
        grads = _Gradients(work, None)
        grads.dx.zero_()
        for part in context.slices:
            rows = dtotal[ctx.segments.sequence_of_token[part.start : part.stop]]
            grads.through_features(part, rows, ctx.segments)
        dx, dw_h, dcoeff, *_ = grads.result()
        return dx, dw_h, dcoeff, None, None


def _observing(
    x: Tensor, w_h: Tensor, coeff: Tensor, segments: Segments, functions: MixerFunctions
) -> tuple[Any, SliceWork]:
    """Prepare a pass that needs no gate."""
    empty = w_h.new_empty(0, x.shape[1])
    params = MixerParams(w_h, coeff, empty, empty.new_empty(0), empty.new_empty(x.shape[1], 0))
    context = _context(x, params, segments, functions, None, None)
    return context, SliceWork(x, params, functions, max((part.length for part in context.slices), default=0))
