"""The Polynomial Mixer slice by slice: a few matrix products, everything else in the cache.

Forward and backward walk the tokens in slices. The tokens and what their blocks read are kept for the
backward pass; projections are computed again. Memory beyond input and output is one slice of features, one
row per chunk of tokens and one per block.

The equations are those of `reference.py`, those of the backward pass stand in `gradients.py`. Data run
straight down: `plan` cuts the tokens, `projections` computes features and gates of a slice, `context` turns
features into what each token reads, with the ordered `sums`; `lowrank` is the short way out for few gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.ops.cpu import lowrank
from geomix.ops.cpu.context import Context, Initial, context_of
from geomix.ops.cpu.gradients import Gradients
from geomix.ops.cpu.projections import Projections
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype
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
        ctx.save_for_backward(x, *params, initial_sum, initial_count)
        ctx.segments, ctx.functions = segments, functions
        context, projections = _start(x, params, segments, functions, _initial(initial_sum, initial_count))
        y, total = _mix(context, projections)
        ctx.context = context
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights, initial_sum, _ = ctx.saved_tensors
        params = MixerParams(*weights)
        projections = Projections(x, params, ctx.functions, ctx.context.slices)
        grads, dinitial = _mix_backward(dy, dtotal, ctx.context, projections)
        return (*grads, None if initial_sum is None else dinitial, None, None, None)


class _Observe(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_h: Tensor, coeff: Tensor, segments: Segments, functions: MixerFunctions
    ) -> Tensor:
        ctx.save_for_backward(x, w_h, coeff)
        ctx.segments, ctx.functions = segments, functions
        return _observe(x, w_h, coeff, segments, functions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        x, w_h, coeff = ctx.saved_tensors
        grads = observe_backward(dtotal, x, w_h, coeff, ctx.segments, ctx.functions)
        return (*grads, None, None)


def _mix(context: Context, projections: Projections) -> tuple[Tensor, Tensor]:
    total = _gather(context, projections)
    x, params, valid = projections.x, projections.params, context.segments.valid
    y = x.new_empty(x.shape)
    for part in context.slices:
        mean = context.mean(part, projections.features(part) if context.needs_features else None)
        s, out = projections.gates(part), y[part.start : part.stop]
        if projections.is_low_rank(mean, part):
            out.copy_(lowrank.forward(s, mean, params.w_o))
        else:
            torch.mm(projections.gated(s, mean), params.w_o.T, out=out)
        if params.b_o is not None:
            out += params.b_o
    if valid is not None:
        y.masked_fill_(~valid[:, None], 0.0)
    return y, total


def mix_backward(
    dy: Tensor,
    dtotal: Tensor,
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[tuple[Tensor | None, ...], Tensor]:
    """Go back through `mix`, computing features and gates again.

    Args:
        dy: gradient of the outputs, [T, C].
        dtotal: gradient of the sum of each sequence, [sequences, D].
        x: as in `mix`, and so are the other arguments.

    Returns:
        The gradients of tokens and weights, None for a bias that is not there, and that of `initial_sum`.
    """
    initial = _initial(initial_sum, initial_count)
    context, projections = _start(x, params, segments, functions, initial)
    _gather(context, projections)
    return _mix_backward(dy, dtotal, context, projections)


def _mix_backward(
    dy: Tensor, dtotal: Tensor, context: Context, projections: Projections
) -> tuple[tuple[Tensor | None, ...], Tensor]:
    """Go back through `_mix` with the context that it has closed."""
    segments = context.segments
    if segments.valid is not None:
        dy = dy.masked_fill(~segments.valid[:, None], 0.0)
    grads = Gradients(projections, dy)
    for part in context.slices:
        mean = context.mean(part, projections.features(part) if context.needs_features else None)
        context.add_grad(part, grads.through_gate(part, mean))
    dinitial = context.close_grad(dtotal)
    for part in context.slices:
        grads.through_features(part, context.grad(part), segments)
    context.forget_grad()
    return grads.result(), dinitial


def _observe(x: Tensor, w_h: Tensor, coeff: Tensor, segments: Segments, functions: MixerFunctions) -> Tensor:
    return _gather(*_start(x, _gateless(w_h, coeff), segments, functions, None))


def observe_backward(
    dtotal: Tensor, x: Tensor, w_h: Tensor, coeff: Tensor, segments: Segments, functions: MixerFunctions
) -> tuple[Tensor, Tensor, Tensor]:
    """Go back through `observe`: return the gradients of tokens, `w_h` and `coeff`.

    Args:
        dtotal: gradient of the sum of each sequence, [sequences, D].
        x: as in `mix`, and so are the other arguments.
    """
    context, projections = _start(x, _gateless(w_h, coeff), segments, functions, None)
    grads = Gradients(projections, None)
    grads.dx.zero_()
    for part in context.slices:
        rows = dtotal[segments.sequence_of_token[part.start : part.stop]]
        grads.through_features(part, rows, segments)
    dx, dw_h, dcoeff, *_ = grads.result()
    return dx, dw_h, dcoeff


def _start(
    x: Tensor, params: MixerParams, segments: Segments, functions: MixerFunctions, initial: Initial | None
) -> tuple[Context, Projections]:
    width, dtype = params.w_h.shape[0], sum_dtype(x.dtype)
    context = context_of(segments, width, dtype, initial, functions.normalize)
    return context, Projections(x, params, functions, context.slices)


def _gather(context: Context, projections: Projections) -> Tensor:
    """Let the context see the features of all slices; return the sum of each sequence."""
    if context.needs_sums:
        for part in context.slices:
            h, _ = projections.activate(part)
            context.add(part, h, projections.coeff, projections.like(h, "phi"))
    return context.close()


def _initial(total: Tensor | None, count: Tensor | None) -> Initial | None:
    return None if total is None or count is None else Initial(total, count)


def _gateless(w_h: Tensor, coeff: Tensor) -> MixerParams:
    """Return the weights of a pass that needs no gate."""
    empty = w_h.new_empty(0, w_h.shape[1])
    return MixerParams(w_h, coeff, empty, empty.new_empty(0), empty.T)
