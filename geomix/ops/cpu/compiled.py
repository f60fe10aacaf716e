"""The mixer in slices as operators of torch: `torch.compile` takes them whole, in inference and in training.

Segments travel as tensors and numbers. Outside the compiler `op.mix` is called directly: it shares the tables
that segments keep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor
from torch.library import custom_op

from geomix.ops.cpu import op
from geomix.ops.params import MixerFunctions, MixerParams, sum_dtype
from geomix.segments import Segments

# mypy: disable-error-code="no-untyped-call"

_TENSORS = (
    "Tensor x, Tensor w_h, Tensor coeff, Tensor w_s, Tensor b_s, Tensor w_o, Tensor? b_o, "
    "Tensor? initial_sum, Tensor? initial_count, Tensor cu_seqlens, Tensor cu_blocks, Tensor? valid, "
    "Tensor? mask"
)
_TENSORS_COUNT = 13
_NUMBERS = (
    "bool is_causal, bool is_full, SymInt[] shape, SymInt[]? grid_shape, SymInt[]? window, "
    "SymInt? block_length, str activation, str gate, str normalize"
)
_NUMBERS_COUNT = 9


class _Call(NamedTuple):
    """One call of the mixer, put together from the arguments of an operator."""

    x: Tensor
    params: MixerParams
    segments: Segments
    functions: MixerFunctions
    initial_sum: Tensor | None = None
    initial_count: Tensor | None = None

    @classmethod
    def of(cls, arguments: tuple[Any, ...]) -> _Call:
        """Put the arguments together that `apart` returns."""
        x, *weights, total, count, cu_seqlens, cu_blocks, valid, mask = arguments[:_TENSORS_COUNT]
        is_causal, is_full, shape, grid_shape, window, block_length, *names = arguments[_TENSORS_COUNT:]
        segments = Segments(
            cu_seqlens,
            cu_blocks,
            is_causal=is_causal,
            is_full=is_full,
            shape=tuple(shape),
            valid=valid,
            grid_shape=None if grid_shape is None else tuple(grid_shape),
            window=None if window is None else tuple(window),
            block_length=block_length,
        )
        segments.mask = mask
        return cls(x, MixerParams(*weights), segments, MixerFunctions(*names), total, count)

    def apart(self) -> tuple[Any, ...]:
        """Take the call apart into tensors and numbers, in the order of the operators."""
        s = self.segments
        tables = (s.cu_seqlens, s.cu_blocks, s.valid, s.mask)
        tensors = (*self.params, self.initial_sum, self.initial_count, *tables)
        numbers = (s.is_causal, s.is_full, s.shape, s.grid_shape, s.window, s.block_length)
        return (self.x, *tensors, *numbers, *self.functions)


def mix(
    x: Tensor,
    params: MixerParams,
    segments: Segments,
    functions: MixerFunctions,
    initial_sum: Tensor | None = None,
    initial_count: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute what `reference.mix` computes; same arguments and results."""
    y, total = _mix(*_Call(x, params, segments, functions, initial_sum, initial_count).apart())
    return y, total


def observe(x: Tensor, params: MixerParams, segments: Segments, functions: MixerFunctions) -> Tensor:
    """Sum the features of each sequence without reading them: [sequences, D]."""
    total: Tensor = _observe(*_Call(x, params, segments, functions).apart())
    return total


@custom_op("geomix::mix_in_slices", mutates_args=(), schema=f"({_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor)")
def _mix(*arguments: Any) -> tuple[Tensor, Tensor]:
    return op.mix(*_Call.of(arguments))


@_mix.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    return arguments[0].new_empty(arguments[0].shape), _fake_sum(*arguments)


@custom_op(
    "geomix::mix_in_slices_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor dtotal, {_TENSORS}, {_NUMBERS}) -> Tensor[]",
)
def _mix_backward(dy: Tensor, dtotal: Tensor, *arguments: Any) -> list[Tensor]:
    """Return the gradients of the tokens, of each weight that there is, and of the sum seen before."""
    grads, dinitial = op.mix_backward(dy, dtotal, *_Call.of(arguments))
    return [*(grad for grad in grads if grad is not None), dinitial]


@_mix_backward.register_fake
def _(dy: Tensor, dtotal: Tensor, *arguments: Any) -> list[Tensor]:
    like = [tensor for tensor in arguments[:7] if tensor is not None]
    return [*(tensor.new_empty(tensor.shape) for tensor in like), _fake_sum(*arguments)]


@custom_op("geomix::observe_in_slices", mutates_args=(), schema=f"({_TENSORS}, {_NUMBERS}) -> Tensor")
def _observe(*arguments: Any) -> Tensor:
    return op.observe(*_Call.of(arguments)[:4])


@_observe.register_fake
def _(*arguments: Any) -> Tensor:
    return _fake_sum(*arguments)


@custom_op(
    "geomix::observe_in_slices_backward",
    mutates_args=(),
    schema=f"(Tensor dtotal, {_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor, Tensor)",
)
def _observe_backward(dtotal: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the tokens, of `w_h` and of the coefficients."""
    x, params, segments, functions, *_ = _Call.of(arguments)
    return op.observe_backward(dtotal, x, params.w_h, params.coeff, segments, functions)


@_observe_backward.register_fake
def _(dtotal: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, w_h, coeff = (tensor.new_empty(tensor.shape) for tensor in arguments[:3])
    return x, w_h, coeff


def _fake_sum(x: Tensor, w_h: Tensor, *rest: Any) -> Tensor:
    sequences = rest[7].shape[0] - 1
    return x.new_empty(sequences, w_h.shape[0], dtype=sum_dtype(x.dtype))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS_COUNT])
    ctx.numbers = inputs[_TENSORS_COUNT:]


def _mix_gradients(ctx: Any, dy: Tensor, dtotal: Tensor) -> tuple[Any, ...]:
    grads = iter(_mix_backward(dy, dtotal, *ctx.saved_tensors, *ctx.numbers))
    of_tensors = [None if tensor is None else next(grads) for tensor in ctx.saved_tensors[:8]]
    return (*of_tensors, *(None,) * (_TENSORS_COUNT - 8 + _NUMBERS_COUNT))


def _observe_gradients(ctx: Any, dtotal: Tensor) -> tuple[Any, ...]:
    grads = _observe_backward(dtotal, *ctx.saved_tensors, *ctx.numbers)
    return (*grads, *(None,) * (_TENSORS_COUNT - 3 + _NUMBERS_COUNT))


_mix.register_autograd(_mix_gradients, setup_context=_save)
_observe.register_autograd(_observe_gradients, setup_context=_save)
