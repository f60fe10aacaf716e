"""What the kernels share: slots, products of rows, elementwise functions, sums and scans of a tile.

Tensors of a tile come as rows [128, n] or, where slots matter, as [8, 16, n]. All arithmetic between a
product and a store is in fp32. Offsets are 64-bit: one layer of a large scene has over 2^31 elements.
"""
# A kernel's arguments are pointers and numbers; Triton types them when it compiles.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, SIM108

from __future__ import annotations

import triton
import triton.language as tl

from geomix.ops.elementwise import CLAMP_HIGH, CLAMP_LOW, LEAK
from geomix.ops.kernels import plan

SLOT = tl.constexpr(plan.SLOT)
SLOTS = tl.constexpr(plan.SLOTS)
TILE = tl.constexpr(plan.TILE)
SEQUENCE = tl.constexpr(plan.SEQUENCE)
_LOW, _HIGH, _LEAK = tl.constexpr(CLAMP_LOW), tl.constexpr(CLAMP_HIGH), tl.constexpr(LEAK)
_RSQRT_2, _RSQRT_2PI = tl.constexpr(0.7071067811865476), tl.constexpr(0.3989422804014327)


@triton.jit
def slot_field(slots, n_slots, tile, field: tl.constexpr):
    """Load one field of the slots of a tile, [8]; the fields stand in `plan.Plan`."""
    return tl.load(slots + tl.cast(n_slots, tl.int64) * field + tile * SLOTS + tl.arange(0, SLOTS))


@triton.jit
def slot_tokens(slots, n_slots, tile):
    """Return the token of each row and whether there is one, [8, 16]."""
    place = tl.arange(0, SLOT)[None, :]
    token = slot_field(slots, n_slots, tile, 0)[:, None] + place
    return token, place < slot_field(slots, n_slots, tile, 1)[:, None]


@triton.jit
def only_valid(token, inside, valid):
    """Return which of the rows hold a valid token; `valid` is a mask of all tokens, or None."""
    if valid is not None:
        inside = inside & (tl.load(valid + token, mask=inside, other=0) != 0)
    return inside


