"""What each token reads, for the three kinds of context: blocks, causal, and a window on a grid.

A context walks the tokens in slices that fit the cache. It gathers their features slice by slice (`add`,
`close`), hands back the mean that the tokens of a slice read (`mean`), and does the same for gradients on the
way back (`add_grad`, `close_grad`, `grad`). Nothing larger than one slice of features is kept, but for the
backward of causal and window contexts, which keep one row a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from geomix.ops.sums import box_sum, chunk_scan, chunk_sum, exclusive, row_scan
from geomix.segments import Chunks, Segments

BLOCK_CHUNK = 128
"""Tokens summed in a row before the tree of sums begins."""
CAUSAL_CHUNK = 64
"""Tokens of one scan in causal mode."""
SLICE_ELEMENTS = 1 << 19
"""Features worked on at a time: 2 MB in fp32, the second-level cache of one core."""


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


@dataclass(frozen=True)
class Initial:
    """What the sequences have seen before."""

    sum: Tensor
    """[sequences, D]."""
    count: Tensor
    """int64, [sequences]."""


def make_context(
    segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
) -> BlockContext | CausalContext | WindowContext:
    """Choose the context that serves these segments; `width` is D, `dtype` that of the sums."""
    kind = (
        WindowContext
        if segments.window is not None
        else CausalContext
        if segments.is_causal
        else BlockContext
    )
    return kind(segments, width, dtype, initial, normalize)


class BlockContext:
    """Full and block-causal context: one mean a block."""

    needs_sums = True
    """Whether `mean` needs the features of all slices first."""
    needs_features = False
    """Whether `mean` needs the features of the slice itself."""

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        self.segments, self.initial = segments, initial
        self.chunks = segments.chunks(BLOCK_CHUNK)
        self.slices = _slices(segments, self.chunks, width)
        self.sums = torch.empty(len(self.chunks), width, dtype=dtype, device=segments.device)
        self.first_chunk, self.last_chunk = segments.keep("ends", self._ends)
        owner = segments.sequence_of_block
        self.scale = _block_scale(segments, owner, initial, normalize, dtype)  # [blocks, 1]
        self.means = self.grads = self.sums

    def add(self, part: Slice, powers: Iterable[Tensor], coeff: Tensor) -> None:
        """Take the features of a slice in, as the powers of h that they are made of; see `_slice_moments`."""
        sums = self.sums[part.first_chunk : part.stop_chunk]
        _slice_moments(self.segments, self.chunks, part, powers, coeff, out=sums)

    def close(self) -> Tensor:
        """Join the sums once all slices are in; return the sum of each sequence, [sequences, D]."""
        scanned = chunk_scan(self.sums, self.chunks)
        total = _of_sequence(scanned, self.segments, self.chunks, last=True)
        context = _take(scanned, self.last_chunk)
        if self.initial is not None:
            context = context + self.initial.sum[self.segments.sequence_of_block]
        self.means = context * self.scale
        return total

    def mean(self, part: Slice, phi: Tensor | None = None) -> Tensor:
        """Return what the tokens of a slice read, [n, D]: one row for each L / n tokens."""
        return self._spread(self.means, part)

    def add_grad(self, part: Slice, grad: Tensor) -> None:
        """Take the gradient of what a slice reads in: of its tokens, [L, D], or summed by block, [n, D]."""
        sums = self.sums[part.first_chunk : part.stop_chunk]
        if grad.shape[0] == part.length:
            sums.copy_(_slice_sum(self.segments, self.chunks, part, grad))
        else:  # blocks of one length: the sum of each goes to its first chunk
            sums.zero_().view(grad.shape[0], -1, grad.shape[1])[:, 0] = grad

    def close_grad(self, grad_total: Tensor) -> Tensor:
        """Join the gradients; return that of `initial.sum`, [sequences, D]."""
        scanned = chunk_scan(self.sums * self.scale[self.chunks.unit], self.chunks, reverse=True)
        grad_initial = _of_sequence(scanned, self.segments, self.chunks, last=False)
        self.grads = _take(scanned, self.first_chunk) + grad_total[self.segments.sequence_of_block]
        return grad_initial

    def grad(self, part: Slice) -> Tensor:
        """Return the gradient of the features of a slice, [n, D], n as in `mean`."""
        return self._spread(self.grads, part)

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last chunk of each block, [blocks]; of an empty one any."""
        unit = self.chunks.unit
        blocks = torch.arange(self.segments.num_blocks + 1, device=unit.device)
        edges = torch.searchsorted(unit, blocks)
        return edges[:-1], edges[1:] - 1

    def _spread(self, rows: Tensor, part: Slice) -> Tensor:
        length = self.segments.block_length
        if length is not None and length > 0:
            first, stop = part.start // length, -(-part.stop // length)
            if stop - first == 1 or (part.start % length == 0 and part.stop % length == 0):
                return rows[first:stop]
        return rows.index_select(0, self.segments.block_of_token[part.start : part.stop])


