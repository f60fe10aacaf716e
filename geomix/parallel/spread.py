"""One scene over several processes: each holds a run of tokens of every sequence, all see all of them.

    torchrun --nproc-per-node 2 script.py

    torch.distributed.init_process_group()
    model = spread(model)                 # the mixers now reach across the processes
    y = model(x_of_this_rank, segments_of_this_rank)
    loss_of_this_rank.backward()
    sum_gradients(model)

Ranks stand in the order of the tokens. A state is a sum, so all that travels is one all-reduce of
[sequences, D] a layer and a direction; in causal and block-causal mode one all-gather of the same, of which a
rank adds up what lies before it. Only in full mode may a block reach from one rank to the next.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from geomix.errors import UnsupportedError
from geomix.mixers import MIXERS, PoM, State
from geomix.segments import Segments

M = TypeVar("M", bound=nn.Module)
_LIMB = 1 << 14
"""Counts travel with the sums as two numbers that fp32 adds exactly over up to 1,024 ranks."""


def spread(model: M, group: ProcessGroup | None = None) -> M:
    """Return the model with mixers that see the tokens of all ranks of a group; weights are shared with it.

    Everything else in the model must work on one token at a time, as norms and MLPs do.

    Args:
        model: a `PoM`, or a module that holds some, such as an `Encoder`. Its own mixers stay as they are.
        group: the processes; None: all of them.

    Raises:
        UnsupportedError: if the model holds a mixer of another kind, or one with rotary positions.
    """
    if isinstance(model, PoM):
        return SpreadPoM(model, group)  # type: ignore[return-value]
    if isinstance(model, tuple(kind for kind in MIXERS.values() if isinstance(kind, type))):
        raise UnsupportedError(
            f"{type(model).__name__} cannot be spread over processes: only a PoM's state adds up"
        )
    twin = copy.copy(model)
    twin._modules = {name: child and spread(child, group) for name, child in model._modules.items()}
    return twin


def sum_gradients(model: nn.Module, group: ProcessGroup | None = None) -> None:
    """Add up the gradients of all ranks in place: each had only the loss of its own tokens."""
    for weight in model.parameters():
        if weight.grad is not None:
            dist.all_reduce(weight.grad, group=group)


class SpreadPoM(PoM):
    """A polynomial mixer whose tokens lie on several ranks; built by `spread`."""

    def __init__(self, pom: PoM, group: ProcessGroup | None) -> None:
        """Share the weights of `pom`."""
        if pom.rotary:
            raise UnsupportedError("a mixer with rotary positions cannot be spread over processes")
        nn.Module.__init__(self)
        self.__dict__.update(pom.__dict__)
        self.group = group

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        """Mix the tokens of this rank with those of all ranks; arguments and results as in `PoM`.

        A state, given or returned, is that of all ranks and the same on each.
        """
        segments = self._segments(x, segments)
        own = super().observe(x, segments)
        if segments.is_full:
            everyone = _everyone(own, self.group)
            known = everyone if state is None else state.merge(everyone)
            y = self.read(x, known, segments)
            return (y, known) if return_state else y
        earlier, everyone = _earlier(own, self.group)
        known = earlier if state is None else state.merge(earlier)
        y = super().forward(x, segments, state=known)
        return (y, everyone if state is None else state.merge(everyone)) if return_state else y

    def observe(self, x: Tensor, segments: Segments | None = None) -> State:
        """Sum up the tokens of all ranks without reading them; the state is the same on each."""
        return _everyone(super().observe(x, segments), self.group)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Refuse: a sequence that grows token by token lies in one place."""
        raise UnsupportedError("a mixer that is spread over processes cannot step token by token")


def _everyone(own: State, group: ProcessGroup | None) -> State:
    """The state of the tokens of all ranks."""
    return _unpack(_AllReduce.apply(_pack(own), group))  # type: ignore[no-untyped-call]


def _earlier(own: State, group: ProcessGroup | None) -> tuple[State, State]:
    """The states of the tokens of all ranks before this one, and of all ranks."""
    every = _AllGather.apply(_pack(own), group)  # type: ignore[no-untyped-call]
    rank = dist.get_rank(group)
    return _unpack(every[:rank].sum(0)), _unpack(every.sum(0))


def _pack(state: State) -> Tensor:
    """Put sums and counts side by side, [sequences, D + 2]."""
    count = torch.stack([state.count // _LIMB, state.count % _LIMB], 1)
    return torch.cat([state.sum, count.to(state.sum.dtype)], 1)


def _unpack(packed: Tensor) -> State:
    count = packed[:, -2:].detach().to(torch.int64)
    return State(packed[:, :-2], count[:, 0] * _LIMB + count[:, 1])


class _AllReduce(torch.autograd.Function):
    """Sum over ranks; what comes back is summed too, for each rank's part went to all of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _AllGather(torch.autograd.Function):
    """Stack over ranks, [ranks, ...]; this rank's part of the gradient is that of all ranks, summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad[dist.get_rank(ctx.group)], None
