"""Ordered sums of features: by chunk, over the chunks of a sequence, and over the window of a grid.

The order of every addition depends only on the place of a row in its own sequence (on its own grid), so a
sequence gives the same bits alone, in a batch or in a pack, and a tile the same bits as the scene around it.
Sums are trees over short runs: their rounding grows with the logarithm of the length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.ops.cpu.plan import Chunks
from geomix.segments import Segments


def chunk_sum(rows: Tensor, offsets: Tensor, index: Tensor) -> Tensor:
    """Sum runs of rows, each run in order.

    Args:
        rows: [L, D].
        offsets: where each run starts in `index` and the last one ends, int64, [runs + 1].
        index: which rows to take, int64.

    Returns:
        One sum per run, 0 for an empty one, [runs, D].
    """
    # embedding_bag walks each run once, in order, on any device: the fastest ragged sum that torch has.
    return torch.embedding_bag(rows, index, offsets, False, 0, False, None, True)[0]


def feature_sum(h: Tensor, coeff: Tensor, offsets: Tensor, index: Tensor, spare: Tensor, out: Tensor) -> None:
    """Sum the features of runs of rows: first the powers of h, then the polynomial of their few sums.

    Args:
        h: activated projections, [L, D].
        coeff: one coefficient per channel and power, [D, k].
        offsets: as in `chunk_sum`.
        index: as in `chunk_sum`.
        spare: memory of the shape of `h`; overwritten.
        out: the sums, [runs, D].
    """
    out.zero_()
    power = h
    for degree, weight in enumerate(coeff.unbind(1)):
        if degree:
            power = torch.mul(power, h, out=spare)
        out.addcmul_(chunk_sum(power, offsets, index), weight)


def chunk_scan(sums: Tensor, chunks: Chunks, *, reverse: bool = False) -> Tensor:
    """Add to each chunk all chunks before it (after it, reversed) in its sequence, by doubling strides.

    Args:
        sums: one sum per chunk, [chunks, D].
        chunks: the table that the sums belong to.

    Returns:
        Inclusive sums, [chunks, D].
    """
    if len(chunks) and len(chunks) == chunks.longest * chunks.per_sequence.numel():
        return _even_scan(sums.view(-1, chunks.longest, sums.shape[1]), reverse).view(sums.shape)
    place = chunks.place
    if reverse:
        place = (chunks.per_sequence - 1).repeat_interleave(chunks.per_sequence) - place
    place = place[:, None]
    stride = 1
    while stride < chunks.longest:
        joined = sums.clone()
        if reverse:
            joined[:-stride] += torch.where(place[:-stride] >= stride, sums[stride:], 0.0)
        else:
            joined[stride:] += torch.where(place[stride:] >= stride, sums[:-stride], 0.0)
        sums, stride = joined, stride * 2
    return sums


def _even_scan(sums: Tensor, reverse: bool) -> Tensor:
    """Do the additions of `chunk_scan` for sequences of equally many chunks, [sequences, chunks, D]."""
    stride = 1
    while stride < sums.shape[1]:
        joined = sums.clone()
        if reverse:
            joined[:, :-stride] += sums[:, stride:]
        else:
            joined[:, stride:] += sums[:, :-stride]
        sums, stride = joined, stride * 2
    return sums


def exclusive(scanned: Tensor, chunks: Chunks, *, reverse: bool = False) -> Tensor:
    """Shift inclusive sums by one chunk in each sequence: what came before (after, reversed), [chunks, D]."""
    shifted = torch.zeros_like(scanned)
    if reverse:
        is_last = chunks.place[1:] == 0
        shifted[:-1] = torch.where(is_last[:, None], 0.0, scanned[1:])
    else:
        is_first = chunks.place[1:] == 0
        shifted[1:] = torch.where(is_first[:, None], 0.0, scanned[:-1])
    return shifted


def row_scan(rows: Tensor, other: Tensor, *, reverse: bool = False) -> Tensor:
    """Sum along the second axis up to each row (from it, reversed), by doubling strides between two buffers.

    Args:
        rows: [runs, n, D]; overwritten.
        other: a second buffer of the same shape; overwritten.

    Returns:
        The one of the two buffers that holds the result.
    """
    length, stride = rows.shape[1], 1
    while stride < length:
        if reverse:
            torch.add(rows[:, :-stride], rows[:, stride:], out=other[:, :-stride])
            other[:, -stride:] = rows[:, -stride:]
        else:
            torch.add(rows[:, stride:], rows[:, :-stride], out=other[:, stride:])
            other[:, :stride] = rows[:, :stride]
        rows, other, stride = other, rows, stride * 2
    return rows


def box_sum(rows: Tensor, segments: Segments) -> Tensor:
    """Sum over the window around each token of its grid, shrunk at the border.

    Args:
        rows: tokens of whole grids, [grids * h * w, D].
        segments: the grid and its window.

    Returns:
        [grids * h * w, D]. The cost grows with the logarithm of the window.
    """
    shape, window = segments.grid_shape, segments.window
    if shape is None or window is None:
        raise ValueError("a box sum needs segments with a grid and a window")
    value = rows.reshape(-1, *shape, rows.shape[1])
    for axis, size in enumerate(window, start=1):
        value = _slide(value, axis, size)
    return value.reshape(rows.shape)


def _slide(value: Tensor, axis: int, size: int) -> Tensor:
    """Sum the `size` rows centred on each row along `axis`; rows beyond the border count as 0."""
    length, reach = value.shape[axis], size // 2
    shape = list(value.shape)
    shape[axis] = length + 2 * reach
    run = value.new_zeros(shape)  # run[i] sums `width` rows from i on
    run.narrow(axis, reach, length).copy_(value)
    total, offset, width = None, 0, 1
    while True:
        if size & 1:
            piece = run.narrow(axis, offset, length)
            total = piece.clone() if total is None else total.add_(piece)
            offset += width
        size >>= 1
        if not size:
            return value if total is None else total
        rest = run.shape[axis] - width
        run = run.narrow(axis, 0, rest) + run.narrow(axis, width, rest)
        width *= 2
