"""Which tokens are worked on together: chunks, whose features are summed in order, and slices of chunks.

A chunk never crosses a block (a sequence, in causal mode). Partial sums are joined in an order that depends
on the chunk's place in its own sequence alone: a sequence gives the same bits whatever it is packed with. A
slice is what the second-level cache of one core holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from geomix.offsets import split_runs
from geomix.segments import Segments

BLOCK_CHUNK = 128
"""Tokens summed in a row before the tree of sums begins."""
CAUSAL_CHUNK = 64
"""Tokens of one scan in causal mode."""
SLICE_ELEMENTS = 1 << 19
"""Features worked on at a time: 2 MB in fp32."""


@dataclass(frozen=True)
class Chunks:
    """Runs of at most `size` tokens, none of which crosses a block (a sequence, in causal mode)."""

    size: int
    cu: Tensor
    """Where each chunk starts and the last one ends, [chunks + 1]."""
    unit: Tensor
    """The block (the sequence, in causal mode) that holds each chunk, [chunks]."""
    place: Tensor
    """The place of each chunk among the chunks of its sequence, from 0, [chunks]."""
    per_sequence: Tensor
    """How many chunks each sequence has, [sequences]."""
    longest: int
    """The largest number of chunks of one sequence."""

    def __len__(self) -> int:
        return self.unit.numel()


class Slice(NamedTuple):
    """A run of tokens and the chunks that it holds."""

    number: int
    """Its place among the slices."""
    start: int
    stop: int
    first_chunk: int
    stop_chunk: int

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.stop - self.start


def chunks_of(segments: Segments) -> Chunks:
    """Return the chunks of some segments, made once and kept as long as the segments live."""
    size = BLOCK_CHUNK
    if segments.is_causal:
        size = max(1, min(CAUSAL_CHUNK, segments.max_seqlen))
    return segments.keep(("chunks", size), lambda: cut_chunks(segments, size))


def cut_chunks(segments: Segments, size: int) -> Chunks:
    """Cut the blocks (the sequences, in causal mode) into chunks of at most `size` tokens."""
    units = segments.cu_seqlens if segments.is_causal else segments.cu_blocks
    cu, unit = split_runs(units, size)
    sequence = unit if segments.is_causal or segments.is_full else segments.sequence_of_block[unit]
    per_sequence = torch.bincount(sequence, minlength=segments.num_sequences)
    first = per_sequence.cumsum(0) - per_sequence
    place = torch.arange(unit.numel(), device=unit.device) - first[sequence]
    longest = int(per_sequence.max()) if per_sequence.numel() else 0
    return Chunks(size, cu, unit, place, per_sequence, longest)


def slices_of(segments: Segments, chunks: Chunks, width: int) -> list[Slice]:
    """Cut the tokens into slices of whole chunks, and of whole blocks where those are short and alike.

    The list is made once and kept as long as the segments live.

    Args:
        segments: the tokens.
        chunks: their chunks.
        width: features of a token, D.
    """
    rows = max(BLOCK_CHUNK, SLICE_ELEMENTS // max(width, 1))
    return segments.keep(("slices", chunks.size, rows), lambda: _cut_slices(segments, chunks, rows))


def _cut_slices(segments: Segments, chunks: Chunks, rows: int) -> list[Slice]:
    total = segments.total
    if total == 0:
        return []
    length = segments.block_length
    if length is not None and 0 < length <= rows and not segments.is_causal:
        rows = rows // length * length
    else:
        rows = rows // chunks.size * chunks.size
    targets = torch.arange(0, total, rows, device=chunks.cu.device)
    inner = torch.unique_consecutive(torch.searchsorted(chunks.cu, targets))
    inner = inner[(inner > 0) & (inner < len(chunks))]
    ends = torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), len(chunks))])
    at, tokens = ends.tolist(), chunks.cu[ends].tolist()
    edges = zip(tokens[:-1], tokens[1:], at[:-1], at[1:], strict=True)
    return [Slice(place, *edge) for place, edge in enumerate(edges)]


def grid_slices(segments: Segments, width: int) -> list[Slice]:
    """Cut the tokens into slices of whole grids; `width` is D."""
    grids, length = segments.shape
    if segments.total == 0:
        return []
    step = max(1, SLICE_ELEMENTS // max(width * length, 1))
    starts = range(0, grids, step)
    stops = [min(start + step, grids) for start in starts]
    return [
        Slice(place, start * length, stop * length, start, stop)
        for place, (start, stop) in enumerate(zip(starts, stops, strict=True))
    ]
