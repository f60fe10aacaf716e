"""The kernels of the backward pass; projections are computed again, nothing was saved but the context.

B1 gate_backward      dg = dy W_o; g = s * mean; da = sigma'(sum over the head of dg * mean);
                      dmean = dg * s / n, summed by chunk
B2 scan_sums          in `scan.py`, backwards: the gradient of the features, one row per block or chunk
B3 features_backward  dz = h'(phi'(dphi)); what the coefficients get from each tile
B4 input_gradient     dx = da W_s + dz W_h
B5 to B7              torch: [da, dz]^T x, dy^T g, and the sum of the tiles' rows for biases and coefficients
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, SIM102

from __future__ import annotations

import triton
import triton.language as tl

from geomix.ops.kernels.device import (
    SLOTS,
    TILE,
    activate,
    activation_slope,
    by_row,
    by_slot,
    context_rows,
    gate_slope,
    only_valid,
    open_gate,
    polynomial,
    polynomial_slope,
    rows_dot,
    scan_tile,
    slot_field,
    slot_tokens,
    slot_weight,
    store_column_sums,
    store_sums,
)


@triton.jit(do_not_specialize=["n_slots"])
def gate_backward(
    x, x_row, x_col, dy, dy_row, dy_col, w_h, coeff, w_s, b_s, w_o, valid, slots, n_slots, context, counts,
    g, da, dz, da_row, sums, partial, partial_row, bias_at, C, D, G,
    ROW: tl.constexpr, W: tl.constexpr, PARTS: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr,
    GATE: tl.constexpr, MEAN: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """B1: go back through output projection and gate for a tile of tokens.

    The rows of `partial`, one a tile, start with the gradients of b_s; those of b_o lie at `bias_at`, if not
    None.

    A program takes PARTS * BN channels: BN / W whole heads, or one head of PARTS * BN = W channels. In causal
    mode dmean itself is stored too, in place of dz.
    """
    HEADS: tl.constexpr = BN // W if W < BN else 1
    columns = tl.cdiv(D, BN * PARTS)
    tile = (tl.program_id(0) // columns).to(tl.int64)
    group = tl.program_id(0) % columns
    by_slot_token, by_slot_inside = slot_tokens(slots, n_slots, tile)
    by_slot_live = only_valid(by_slot_token, by_slot_inside, valid)
    token, live = tl.reshape(by_slot_token, [TILE]), tl.reshape(by_slot_live, [TILE])
    inside = tl.reshape(by_slot_inside, [TILE])
    row = slot_field(slots, n_slots, tile, ROW)
    chunk = slot_field(slots, n_slots, tile, 2)
    weight = slot_weight(slots, n_slots, tile, counts, by_slot_live, ROW, CAUSAL, MEAN)[:, :, None]

    first = group * BN * PARTS + tl.arange(0, BN)
    a = tl.zeros([TILE, BN], tl.float32)
    a = rows_dot(a, x, x_row, x_col, token, live, w_s, C, 1, first // W, first < D, C, BK, PRECISION)
    a += tl.load(b_s + first // W, mask=first < D, other=0.0).to(tl.float32)[None, :]
    s = open_gate(a, GATE)  # one head has the same gate in all its channels
    ds = tl.zeros([TILE, HEADS], tl.float32)
    for part in range(PARTS):
        column = first + part * BN
        ok = column < D
        mean = context_rows(context, row, column, ok, D)
        if CAUSAL:
            z = tl.zeros([TILE, BN], tl.float32)
            z = rows_dot(z, x, x_row, x_col, token, live, w_h, C, 1, column, ok, C, BK, PRECISION)
            phi = tl.where(live[:, None], polynomial(activate(z, ACTIVATION), coeff, column, ok, K), 0.0)
            mean = by_row(scan_tile(phi, mean, chunk, False) * weight)
        else:
            mean = by_row(
                tl.broadcast_to(
                    (mean * tl.reshape(weight, [SLOTS, 1]))[:, None, :], [SLOTS, TILE // SLOTS, BN]
                )
            )
        dg = tl.zeros([TILE, BN], tl.float32)
        dg = rows_dot(dg, dy, dy_row, dy_col, token, live, w_o, 1, D, column, ok, C, BK, PRECISION)
        to = token[:, None] * D + column[None, :]
        at = inside[:, None] & ok[None, :]
        tl.store(g + to, tl.where(live[:, None], s * mean, 0.0).to(g.dtype.element_ty), mask=at)
        ds += tl.sum(tl.reshape(dg * mean, [TILE, HEADS, BN // HEADS]), 2)
        dmean = by_row(by_slot(dg * s) * weight)
        store_sums(dmean, sums, chunk, column, ok, D)
        if CAUSAL:
            tl.store(dz + token[:, None] * da_row + column[None, :], dmean.to(dz.dtype.element_ty), mask=at)

    head = group * HEADS + tl.arange(0, HEADS)
    s_head = tl.max(tl.reshape(s, [TILE, HEADS, BN // HEADS]), 2)
    da_head = tl.where(live[:, None], ds * gate_slope(s_head, GATE), 0.0)
    at = inside[:, None] & (head < G)[None, :]
    tl.store(da + token[:, None] * da_row + head[None, :], da_head.to(da.dtype.element_ty), mask=at)
    tl.store(partial + tile * partial_row + head, tl.sum(da_head, 0), mask=head < G)
    if bias_at is not None:
        if group == 0:
            store_column_sums(dy, dy_row, dy_col, token, live, partial + tile * partial_row + bias_at, C, BK)


@triton.jit(do_not_specialize=["n_slots"])
def features_backward(
    x, x_row, x_col, w_h, coeff, valid, slots, n_slots, drows, dz, dz_row, partial, partial_row, C, D,
    ROW: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """B3: go back through polynomial and activation for a tile of tokens; in causal mode dz holds dmean."""
    columns = tl.cdiv(D, BN)
    tile = (tl.program_id(0) // columns).to(tl.int64)
    column = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    ok = column < D
    token, by_slot_inside = slot_tokens(slots, n_slots, tile)
    live = tl.reshape(only_valid(token, by_slot_inside, valid), [TILE])
    token, inside = tl.reshape(token, [TILE]), tl.reshape(by_slot_inside, [TILE])
    at = dz + token[:, None] * dz_row + column[None, :]
    mask = inside[:, None] & ok[None, :]

    z = tl.zeros([TILE, BN], tl.float32)
    z = rows_dot(z, x, x_row, x_col, token, live, w_h, C, 1, column, ok, C, BK, PRECISION)
    dphi = context_rows(drows, slot_field(slots, n_slots, tile, ROW), column, ok, D)
    if CAUSAL:
        dmean = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        dphi = by_row(scan_tile(dmean, dphi, slot_field(slots, n_slots, tile, 2), True))
    else:
        dphi = by_row(tl.broadcast_to(dphi[:, None, :], [SLOTS, TILE // SLOTS, BN]))
    dphi = tl.where(live[:, None], dphi, 0.0)
    h = activate(z, ACTIVATION)
    slope = polynomial_slope(h, coeff, column, ok, K) * activation_slope(z, ACTIVATION)
    tl.store(at, (dphi * slope).to(dz.dtype.element_ty), mask=mask)
    power = dphi * h
    for p in tl.range(0, K, loop_unroll_factor=1):
        tl.store(partial + tile * partial_row + column * K + p, tl.sum(power, 0), mask=ok)
        power *= h


@triton.jit(do_not_specialize=["T"])
def input_gradient(
    da, dz, da_row, w_s, w_h, dx, T, C, D, G, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """B4: dx = da W_s + dz W_h for a run of tokens."""
    columns = tl.cdiv(C, BN)
    token = (tl.program_id(0) // columns).to(tl.int64) * BM + tl.arange(0, BM)
    column = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    inside, ok = token < T, column < C
    total = tl.zeros([BM, BN], tl.float32)
    total = rows_dot(total, da, da_row, 1, token, inside, w_s, 1, C, column, ok, G, BK, PRECISION)
    total = rows_dot(total, dz, da_row, 1, token, inside, w_h, 1, C, column, ok, D, BK, PRECISION)
    at = dx + token[:, None] * C + column[None, :]
    tl.store(at, total.to(dx.dtype.element_ty), mask=inside[:, None] & ok[None, :])