class CausalContext:
    """Causal context: one mean a token, from a scan inside each chunk and what came before the chunk."""

    needs_sums = True
    needs_features = True

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        self.segments, self.initial = segments, initial
        self.chunks = segments.chunks(max(1, min(CAUSAL_CHUNK, segments.max_seqlen)))
        self.slices = _slices(segments, self.chunks, width)
        self.sums = torch.empty(len(self.chunks), width, dtype=dtype, device=segments.device)
        owner = segments.sequence_of_token
        self.scale = _block_scale(segments, owner, initial, normalize, dtype)  # [T, 1]
        self.before = self.after = self.sums
        self.token_grads: list[Tensor] = []

    def add(self, part: Slice, powers: Iterable[Tensor], coeff: Tensor) -> None:
        """Take the features of a slice in, as the powers of h that they are made of; see `_slice_moments`."""
        sums = self.sums[part.first_chunk : part.stop_chunk]
        _slice_moments(self.segments, self.chunks, part, powers, coeff, out=sums)

    def close(self) -> Tensor:
        """Join the sums once all slices are in; return the sum of each sequence, [sequences, D]."""
        scanned = chunk_scan(self.sums, self.chunks)
        self.before = exclusive(scanned, self.chunks)
        if self.initial is not None:
            self.before += self.initial.sum[self.chunks.unit]
        return _of_sequence(scanned, self.segments, self.chunks, last=True)

    def mean(self, part: Slice, phi: Tensor | None = None) -> Tensor:
        """Return what the tokens of a slice read, [L, D], from their features."""
        if phi is None:
            raise ValueError("a causal context needs the features of the slice")
        phi = _masked(phi, self.segments, part)
        return self._scan(phi, part, self.before).mul_(self.scale[part.start : part.stop])

    def add_grad(self, part: Slice, grad: Tensor) -> None:
        """Take the gradient of what the tokens of a slice read in, [L, D]; may overwrite it."""
        grad = grad.mul_(self.scale[part.start : part.stop])
        offsets = self.chunks.cu[part.first_chunk : part.stop_chunk + 1] - part.start
        rows = torch.arange(part.length, device=grad.device)
        self.sums[part.first_chunk : part.stop_chunk] = chunk_sum(grad, offsets, rows)
        self.token_grads.append(grad.clone())

    def close_grad(self, grad_total: Tensor) -> Tensor:
        """Join the gradients; return that of `initial.sum`, [sequences, D]."""
        scanned = chunk_scan(self.sums, self.chunks, reverse=True)
        self.after = exclusive(scanned, self.chunks, reverse=True) + grad_total[self.chunks.unit]
        return _of_sequence(scanned, self.segments, self.chunks, last=False)

    def grad(self, part: Slice) -> Tensor:
        """Return the gradient of the features of a slice, [L, D]."""
        rows = self.token_grads[part.number]
        return _masked(self._scan(rows, part, self.after, reverse=True), self.segments, part)

    def _scan(self, rows: Tensor, part: Slice, carry: Tensor, *, reverse: bool = False) -> Tensor:
        """Scan the rows of each chunk of a slice and add the chunk's carry, [L, D]."""
        size, count, width = self.chunks.size, part.stop_chunk - part.first_chunk, rows.shape[1]
        carry = carry[part.first_chunk : part.stop_chunk, None]
        if part.length == count * size:
            runs = row_scan(
                rows.clone().view(count, size, width), rows.new_empty(count, size, width), reverse=reverse
            )
            return (runs + carry).view(-1, width)
        starts = self.chunks.cu[part.first_chunk : part.stop_chunk]
        lengths = self.chunks.cu[part.first_chunk : part.stop_chunk + 1].diff()
        chunk = torch.repeat_interleave(torch.arange(count, device=rows.device), lengths)
        place = torch.arange(part.start, part.stop, device=rows.device) - starts[chunk] + chunk * size
        padded = rows.new_zeros(count * size, width).index_copy_(0, place, rows).view(count, size, width)
        runs = row_scan(padded, torch.empty_like(padded), reverse=reverse)
        return (runs + carry).view(-1, width).index_select(0, place)