@triton.jit
def rows_dot(
    acc, x, x_row, x_col, token, live, w, w_out, w_in, out, out_ok, size,
    BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add x[token] @ w[out].T to `acc`, [128, BN]; rows that are not live count as 0.

    x is [T, size] with strides x_row and x_col; w is [outs, size] with strides w_out and w_in.
    """
    k = tl.arange(0, BK).to(tl.int64)
    x_at = x + token[:, None] * x_row + k[None, :] * x_col
    w_at = w + out[None, :].to(tl.int64) * w_out + k[:, None] * w_in
    x_step, w_step = tl.cast(x_col, tl.int64) * BK, tl.cast(w_in, tl.int64) * BK
    for start in range(0, size, BK):
        left = k < size - start
        a = tl.load(x_at, mask=live[:, None] & left[None, :], other=0.0)
        b = tl.load(w_at, mask=left[:, None] & out_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        x_at += x_step
        w_at += w_step
    return acc


@triton.jit
def activate(z, NAME: tl.constexpr):
    """Apply the activation h."""
    if NAME == "clamped_leaky_relu":
        h = tl.minimum(tl.maximum(tl.where(z > 0, z, z * _LEAK), _LOW), _HIGH)
    elif NAME == "leaky_relu":
        h = tl.where(z > 0, z, z * _LEAK)
    elif NAME == "leaky_softsign":
        u = tl.where(z > 0, z, z * _LEAK)
        h = u / (1 + tl.abs(u) / _HIGH)
    elif NAME == "gelu":
        h = 0.5 * z * (1 + tl.erf(z * _RSQRT_2))
    elif NAME == "relu":
        h = tl.maximum(z, 0.0)
    else:
        h = z
    return h


@triton.jit
def activation_slope(z, NAME: tl.constexpr):
    """Return the derivative of h."""
    if NAME == "clamped_leaky_relu":
        # The lower bound lies where the function leaks: in terms of z, LOW / LEAK.
        slope = tl.where((z <= _LOW / _LEAK) | (z >= _HIGH), 0.0, tl.where(z > 0, 1.0, _LEAK))
    elif NAME == "leaky_relu":
        slope = tl.where(z > 0, 1.0, _LEAK)
    elif NAME == "leaky_softsign":
        u = tl.where(z > 0, z, z * _LEAK)
        root = 1 / (1 + tl.abs(u) / _HIGH)
        slope = tl.where(z > 0, root * root, root * root * _LEAK)
    elif NAME == "gelu":
        slope = 0.5 * (1 + tl.erf(z * _RSQRT_2)) + z * tl.exp(-0.5 * z * z) * _RSQRT_2PI
    elif NAME == "relu":
        slope = tl.where(z > 0, 1.0, 0.0)
    else:
        slope = tl.full(z.shape, 1.0, tl.float32)
    return slope


@triton.jit
def open_gate(a, NAME: tl.constexpr):
    """Apply the gate sigma."""
    if NAME == "sigmoid":
        s = 1 / (1 + tl.exp(-a))
    else:
        s = tl.minimum(tl.maximum(a / 6 + 0.5, 0.0), 1.0)
    return s


@triton.jit
def gate_slope(s, NAME: tl.constexpr):
    """Return the derivative of sigma, read off its value."""
    if NAME == "sigmoid":
        slope = s * (1 - s)
    else:
        slope = tl.where((s > 0) & (s < 1), 1.0 / 6, 0.0)
    return slope


@triton.jit
def coefficient(coeff, column, ok, power, K: tl.constexpr):
    """Load the coefficients of one power for some columns, [1, BN]."""
    return tl.load(coeff + column * K + (power - 1), mask=ok, other=0.0).to(tl.float32)[None, :]


@triton.jit
def polynomial(h, coeff, column, ok, K: tl.constexpr):
    """Evaluate sum_p coeff[:, p - 1] * h^p by Horner's rule."""
    value = tl.zeros_like(h) + coefficient(coeff, column, ok, K, K)
    for i in tl.range(1, K, loop_unroll_factor=1):
        value = value * h + coefficient(coeff, column, ok, K - i, K)
    return value * h


@triton.jit
def polynomial_slope(h, coeff, column, ok, K: tl.constexpr):
    """Evaluate sum_p p * coeff[:, p - 1] * h^(p - 1) by Horner's rule."""
    value = tl.zeros_like(h) + K * coefficient(coeff, column, ok, K, K)
    for i in tl.range(1, K, loop_unroll_factor=1):
        value = value * h + (K - i) * coefficient(coeff, column, ok, K - i, K)
    return value


@triton.jit
def by_slot(rows):
    """View the rows of a tile by slot: [128, n] as [8, 16, n]."""
    return tl.reshape(rows, [SLOTS, SLOT, rows.shape[1]])


@triton.jit
def by_row(slots):
    """View the slots of a tile by row: [8, 16, n] as [128, n]."""
    return tl.reshape(slots, [TILE, slots.shape[2]])


@triton.jit
def is_whole(chunk):
    """Say for each slot of a tile, [8], whether all of them belong to one chunk."""
    # Compared by slot: Triton's interpreter cannot broadcast a single truth value.
    return tl.zeros_like(chunk) + tl.min(chunk, 0) == tl.max(chunk, 0)


@triton.jit
def store_sums(rows, sums, chunk, column, ok, D):
    """Sum the rows of each chunk of a tile, [128, BN], and store them."""
    by_chunk = tl.sum(by_slot(rows), 1)  # [8, BN]
    whole = is_whole(chunk)
    # One chunk per tile: its sum goes out in place of that of the first slot.
    by_chunk = tl.where(whole[:, None], tl.sum(by_chunk, 0)[None, :], by_chunk)
    mine = (chunk >= 0) & ((tl.arange(0, SLOTS) == 0) | ~whole)
    tl.store(sums + chunk[:, None] * D + column[None, :], by_chunk, mask=mine[:, None] & ok[None, :])


@triton.jit
def context_rows(context, row, column, ok, D):
    """Load what the slots of a tile read, [8, BN], fp32."""
    return tl.load(context + row[:, None] * D + column[None, :], mask=ok[None, :], other=0.0)


@triton.jit
def scan_tile(rows, outside, chunk, REVERSE: tl.constexpr):
    """Sum each column up to each row of its chunk (from it, reversed) and add what lies outside of the chunk.

    Args:
        rows: fp32, [128, BN].
        outside: sums before (after) the chunk of each slot, [8, BN].
        chunk: [8].

    Returns:
        [8, 16, BN].
    """
    slots = by_slot(rows)
    sums = tl.sum(slots, 1)
    others = tl.cumsum(sums, 0, reverse=REVERSE) - sums
    outside += tl.where(is_whole(chunk)[:, None], others, 0.0)
    return tl.cumsum(slots, 1, reverse=REVERSE) + outside[:, None, :]


@triton.jit
def slot_weight(
    slots, n_slots, tile, counts, live, ROW: tl.constexpr, CAUSAL: tl.constexpr, MEAN: tl.constexpr
):
    """Return one over the number of tokens that each token sees, 0 where it sees none: [8, 16] or [8, 1].

    `counts` is how many tokens each sequence has seen before, or None. Where the context has one row a
    sequence (ROW is that field of the slots) those are all.
    """
    if ROW == SEQUENCE:
        seen = tl.zeros([SLOTS], tl.int64)
    else:
        seen = slot_field(slots, n_slots, tile, 5)
    if counts is not None:
        seen += tl.load(counts + slot_field(slots, n_slots, tile, SEQUENCE))
    seen = seen.to(tl.float32)[:, None]
    if CAUSAL:
        seen += tl.cumsum(live.to(tl.float32), 1)
    if MEAN:
        weight = tl.where(seen > 0, 1 / tl.maximum(seen, 1.0), 0.0)
    else:
        weight = tl.where(seen > 0, 1.0, 0.0)
    return weight


@triton.jit
def store_column_sums(x, x_row, x_col, token, live, to, size, BK: tl.constexpr):
    """Sum the live rows of a tile of tokens and store the sums, [size]."""
    k = tl.arange(0, BK).to(tl.int64)
    for start in range(0, size, BK):
        at = x + token[:, None] * x_row + (start + k)[None, :] * x_col
        part = tl.load(at, mask=live[:, None] & (k < size - start)[None, :], other=0.0)
        tl.store(to + start + k, tl.sum(part.to(tl.float32), 0), mask=k < size - start)
