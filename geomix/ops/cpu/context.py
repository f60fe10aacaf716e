"""What each token reads, for the kinds of context: blocks, causal, a window on a grid, and any mask.

A context walks the tokens in slices that fit the cache. It gathers their features slice by slice (`add`,
`close`), hands back the mean that the tokens of a slice read (`mean`), and does the same for gradients on the
way back (`add_grad`, `close_grad`, `grad`). Nothing larger than one slice of features is kept, except by the
backward of causal and window contexts, which keep one row per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.ops.cpu.plan import Chunks, Slice, chunks_of, grid_slices, slices_of
from geomix.ops.cpu.sums import box_sum, chunk_scan, chunk_sum, exclusive, feature_sum, row_scan
from geomix.segments import Segments


@dataclass(frozen=True)
class Initial:
    """What the sequences have seen before."""

    sum: Tensor
    """[sequences, D]."""
    count: Tensor
    """int64, [sequences]."""


class _SummedContext:
    """A context that is made of the sums of its chunks."""

    needs_sums = True
    """Whether `mean` needs the features of all slices first."""

    def __init__(self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None) -> None:
        self.segments, self.initial = segments, initial
        self.chunks = chunks_of(segments)
        self.slices = slices_of(segments, self.chunks, width)
        self.sums = torch.empty(len(self.chunks), width, dtype=dtype, device=segments.device)

    def add(self, part: Slice, h: Tensor, coeff: Tensor, spare: Tensor) -> None:
        """Take the features of a slice in: h of its tokens, [L, D], and the coefficients, [D, k].

        `spare` is memory of the shape of `h` to work in.
        """
        sums = self.sums[part.first_chunk : part.stop_chunk]
        feature_sum(h, coeff, *_slice_runs(self.segments, self.chunks, part), spare, out=sums)

    def forget_grad(self) -> None:
        """End a backward pass; another one writes all sums anew."""


class BlockContext(_SummedContext):
    """Full and block-causal context: one mean per block."""

    needs_features = False
    """Whether `mean` needs the features of the slice itself."""

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        super().__init__(segments, width, dtype, initial)
        self.first_chunk, self.last_chunk = segments.keep("ends", self._ends)
        owner = segments.sequence_of_block
        self.scale = _block_scale(segments, owner, initial, normalize, dtype)  # [blocks, 1]
        self.means = self.grads = self.sums

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


class CausalContext(_SummedContext):
    """Causal context: one mean per token, from a scan inside each chunk and what came before the chunk."""

    needs_features = True

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        super().__init__(segments, width, dtype, initial)
        owner = segments.sequence_of_token
        self.scale = _block_scale(segments, owner, initial, normalize, dtype)  # [T, 1]
        self.before = self.after = self.sums
        self.token_grads: list[Tensor] = []

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

    def forget_grad(self) -> None:
        """End a backward pass: nothing as large as the tokens outlives it."""
        self.token_grads = []

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
    """Local context on a grid: one mean per token, over the box around it."""

    needs_sums = False
    needs_features = True

    def __init__(
        self, segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
    ) -> None:
        self.segments = segments
        self.slices = grid_slices(segments, width)
        ones = torch.ones(segments.total, 1, dtype=dtype, device=segments.device)
        if segments.valid is not None:
            ones = ones * segments.valid[:, None]
        elif segments.mask is None or len(segments.mask) == 1:
            ones = ones[: segments.shape[1]]  # all grids are alike
        counts = self._sum(ones, 0).round() if segments.total else ones
        self.scale = _scale(counts.squeeze(1), normalize, dtype)  # [T or one grid, 1]
        self.sums = ones.new_zeros(segments.num_sequences, width)
        self.token_grads: list[Tensor] = []

    def add(self, part: Slice, h: Tensor, coeff: Tensor, spare: Tensor) -> None:
        """Do nothing: a window needs no sums from other slices."""

    def close(self) -> Tensor:
        """Return zeros, [sequences, D]: a window has no state."""
        return self.sums

    def mean(self, part: Slice, phi: Tensor | None = None) -> Tensor:
        """Return what the tokens of a slice read, [L, D], from their features."""
        if phi is None:
            raise ValueError("a window needs the features of the slice")
        return self._scaled(self._sum(_masked(phi, self.segments, part), part.first_chunk), part)

    def forget_grad(self) -> None:
        """End a backward pass: nothing as large as the tokens outlives it."""
        self.token_grads = []

    def add_grad(self, part: Slice, grad: Tensor) -> None:
        """Take the gradient of what the tokens of a slice read in, [L, D]; may overwrite it."""
        self.token_grads.append(self._sum_back(self._scaled(grad, part), part.first_chunk))

    def close_grad(self, grad_total: Tensor) -> Tensor:
        """Return zeros, [sequences, D]: a window has no state."""
        return torch.zeros_like(grad_total)

    def grad(self, part: Slice) -> Tensor:
        """Return the gradient of the features of a slice, [L, D]."""
        return _masked(self.token_grads[part.number], self.segments, part)

    def _sum(self, rows: Tensor, first: int) -> Tensor:
        """Sum what each token sees of whole grids from the grid `first` on, [L, D]."""
        return box_sum(rows, self.segments)

    def _sum_back(self, rows: Tensor, first: int) -> Tensor:
        """Sum over the tokens that see each token."""
        # The box is symmetric: j is in the window of i exactly where i is in that of j.
        return self._sum(rows, first)

    def _scaled(self, rows: Tensor, part: Slice) -> Tensor:
        scale = self.scale
        if scale.shape[0] == self.segments.total:
            return rows.mul_(scale[part.start : part.stop])
        return rows.view(-1, *scale.shape[:1], rows.shape[1]).mul_(scale).view(rows.shape)


class MaskContext(WindowContext):
    """Context by a mask of its own: one mean per token, over the tokens of its row that it sees."""

    def _sum(self, rows: Tensor, first: int) -> Tensor:
        return self._times(rows, first, self._mask)

    def _sum_back(self, rows: Tensor, first: int) -> Tensor:
        return self._times(rows, first, self._mask.mT)

    @property
    def _mask(self) -> Tensor:
        if self.segments.mask is None:
            raise ValueError("a mask context needs segments with a mask")
        return self.segments.mask

    def _times(self, rows: Tensor, first: int, mask: Tensor) -> Tensor:
        """Multiply rows by their masks one after another: a row gives the same bits in any batch."""
        out = torch.empty_like(rows)
        length = mask.shape[-1]
        for start in range(0, len(rows), max(length, 1)):
            row = slice(start, start + length)
            own = mask[(first + start // length) % len(mask)]
            torch.mm(own.to(rows.dtype), rows[row], out=out[row])
        return out


Context = BlockContext | CausalContext | WindowContext


def context_of(
    segments: Segments, width: int, dtype: torch.dtype, initial: Initial | None, normalize: str
) -> Context:
    """Choose the context that serves these segments; `width` is D, `dtype` that of the sums."""
    kind: type[Context] = BlockContext
    if segments.window is not None:
        kind = WindowContext
    elif segments.mask is not None:
        kind = MaskContext
    elif segments.is_causal:
        kind = CausalContext
    return kind(segments, width, dtype, initial, normalize)


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