class WindowContext:
    """Local context on a grid: one mean a token, over the box around it."""

    needs_sums = False
    needs_features = True

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        self.segments = segments
        self.slices = _grid_slices(segments, width)
        ones = torch.ones(segments.total, 1, dtype=dtype, device=segments.device)
        if segments.valid is not None:
            ones = ones * segments.valid[:, None]
        elif segments.num_sequences > 1:
            ones = ones[: segments.shape[1]]  # all grids are alike
        counts = box_sum(ones, segments).round() if segments.total else ones
        self.scale = _scale(counts.squeeze(1), normalize, dtype)  # [T or one grid, 1]
        self.sums = ones.new_zeros(segments.num_sequences, width)
        self.token_grads: list[Tensor] = []

    def add(self, part: Slice, powers: Iterable[Tensor], coeff: Tensor) -> None:
        """Do nothing: a window needs no sums from other slices."""

    def close(self) -> Tensor:
        """Return zeros, [sequences, D]: a window has no state."""
        return self.sums

    def mean(self, part: Slice, phi: Tensor | None = None) -> Tensor:
        """Return what the tokens of a slice read, [L, D], from their features."""
        if phi is None:
            raise ValueError("a window needs the features of the slice")
        return self._scaled(box_sum(_masked(phi, self.segments, part), self.segments), part)

    def add_grad(self, part: Slice, grad: Tensor) -> None:
        """Take the gradient of what the tokens of a slice read in, [L, D]; may overwrite it."""
        # The box is symmetric: j is in the window of i exactly where i is in that of j.
        self.token_grads.append(box_sum(self._scaled(grad, part), self.segments))

    def close_grad(self, grad_total: Tensor) -> Tensor:
        """Return zeros, [sequences, D]: a window has no state."""
        return torch.zeros_like(grad_total)

    def grad(self, part: Slice) -> Tensor:
        """Return the gradient of the features of a slice, [L, D]."""
        return _masked(self.token_grads[part.number], self.segments, part)

    def _scaled(self, rows: Tensor, part: Slice) -> Tensor:
        scale = self.scale
        if scale.shape[0] == self.segments.total:
            return rows.mul_(scale[part.start : part.stop])
        return rows.view(-1, *scale.shape[:1], rows.shape[1]).mul_(scale).view(rows.shape)


def _slices(segments: Segments, chunks: Chunks, width: int) -> list[Slice]:
    """Cut the tokens into slices of whole chunks, and of whole blocks where those are short and alike."""
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


