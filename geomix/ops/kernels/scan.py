"""K2: joins the sums of chunks along each sequence, in order, in two levels, forwards or backwards."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

import triton
import triton.language as tl

FEW = tl.constexpr(8)
"""Chunks that are summed one by one; more of them are summed by tiles."""


@triton.jit
def scan_sums(
    sums, target, cu_chunks, base, rows, total, D,
    REVERSE: tl.constexpr, SHIFT: tl.constexpr, BD: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
):  # fmt: skip
    """Sum the chunks of a sequence up to each (from each on, reversed), plus the sequence's row of `base`.

    The sum at chunk c goes to row target[c] of `rows` if that is not negative; with SHIFT the first chunk's
    own row gets `base` alone. `total`, or None, gets the sum of all chunks without `base`. The order of the
    additions depends on the number of chunks alone, not on BD: a sequence has the same bits in any company.
    """
    sequence = tl.program_id(0).to(tl.int64)
    first, stop = tl.load(cu_chunks + sequence), tl.load(cu_chunks + sequence + 1)
    count = stop - first
    column = tl.program_id(1) * BD + tl.arange(0, BD)
    ok = column < D
    if SHIFT:
        head = stop - 1 if REVERSE else first
        value = tl.zeros([BD], tl.float32)
        if base is not None:
            value += tl.load(base + sequence * D + column, mask=ok, other=0.0)
        tl.store(rows + head * D + column, value, mask=ok & _above(column, count, 0))
    if count <= FEW:
        _scan_few(sums, target, base, rows, total, D, sequence, first, stop, column, ok, REVERSE)
    else:
        for part in range(BD // TC):
            some = tl.program_id(1) * BD + part * TC + tl.arange(0, TC)
            _scan_many(sums, target, base, rows, total, D, sequence, first, stop, some, some < D, REVERSE, TR)


@triton.jit
def _above(column, number, bound):
    """Say once a column whether a number exceeds a bound: the interpreter cannot broadcast a truth value."""
    return tl.zeros_like(column) + number > bound


@triton.jit
def _scan_few(sums, target, base, rows, total, D, sequence, first, stop, column, ok, REVERSE: tl.constexpr):
    count = stop - first
    so_far = tl.zeros_like(column).to(tl.float32)
    before = tl.zeros_like(so_far)
    if base is not None:
        before += tl.load(base + sequence * D + column, mask=ok, other=0.0)
    for i in tl.static_range(FEW):
        chunk = stop - 1 - i if REVERSE else first + i
        so_far += tl.load(sums + chunk * D + column, mask=ok & _above(column, count, i), other=0.0)
        if target is not None:
            row = tl.load(target + chunk, mask=i < count, other=-1)
            tl.store(rows + row * D + column, so_far + before, mask=ok & _above(column, row, -1))
    if total is not None:
        tl.store(total + sequence * D + column, so_far, mask=ok)


@triton.jit
def _scan_many(
    sums, target, base, rows, total, D, sequence, first, stop, column, ok,
    REVERSE: tl.constexpr, TR: tl.constexpr,
):  # fmt: skip
    count = stop - first
    so_far = tl.zeros_like(column).to(tl.float32)
    before = tl.zeros_like(so_far)
    if base is not None:
        before += tl.load(base + sequence * D + column, mask=ok, other=0.0)
    for start in range(0, count, TR):
        place = start + tl.arange(0, TR)
        inside = place < count
        chunk = stop - 1 - place if REVERSE else first + place
        part = tl.load(
            sums + chunk[:, None] * D + column[None, :], mask=inside[:, None] & ok[None, :], other=0.0
        )
        if target is not None:
            row = tl.load(target + chunk, mask=inside, other=-1)
            value = tl.cumsum(part, 0) + (so_far + before)[None, :]
            tl.store(rows + row[:, None] * D + column[None, :], value, mask=(row >= 0)[:, None] & ok[None, :])
        so_far += tl.sum(part, 0)
    if total is not None:
        tl.store(total + sequence * D + column, so_far, mask=ok)
