"""The states of many places or maps at once: parts of them, and runs of dates as blocks."""

from typing import cast

import torch
from torch import Tensor, nn

from geomix import Encoder, Segments
from geomix.encoder import Block
from geomix.mixers import State


def rows_of(state: tuple[State, ...], part: slice) -> tuple[State, ...]:
    """The states of some places."""
    return tuple(State(one.total[part], one.count[part]) for one in state)


def joined(states: tuple[State, ...]) -> State:
    """One state of the places of several."""
    if len(states) == 1:
        return states[0]
    return State(torch.cat([one.total for one in states]), torch.cat([one.count for one in states]))


def read_through(spatial: Encoder, maps: Tensor, known: tuple[State, ...], part: slice) -> Tensor:
    """Maps after as many spatial blocks as there are states, which they read."""
    for block, state in zip(spatial.blocks, rows_of(known, part), strict=False):
        maps = cast(Block, block).read(maps, state)
    return maps


def is_summable(block: nn.Module) -> bool:
    """Whether the mixer of a block can sum tokens up apart from reading them."""
    return cast(Block, block).mixer.can_observe


def blocks_of_days(seen: Tensor, days: Tensor, classes: int) -> Segments:
    """One block a day and one for the class tokens, of the valid tokens packed; days must not fall.

    Args:
        seen: which date tokens exist, [S, T].
        days: their days, [S, T].
        classes: number of class tokens after the dates of each place.
    """
    opens = torch.nn.functional.pad(days[:, 1:] != days[:, :-1], (1, 0), value=True)
    block = opens.cumsum(1) - 1
    counts = seen.new_zeros((len(seen), days.shape[1] + 1), dtype=torch.int64)
    counts.scatter_add_(1, block, seen.to(torch.int64))
    counts[:, -1] = classes
    cu_blocks = torch.nn.functional.pad(counts.flatten().cumsum(0), (1, 0))
    return Segments.packed(cu_blocks[:: days.shape[1] + 1].contiguous(), cu_blocks)