def _grid_slices(segments: Segments, width: int) -> list[Slice]:
    """Cut the tokens into slices of whole grids."""
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


def _slice_sum(segments: Segments, chunks: Chunks, part: Slice, rows: Tensor) -> Tensor:
    """Sum the valid rows of each chunk of a slice, [chunks of the slice, D]."""
    return chunk_sum(rows, *_slice_runs(segments, chunks, part))


def _slice_runs(segments: Segments, chunks: Chunks, part: Slice) -> tuple[Tensor, Tensor]:
    """Return where the chunks of a slice start in its valid rows, [chunks + 1], and these rows."""
    cu = chunks.cu[part.first_chunk : part.stop_chunk + 1]
    if segments.valid_index is None:
        length, device = part.length, cu.device
        rows = segments.keep(("rows", length), lambda: torch.arange(length, device=device))
        return cu - part.start, rows
    offsets = segments.valid_in(cu)
    rows = segments.valid_index[int(offsets[0]) : int(offsets[-1])] - part.start
    return offsets - offsets[0], rows


def _slice_moments(
    segments: Segments, chunks: Chunks, part: Slice, powers: Iterable[Tensor], coeff: Tensor, out: Tensor
) -> None:
    """Sum the features of each chunk of a slice: powers first, the polynomial on their few sums.

    Args:
        segments: which rows are valid.
        chunks: the table of chunks.
        part: the slice.
        powers: h, h^2, ..., each [L, D]; the next one may overwrite it.
        coeff: [D, k].
        out: the sums, [chunks of the slice, D].
    """
    offsets, rows = _slice_runs(segments, chunks, part)
    out.zero_()
    for power, weight in zip(powers, coeff.unbind(1), strict=True):
        out.addcmul_(chunk_sum(power, offsets, rows), weight)


def _masked(rows: Tensor, segments: Segments, part: Slice) -> Tensor:
    if segments.valid is None:
        return rows
    return rows.masked_fill(~segments.valid[part.start : part.stop, None], 0.0)


def _block_scale(
    segments: Segments, owner: Tensor, initial: Initial | None, normalize: str, dtype: torch.dtype
) -> Tensor:
    """Return the scale of what each block sees, of the sequence `owner`, [blocks, 1]."""
    if initial is None:
        key = ("scale", normalize, dtype)
        return segments.keep(key, lambda: _scale(segments.visible_count, normalize, dtype))
    return _scale(segments.visible_count + initial.count[owner], normalize, dtype)


def _scale(counts: Tensor, normalize: str, dtype: torch.dtype) -> Tensor:
    """Return 1 / count (1 for a sum) and 0 where nothing is seen, [n, 1]."""
    weight = (
        counts.clamp(min=1).to(dtype).reciprocal()
        if normalize == "mean"
        else torch.ones_like(counts, dtype=dtype)
    )
    return torch.where(counts > 0, weight, 0.0)[:, None]


def _take(rows: Tensor, index: Tensor) -> Tensor:
    """Take rows by index; an index out of range (of an empty block, never read) gives any row, or zeros."""
    if rows.shape[0] == 0:
        return rows.new_zeros(index.numel(), rows.shape[1])
    return rows[index.clamp(0, rows.shape[0] - 1)]


def _of_sequence(scanned: Tensor, segments: Segments, chunks: Chunks, *, last: bool) -> Tensor:
    """Take the scan at the last (first) chunk of each sequence, 0 where it has none, [sequences, D]."""

    def ends() -> tuple[Tensor, Tensor, bool]:
        stop = chunks.per_sequence.cumsum(0)
        index = stop - 1 if last else stop - chunks.per_sequence
        is_there = chunks.per_sequence > 0
        return index, is_there[:, None], bool(is_there.all())

    index, is_there, all_there = segments.keep(("end of sequence", chunks.size, last), ends)
    return scanned[index] if all_there else torch.where(is_there, _take(scanned, index), 0.0)
