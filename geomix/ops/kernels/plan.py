"""Which tokens a program of a kernel works on: tiles of slots, cut so that no slot crosses a block.

A *slot* is a run of at most 16 tokens, a *tile* eight slots that one program holds at once. Tokens are summed
by *chunk*: a unit (a block; in causal mode, a sequence) of more than 512 tokens has chunks of a whole tile,
a shorter one has chunks of a slot, so that a tile can hold many short sequences and waste none of its rows.
How a unit is cut depends on its own length alone: it gives the same bits whatever it is packed with.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geomix.segments import Segments

SLOT = 16
"""Tokens of a slot: the rows of one tensor-core instruction."""
SLOTS = 8
"""Slots of a tile."""
TILE = SLOT * SLOTS
ROW, SEQUENCE = 3, 4
"""Fields of a slot that say which row its tokens read: of a context of these tokens, or of a state."""
LONG = 512
"""A unit of more tokens has chunks of a whole tile."""


class Plan(NamedTuple):
    """The tables that the kernels read; all of them int64 and on the device of the tokens."""

    slots: Tensor
    """For each slot: first token, number of tokens, chunk (-1: none), row of the context that its tokens
    read, sequence, and valid tokens seen by the whole block (causal: before the slot), [6, tiles * 8]."""
    targets: Tensor
    """For each chunk: the row of the context that takes the sums up to it, and the row that takes those from
    it on, -1 where none does, [2, chunks]."""
    cu_chunks: Tensor
    """Where the chunks of each sequence start and the last one ends, [sequences + 1]."""
    rows: int
    """Rows of the context: one per block; in causal mode, one per chunk."""


def plan_for(segments: Segments) -> Plan:
    """Return the tables of some segments, made once and kept as long as the segments live."""
    if torch.compiler.is_compiling():
        # Bounds in place of counts: they need no answer of the device, and a graph serves all lengths.
        return build_plan(segments, *most(segments))
    return segments.keep("kernel plan", lambda: build_plan(segments, *_count(segments)))


def build_plan(segments: Segments, chunks: int, tiles: int) -> Plan:
    """Cut segments into chunks and tiles; `chunks` and `tiles` are how many there are, at least."""
    is_causal = segments.is_causal
    cu = segments.cu_seqlens if is_causal else segments.cu_blocks
    unit_length = cu.diff()
    is_long = unit_length > LONG
    size = torch.where(is_long, TILE, SLOT)
    pieces = (unit_length + size - 1).div(size, rounding_mode="floor")
    ends = pieces.cumsum(0)

    chunk = torch.arange(chunks, device=cu.device)
    unit = torch.searchsorted(ends, chunk, right=True)
    exists = unit < unit_length.numel()
    unit = unit.clamp(max=unit_length.numel() - 1)
    place = chunk - (ends - pieces)[unit]
    start = torch.where(exists, cu[unit] + place * size[unit], 0)
    stop = torch.where(exists, torch.minimum(start + size[unit], cu[unit + 1]), 0)
    is_last = place == pieces[unit] - 1
    if is_causal:
        up_to, from_on = torch.where(is_last, -1, chunk + 1), torch.where(place == 0, -1, chunk - 1)
    else:
        up_to, from_on = torch.where(is_last, unit, -1), torch.where(place == 0, unit, -1)
    targets = torch.where(exists, torch.stack([up_to, from_on]), -1)

    whole = (exists & is_long[unit]).cumsum(0)  # chunks of a tile so far
    small = (exists & ~is_long[unit]).cumsum(0)  # chunks of a slot so far
    slot = torch.arange(tiles * SLOTS, device=cu.device)
    short = slot - whole[-1] * SLOTS  # place among the slots after those of the whole tiles
    in_whole = short < 0
    found = torch.where(
        in_whole,
        torch.searchsorted(whole, slot.div(SLOTS, rounding_mode="floor") + 1),
        torch.searchsorted(small, short + 1),
    )
    used, found = found < chunks, found.clamp(max=chunks - 1)
    first = start[found] + torch.where(in_whole, slot % SLOTS, 0) * SLOT
    length = torch.where(used, (stop[found] - first).clamp(0, SLOT), 0)
    first = torch.where(length > 0, first, 0)
    block = unit[found]
    sequence = block if is_causal or segments.is_full else segments.sequence_of_block[block]
    if not is_causal:
        seen = segments.visible_count[block]
    elif segments.valid is None:
        seen = first - cu[block]
    else:
        seen = (segments.valid_in(first) - segments.valid_in(cu[block])).clamp(min=0)
    owner = torch.where(used, found, -1)
    row = found if is_causal else block
    slots = torch.stack([first, length, owner, row, sequence, seen])

    edges = torch.nn.functional.pad(ends, (1, 0))
    if not (is_causal or segments.is_full):
        edges = edges[torch.searchsorted(segments.cu_blocks, segments.cu_seqlens)]
    return Plan(slots, targets, edges, chunks if is_causal else segments.num_blocks)


def _count(segments: Segments) -> tuple[int, int]:
    """How many chunks and tiles some segments have; asks the device once where lengths differ."""
    units = segments.num_sequences if segments.is_causal else segments.num_blocks
    length = segments.shape[1] if segments.is_causal and len(segments.shape) == 2 else None
    if not segments.is_causal:
        length = segments.block_length
    if length is not None:
        whole, small = (units * -(-length // TILE), 0) if length > LONG else (0, units * -(-length // SLOT))
    else:
        lengths = (segments.cu_seqlens if segments.is_causal else segments.cu_blocks).diff()
        is_long = lengths > LONG
        pieces = torch.stack(
            [
                torch.where(is_long, (lengths + TILE - 1) // TILE, 0).sum(),
                torch.where(is_long, 0, (lengths + SLOT - 1) // SLOT).sum(),
            ]
        )
        whole, small = pieces.tolist()
    return max(whole + small, 1), max(whole + -(-small // SLOTS), 1)


def most(segments: Segments) -> tuple[int, int]:
    """How many chunks and tiles such segments can have: sizes alone, which a compiled graph keeps open."""
    total, units = segments.total, segments.num_sequences if segments.is_causal else segments.num_blocks
    chunks = (total + (SLOT - 1) * units) // SLOT + 1
    # A long unit wastes less than a tile, and there are fewer than total / 512 of them.
    tiles = total // TILE + total // LONG + ((SLOT - 1) * units) // TILE + 3
    return chunks, tiles
