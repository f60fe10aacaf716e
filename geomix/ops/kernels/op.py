"""The kernels as operators of torch: known to autograd, to torch.compile and to its shapes of any length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from geomix.ops.kernels import launch
from geomix.ops.kernels.launch import Tokens
from geomix.ops.kernels.plan import SEQUENCE, plan_for
from geomix.ops.params import MixerFunctions, MixerParams
from geomix.segments import Segments

# mypy: disable-error-code="no-untyped-call"


def mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute what `reference.mix` computes; same arguments and results, sums in fp32."""
    width, heads = params.w_h.shape[0], params.w_s.shape[0]
    if launch.head_columns(width // heads) is None:
        # Heads of such a width do not fill tiles: give each channel its head's gate.
        w_s, b_s = (weight.repeat_interleave(width // heads, 0) for weight in (params.w_s, params.b_s))
        params = params._replace(w_s=w_s, b_s=b_s)
    plan = plan_for(segments)
    y, total, _ = _mix(
        x,
        *_contiguous(params),
        None if initial_sum is None else initial_sum.float().contiguous(),
        initial_count if initial_sum is not None else None,
        plan.slots,
        plan.targets,
        plan.cu_chunks,
        _bytes(segments.valid),
        plan.rows,
        segments.is_causal,
        *functions,
    )
    return y, total


def observe(x: Tensor, params: MixerParams, segments: Segments, functions: MixerFunctions) -> Tensor:
    """Sum the features of each sequence over its valid tokens, fp32, [sequences, D]."""
    plan = plan_for(segments)
    total: Tensor = _observe(
        x,
        params.w_h.contiguous(),
        params.coeff.contiguous(),
        plan.slots,
        plan.cu_chunks,
        _bytes(segments.valid),
        plan.targets.shape[1],
        functions.activation,
    )
    return total


def _contiguous(params: MixerParams) -> MixerParams:
    return MixerParams(*(None if weight is None else weight.contiguous() for weight in params))  # type: ignore[arg-type]


def _bytes(valid: Tensor | None) -> Tensor | None:
    return None if valid is None else valid.view(torch.uint8)


@custom_op("geomix::mix", mutates_args=())
def _mix(
    x: Tensor,
    w_h: Tensor,
    coeff: Tensor,
    w_s: Tensor,
    b_s: Tensor,
    w_o: Tensor,
    b_o: Tensor | None,
    initial_sum: Tensor | None,
    initial_count: Tensor | None,
    slots: Tensor,
    targets: Tensor,
    cu_chunks: Tensor,
    valid: Tensor | None,
    rows: int,
    causal: bool,
    activation: str,
    gate: str,
    normalize: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs [T, C], sums [sequences, D], and the context for the backward pass, [rows, D]."""
    params, functions = (
        MixerParams(w_h, coeff, w_s, b_s, w_o, b_o),
        MixerFunctions(activation, gate, normalize),
    )
    tokens = Tokens(x, slots, cu_chunks, targets.shape[1], valid)
    with torch.cuda.device_of(x):
        sums = launch.sum_by_chunk(tokens, w_h, coeff, activation)
        context, total = launch.scan(tokens, sums, targets[0], initial_sum, rows, reverse=False, shift=causal)
        y = launch.put_out(tokens, params, functions, context, initial_count, causal=causal)
    return y, total, context


@_mix.register_fake
def _(x: Tensor, w_h: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    cu_chunks, rows, width = rest[9], rest[11], w_h.shape[0]
    total = x.new_empty(cu_chunks.shape[0] - 1, width, dtype=torch.float32)
    return x.new_empty(x.shape), total, x.new_empty(rows, width, dtype=torch.float32)


@custom_op("geomix::mix_backward", mutates_args=())
def _mix_backward(
    dy: Tensor,
    dtotal: Tensor | None,
    x: Tensor,
    w_h: Tensor,
    coeff: Tensor,
    w_s: Tensor,
    b_s: Tensor,
    w_o: Tensor,
    b_o: Tensor | None,
    initial_count: Tensor | None,
    context: Tensor,
    slots: Tensor,
    targets: Tensor,
    cu_chunks: Tensor,
    valid: Tensor | None,
    causal: bool,
    activation: str,
    gate: str,
    normalize: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return dx, [dw_s; dw_h] as one matrix, dw_o, [db_s, dcoeff, db_o] in one row, and that of the state."""
    params, functions = (
        MixerParams(w_h, coeff, w_s, b_s, w_o, b_o),
        MixerFunctions(activation, gate, normalize),
    )
    tokens = Tokens(x, slots, cu_chunks, targets.shape[1], valid)
    heads = w_s.shape[0]
    with torch.cuda.device_of(x):
        gates = launch.backward_gate(tokens, params, functions, dy, context, initial_count, causal=causal)
        drows, dinitial = launch.scan(
            tokens, gates.sums, targets[1], dtotal, context.shape[0], reverse=True, shift=causal
        )
        launch.backward_features(
            tokens, w_h, coeff, activation, drows, gates.both[:, heads:], gates.partial[:, heads:],
            causal=causal,
        )  # fmt: skip
        dx = launch.backward_input(gates.both, w_s, w_h)
        live = dy if valid is None else dy.masked_fill(valid[:, None] == 0, 0.0)
        return dx, gates.both.T @ x, live.T @ gates.g, gates.partial.sum(0), dinitial


@_mix_backward.register_fake
def _(
    dy: Tensor, dtotal: Tensor | None, x: Tensor, w_h: Tensor, coeff: Tensor, w_s: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    w_o, b_o, cu_chunks = rest[1], rest[2], rest[7]
    width, heads = w_h.shape[0], w_s.shape[0]
    row = heads + coeff.numel() + (0 if b_o is None else b_o.numel())
    return (
        x.new_empty(x.shape),
        x.new_empty(heads + width, x.shape[1]),
        x.new_empty(w_o.shape),
        x.new_empty(row, dtype=torch.float32),
        x.new_empty(cu_chunks.shape[0] - 1, width, dtype=torch.float32),
    )


def _save_mix(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, w_h, coeff, w_s, b_s, w_o, b_o, _, count, slots, targets, cu_chunks, valid, _, *names = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(
        x, w_h, coeff, w_s, b_s, w_o, b_o, count, output[2], slots, targets, cu_chunks, valid
    )
    ctx.names, ctx.has_initial = names, inputs[7] is not None


def _mix_gradients(ctx: Any, dy: Tensor | None, dtotal: Tensor | None, _: Any) -> tuple[Any, ...]:
    x, _, coeff, w_s, b_s, _, b_o = ctx.saved_tensors[:7]
    dy = torch.zeros_like(x) if dy is None else dy if dy.stride(1) == 1 else dy.contiguous()
    dtotal = None if dtotal is None else dtotal.contiguous()
    dx, both, dw_o, row, dinitial = _mix_backward(dy, dtotal, *ctx.saved_tensors, *ctx.names)
    heads, end = w_s.shape[0], w_s.shape[0] + coeff.numel()
    return (
        dx,
        both[heads:],
        row[heads:end].view(coeff.shape).to(coeff.dtype),
        both[:heads],
        row[:heads].to(b_s.dtype),
        dw_o,
        None if b_o is None else row[end:].to(b_o.dtype),
        dinitial if ctx.has_initial else None,
        *(None,) * 10,
    )


_mix.register_autograd(_mix_gradients, setup_context=_save_mix)


@custom_op("geomix::observe", mutates_args=())
def _observe(
    x: Tensor,
    w_h: Tensor,
    coeff: Tensor,
    slots: Tensor,
    cu_chunks: Tensor,
    valid: Tensor | None,
    chunks: int,
    activation: str,
) -> Tensor:
    tokens = Tokens(x, slots, cu_chunks, chunks, valid)
    with torch.cuda.device_of(x):
        sums = launch.sum_by_chunk(tokens, w_h, coeff, activation)
        return launch.sum_by_sequence(tokens, sums)


@_observe.register_fake
def _(x: Tensor, w_h: Tensor, coeff: Tensor, slots: Tensor, cu_chunks: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(cu_chunks.shape[0] - 1, w_h.shape[0], dtype=torch.float32)


@custom_op("geomix::observe_backward", mutates_args=())
def _observe_backward(
    dtotal: Tensor,
    x: Tensor,
    w_h: Tensor,
    coeff: Tensor,
    slots: Tensor,
    cu_chunks: Tensor,
    valid: Tensor | None,
    chunks: int,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    tokens = Tokens(x, slots, cu_chunks, chunks, valid)
    dz = x.new_empty(x.shape[0], w_h.shape[0])
    partial = x.new_empty(tokens.tiles, coeff.numel(), dtype=torch.float32)
    with torch.cuda.device_of(x):
        launch.backward_features(
            tokens, w_h, coeff, activation, dtotal, dz, partial, causal=False, field=SEQUENCE
        )
        return dz @ w_h, dz.T @ x, partial.sum(0).view(coeff.shape)


@_observe_backward.register_fake
def _(dtotal: Tensor, x: Tensor, w_h: Tensor, coeff: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape), x.new_empty(w_h.shape), x.new_empty(coeff.shape, dtype=torch.float32)


def _save_observe(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, chunks, activation = inputs
    ctx.save_for_backward(*tensors)
    ctx.rest = (chunks, activation)


def _observe_gradients(ctx: Any, dtotal: Tensor) -> tuple[Any, ...]:
    dx, dw_h, dcoeff = _observe_backward(dtotal.contiguous(), *ctx.saved_tensors, *ctx.rest)
    return dx, dw_h, dcoeff.to(ctx.saved_tensors[2].dtype), *(None,) * 5


_observe.register_autograd(_observe_gradients, setup_context=_save_observe)
