"""The kernels of the forward pass: features into sums, tokens and context into gated means.

    K1 sum_features   phi = polynomial(h(x W_h^T)), summed by chunk
    K2 scan_sums      in `scan.py`: sums of chunks joined into what each block, or chunk, may see
    K3 gate_tokens    g = sigma(x W_s^T + b) * mean; K4 is the matrix product g W_o^T

With few gates and no causality K3 and K4 become `head_outputs` and `mix_heads`: y_i = sum_h s_ih U_h, where
U_h is what head h of the token's block would put out on its own.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import triton
import triton.language as tl

from geomix.ops.kernels.device import (
    SLOT,
    SLOTS,
    TILE,
    activate,
    by_row,
    by_slot,
    context_rows,
    only_valid,
    open_gate,
    polynomial,
    rows_dot,
    scan_tile,
    slot_field,
    slot_tokens,
    slot_weight,
    store_sums,
)


@triton.jit(do_not_specialize=["n_slots"])
def sum_features(
    x, x_row, x_col, w_h, coeff, valid, slots, n_slots, sums, C, D,
    K: tl.constexpr, ACTIVATION: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """K1: project a tile of tokens, map it to features and store their sum by chunk, [chunks, D]."""
    columns = tl.cdiv(D, BN)
    tile = (tl.program_id(0) // columns).to(tl.int64)
    column = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    ok = column < D
    token, inside = slot_tokens(slots, n_slots, tile)
    live = tl.reshape(only_valid(token, inside, valid), [TILE])
    token = tl.reshape(token, [TILE])
    z = tl.zeros([TILE, BN], tl.float32)
    z = rows_dot(z, x, x_row, x_col, token, live, w_h, C, 1, column, ok, C, BK, PRECISION)
    phi = polynomial(activate(z, ACTIVATION), coeff, column, ok, K)
    phi = tl.where(live[:, None], phi, 0.0)
    store_sums(phi, sums, slot_field(slots, n_slots, tile, 2), column, ok, D)


@triton.jit(do_not_specialize=["n_slots"])
def gate_tokens(
    x, x_row, x_col, w_h, coeff, w_s, b_s, valid, slots, n_slots, context, counts, g, C, D,
    ROW: tl.constexpr, W: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr, GATE: tl.constexpr,
    MEAN: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """K3: gate the mean that each token of a tile reads, [T, D]; a head has W channels."""
    columns = tl.cdiv(D, BN)
    tile = (tl.program_id(0) // columns).to(tl.int64)
    column = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    ok = column < D
    by_slot_token, by_slot_inside = slot_tokens(slots, n_slots, tile)
    by_slot_live = only_valid(by_slot_token, by_slot_inside, valid)
    token, live = tl.reshape(by_slot_token, [TILE]), tl.reshape(by_slot_live, [TILE])
    inside = tl.reshape(by_slot_inside, [TILE])

    mean = context_rows(context, slot_field(slots, n_slots, tile, ROW), column, ok, D)[:, None, :]
    if CAUSAL:
        z = tl.zeros([TILE, BN], tl.float32)
        z = rows_dot(z, x, x_row, x_col, token, live, w_h, C, 1, column, ok, C, BK, PRECISION)
        phi = tl.where(live[:, None], polynomial(activate(z, ACTIVATION), coeff, column, ok, K), 0.0)
        before = tl.reshape(mean, [SLOTS, BN])
        mean = scan_tile(phi, before, slot_field(slots, n_slots, tile, 2), False)
    mean = mean * slot_weight(slots, n_slots, tile, counts, by_slot_live, ROW, CAUSAL, MEAN)[:, :, None]

    a = tl.zeros([TILE, BN], tl.float32)
    a = rows_dot(a, x, x_row, x_col, token, live, w_s, C, 1, column // W, ok, C, BK, PRECISION)
    a += tl.load(b_s + column // W, mask=ok, other=0.0).to(tl.float32)[None, :]
    gated = by_row(by_slot(open_gate(a, GATE)) * mean)
    # Tokens that are not valid are written too: as 0, which is also what they put out.
    gated = tl.where(live[:, None], gated, 0.0).to(g.dtype.element_ty)
    tl.store(g + token[:, None] * D + column[None, :], gated, mask=inside[:, None] & ok[None, :])


@triton.jit(do_not_specialize=["rows"])
def head_outputs(
    context, w_o, outputs, rows, C, D, G, W, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """U[b, h] = W_o[:, channels of h] @ context[b, channels of h], fp32, [blocks, G, C]."""
    columns = tl.cdiv(C, BN)
    head = (tl.program_id(0) // columns) % G
    row = (tl.program_id(0) // columns // G).to(tl.int64) * BM + tl.arange(0, BM)
    column = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    channel = tl.arange(0, BK)
    u = tl.zeros([BM, BN], tl.float32)
    for start in range(0, W, BK):
        ok = channel + start < W
        place = head * W + start + channel
        a = tl.load(
            context + row[:, None] * D + place[None, :], mask=(row < rows)[:, None] & ok[None, :], other=0.0
        )
        b = tl.load(
            w_o + column[None, :].to(tl.int64) * D + place[:, None],
            mask=ok[:, None] & (column < C)[None, :],
            other=0.0,
        )
        u = tl.dot(a, b.to(tl.float32), u, input_precision=PRECISION)
    at = outputs + (row[:, None] * G + head) * C + column[None, :]
    tl.store(at, u, mask=(row < rows)[:, None] & (column < C)[None, :])


@triton.jit(do_not_specialize=["n_slots"])
def mix_heads(
    x, x_row, x_col, w_s, b_s, b_o, valid, slots, n_slots, outputs, counts, y, C, G,
    GATE: tl.constexpr, MEAN: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """y_i = sum over heads of s_ih * U_h / n for the tokens of a tile, all C columns; block by block."""
    tile = tl.program_id(0).to(tl.int64)
    by_slot_token, by_slot_inside = slot_tokens(slots, n_slots, tile)
    by_slot_live = only_valid(by_slot_token, by_slot_inside, valid)
    token, live = tl.reshape(by_slot_token, [TILE]), tl.reshape(by_slot_live, [TILE])
    inside = tl.reshape(by_slot_inside, [TILE])
    gate = tl.arange(0, BG)
    a = tl.zeros([TILE, BG], tl.float32)
    a = rows_dot(a, x, x_row, x_col, token, live, w_s, C, 1, gate, gate < G, C, BK, PRECISION)
    a += tl.load(b_s + gate, mask=gate < G, other=0.0).to(tl.float32)[None, :]
    weight = slot_weight(slots, n_slots, tile, counts, by_slot_live, 3, False, MEAN)
    s = open_gate(a, GATE)
    block = slot_field(slots, n_slots, tile, 3)
    block_of_row = tl.reshape(tl.broadcast_to(block[:, None], [SLOTS, SLOT]), [TILE])
    scale = tl.reshape(tl.broadcast_to(weight, [SLOTS, SLOT]), [TILE])
    fields = slots + tile * SLOTS
    for start in range(0, C, BN):
        column = start + tl.arange(0, BN)
        total = tl.zeros([TILE, BN], tl.float32)
        before = tl.full([], -1, tl.int64)
        for i in range(SLOTS):
            own = tl.load(fields + tl.cast(n_slots, tl.int64) * 3 + i)
            used = tl.load(fields + tl.cast(n_slots, tl.int64) + i) > 0
            if used & (own != before):
                mine = live & (block_of_row == own)
                at = outputs + (own * G + gate[:, None]) * C + column[None, :]
                u = tl.load(at, mask=(gate < G)[:, None] & (column < C)[None, :], other=0.0)
                # 1 / n goes to U first: in fp16 a sum over many tokens would overflow.
                n = tl.max(tl.where(mine, scale, 0.0), 0)
                part = tl.where(mine[:, None], s, 0.0).to(x.dtype.element_ty)
                total = tl.dot(part, (u * n).to(x.dtype.element_ty), total, input_precision=PRECISION)
                before = own
        if b_o is not None:
            total += tl.load(b_o + column, mask=column < C, other=0.0).to(tl.float32)[None, :]
        total = tl.where(live[:, None], total, 0.0).to(y.dtype.element_ty)
        tl.store(
            y + token[:, None] * C + column[None, :], total, mask=inside[:, None] & (column < C)[None, :]
        )
