"""Starts the kernels: how much memory, how many programs, and which sizes of tile."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from geomix.ops.kernels.backward import features_backward, gate_backward, input_gradient
from geomix.ops.kernels.forward import gate_tokens, head_outputs, mix_heads, sum_features
from geomix.ops.kernels.plan import ROW, SLOTS, TILE
from geomix.ops.kernels.scan import scan_sums
from geomix.ops.params import MixerFunctions, MixerParams


class Size(NamedTuple):
    """The tile of one kernel: output columns, depth of a step of its product, warps, stages."""

    columns: int
    depth: int
    warps: int
    stages: int


SIZES = {
    ("sum_features", 2): (Size(128, 64, 8, 3), Size(64, 32, 8, 3)),
    ("sum_features", 4): (Size(64, 32, 8, 3), Size(32, 32, 8, 2)),
    ("gate_tokens", 2): (Size(128, 32, 8, 4), Size(64, 32, 8, 3)),
    ("gate_tokens", 4): (Size(64, 32, 8, 3), Size(32, 32, 8, 2)),
    ("gate_tokens_causal", 2): (Size(64, 64, 8, 3), Size(32, 32, 8, 3)),
    ("gate_tokens_causal", 4): (Size(32, 32, 8, 3), Size(32, 16, 8, 2)),
    ("head_outputs", 2): (Size(64, 32, 4, 2), Size(64, 32, 4, 2)),
    ("head_outputs", 4): (Size(64, 32, 4, 2), Size(64, 32, 4, 2)),
    ("mix_heads", 2): (Size(64, 64, 8, 2), Size(32, 32, 8, 2)),
    ("mix_heads", 4): (Size(32, 16, 8, 2), Size(32, 16, 8, 2)),
    ("gate_backward", 2): (Size(64, 32, 8, 4), Size(32, 32, 8, 2)),
    ("gate_backward", 4): (Size(32, 16, 8, 2), Size(32, 16, 8, 2)),
    ("gate_backward_causal", 2): (Size(32, 32, 8, 3), Size(32, 32, 8, 2)),
    ("gate_backward_causal", 4): (Size(32, 16, 8, 2), Size(16, 16, 8, 2)),
    ("features_backward", 2): (Size(64, 64, 8, 3), Size(32, 32, 8, 3)),
    ("features_backward", 4): (Size(32, 32, 8, 2), Size(32, 16, 8, 2)),
    ("input_gradient", 2): (Size(128, 64, 8, 3), Size(64, 32, 8, 3)),
    ("input_gradient", 4): (Size(64, 32, 8, 3), Size(32, 32, 8, 2)),
}
"""By kernel and bytes an element: for plain shapes, and for those that need more registers.

Fixed: nothing is tried out at run time and nothing depends on lengths, so nothing is compiled again when they
change. All of them compile for compute capability 8.0 and 9.0 without spilling registers.
"""

SCAN_ROWS, SCAN_COLUMNS = 128, 16
SHORT = 4
"""Degree up to which a polynomial is short."""
MOST_HEADS = 64
"""Gates up to which one program holds all of them."""
LOW_RANK_TOKENS = 32
"""Tokens a block from which the output of each head of the block is worth computing once."""


def is_plain(x: Tensor, *weights: Tensor) -> bool:
    """Whether the rows of tokens and weights can be loaded 16 bytes at a time."""
    widths = [size for weight in weights for size in weight.shape]
    return x.stride(1) == 1 and all(size % 16 == 0 for size in (x.stride(0), *widths))


def is_light(coeff: Tensor, activation: str) -> bool:
    """Whether a kernel that holds more than the features of a tile has the registers for them."""
    return coeff.shape[1] <= SHORT and activation != "gelu"


def size_of(kernel: str, dtype: torch.dtype, plain: bool, width: int, depth: int) -> Size:
    """Look up the tile of a kernel, no wider than a product of `width` columns and `depth` terms needs."""
    size = SIZES[kernel, dtype.itemsize][0 if plain else 1]
    return size._replace(
        columns=min(size.columns, max(16, triton.next_power_of_2(width))),
        depth=min(size.depth, max(16, triton.next_power_of_2(depth))),
    )


def head_columns(head: int, most: int = 16) -> int | None:
    """Return how many of at most `most` columns hold whole heads of `head` channels or parts of one."""
    for columns in (most, 32, 16):
        if columns <= most and (columns % head == 0 or head % columns == 0):
            return columns
    return None


def precision(dtype: torch.dtype) -> str:
    """Name how fp32 is multiplied: as exactly as torch does it, on tensor cores."""
    return "tf32" if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


class Tokens(NamedTuple):
    """The tokens of one call and the tables of their plan."""

    x: Tensor
    slots: Tensor
    cu_chunks: Tensor
    chunks: int
    valid: Tensor | None

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.slots.shape[1] // SLOTS

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.cu_chunks.numel() - 1

    def programs(self, width: int, columns: int) -> tuple[int]:
        """Return the grid of a kernel whose programs take a tile and some of `width` columns."""
        return (self.tiles * triton.cdiv(width, columns),)

    def sums(self, width: int) -> Tensor:
        """Return memory for one row of sums a chunk."""
        return self.x.new_empty(self.chunks, width, dtype=torch.float32)


def sum_by_chunk(tokens: Tokens, w_h: Tensor, coeff: Tensor, activation: str) -> Tensor:
    """K1: sum the features of each chunk, [chunks, D]."""
    x, (width, depth) = tokens.x, w_h.shape
    size = size_of("sum_features", x.dtype, is_plain(x, w_h) and activation != "gelu", width, depth)
    sums = tokens.sums(width)
    sum_features[tokens.programs(width, size.columns)](
        x, *x.stride(), w_h, coeff, tokens.valid, tokens.slots, tokens.slots.shape[1], sums, depth, width,
        K=coeff.shape[1], ACTIVATION=activation, BN=size.columns, BK=size.depth, PRECISION=precision(x.dtype),
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    return sums


def scan(
    tokens: Tokens,
    sums: Tensor,
    target: Tensor,
    base: Tensor | None,
    rows: int,
    *,
    reverse: bool,
    shift: bool,
) -> tuple[Tensor, Tensor]:
    """K2: join the sums of chunks; return the `rows` of the context and the sum of each sequence."""
    context = sums.new_empty(rows, sums.shape[1])
    return context, _scan(tokens, sums, target, base, context, reverse=reverse, shift=shift)


def sum_by_sequence(tokens: Tokens, sums: Tensor) -> Tensor:
    """K2 without a context: join the sums of chunks to those of sequences, [sequences, D]."""
    return _scan(tokens, sums, None, None, None, reverse=False, shift=False)


def _scan(
    tokens: Tokens,
    sums: Tensor,
    target: Tensor | None,
    base: Tensor | None,
    context: Tensor | None,
    *,
    reverse: bool,
    shift: bool,
) -> Tensor:
    width = sums.shape[1]
    total = sums.new_empty(tokens.sequences, width)
    # Sequences of few chunks take more columns a program; the order of their sums is the same.
    parts = 8 if tokens.chunks < 64 * tokens.sequences else 1
    columns = min(SCAN_COLUMNS * parts, max(SCAN_COLUMNS, triton.next_power_of_2(width)))
    scan_sums[tokens.sequences, triton.cdiv(width, columns)](
        sums, target, tokens.cu_chunks, base, context, total, width,
        REVERSE=reverse, SHIFT=shift, BD=columns, TR=SCAN_ROWS, TC=SCAN_COLUMNS, num_warps=4,
    )  # fmt: skip
    return total


def put_out(
    tokens: Tokens,
    params: MixerParams,
    functions: MixerFunctions,
    context: Tensor,
    counts: Tensor | None,
    *,
    causal: bool,
    field: int = ROW,
) -> Tensor:
    """K3 and K4: let each token read its row of the context through its gates, [T, C]."""
    x, (channels, width), heads = tokens.x, params.w_o.shape, params.w_s.shape[0]
    few = heads < width and heads <= MOST_HEADS and not causal and field == ROW
    if few and x.shape[0] >= LOW_RANK_TOKENS * context.shape[0]:
        return _put_out_by_head(tokens, params, functions, context, counts)
    name, plain = "gate_tokens", is_plain(x, params.w_h)
    if causal:
        name, plain = "gate_tokens_causal", plain and is_light(params.coeff, functions.activation)
    size = size_of(name, x.dtype, plain, width, channels)
    g = x.new_empty(x.shape[0], width)
    gate_tokens[tokens.programs(width, size.columns)](
        x, *x.stride(), params.w_h, params.coeff, params.w_s, params.b_s, tokens.valid, tokens.slots,
        tokens.slots.shape[1], context, counts, g, channels, width,
        ROW=field, W=width // heads, K=params.coeff.shape[1], ACTIVATION=functions.activation,
        GATE=functions.gate, MEAN=functions.normalize == "mean", CAUSAL=causal, BN=size.columns,
        BK=size.depth, PRECISION=precision(x.dtype), num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    if params.b_o is None:
        return g @ params.w_o.T
    y = torch.addmm(params.b_o, g, params.w_o.T)
    return y if tokens.valid is None else y.masked_fill_(tokens.valid[:, None] == 0, 0.0)


def _put_out_by_head(
    tokens: Tokens, params: MixerParams, functions: MixerFunctions, context: Tensor, counts: Tensor | None
) -> Tensor:
    """K3 and K4 for few gates: the output of each head of each block, then a small product a tile."""
    x, (channels, width), heads = tokens.x, params.w_o.shape, params.w_s.shape[0]
    blocks, head = context.shape[0], width // heads
    outputs = context.new_empty(blocks, heads, channels)
    plain = is_plain(x, params.w_h)
    size = size_of("head_outputs", x.dtype, plain, channels, max(head, 32))
    rows = 16 if blocks <= 16 else 64
    head_outputs[triton.cdiv(blocks, rows) * heads * triton.cdiv(channels, size.columns),](
        context, params.w_o, outputs, blocks, channels, width, heads, head,
        BM=rows, BN=size.columns, BK=size.depth, PRECISION="tf32x3",
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    size = size_of("mix_heads", x.dtype, plain, channels, channels)
    y = x.new_empty(x.shape)
    mix_heads[(tokens.tiles,)](
        x, *x.stride(), params.w_s, params.b_s, params.b_o, tokens.valid, tokens.slots, tokens.slots.shape[1],
        outputs, counts, y, channels, heads,
        GATE=functions.gate, MEAN=functions.normalize == "mean", BG=max(16, triton.next_power_of_2(heads)),
        BN=size.columns, BK=size.depth, PRECISION=precision(x.dtype),
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    return y


class GateGradients(NamedTuple):
    """What B1 leaves behind."""

    g: Tensor
    """Gated means, [T, D]: dw_o = dy^T g."""
    both: Tensor
    """Gradients of the projections, da and then dz (in causal mode, dmean), [T, G + D]."""
    sums: Tensor
    """Gradients of what was read, by chunk, [chunks, D]."""
    partial: Tensor
    """Gradients of b_s, the coefficients and b_o, one row a tile, [tiles, G + D k + C]."""


def backward_gate(
    tokens: Tokens,
    params: MixerParams,
    functions: MixerFunctions,
    dy: Tensor,
    context: Tensor,
    counts: Tensor | None,
    *,
    causal: bool,
    field: int = ROW,
) -> GateGradients:
    """B1: go back through the output projection and the gates."""
    x, (channels, width), heads = tokens.x, params.w_o.shape, params.w_s.shape[0]
    head, powers = width // heads, params.coeff.numel()
    name, plain = "gate_backward", is_plain(x, params.w_h)
    if causal:
        name, plain = "gate_backward_causal", plain and is_light(params.coeff, functions.activation)
    size = size_of(name, x.dtype, plain, width, channels)
    columns = head_columns(head, size.columns)
    if columns is None:
        raise ValueError(f"heads of {head} channels do not fit the tiles of the kernels")
    parts = max(1, head // columns)
    has_bias = params.b_o is not None
    g, both = x.new_empty(x.shape[0], width), x.new_empty(x.shape[0], heads + width)
    partial = x.new_empty(tokens.tiles, heads + powers + has_bias * channels, dtype=torch.float32)
    sums = tokens.sums(width)
    gate_backward[tokens.programs(width, columns * parts)](
        x, *x.stride(), dy, *dy.stride(), params.w_h, params.coeff, params.w_s, params.b_s, params.w_o,
        tokens.valid, tokens.slots, tokens.slots.shape[1], context, counts,
        g, both, both[:, heads:], both.stride(0), sums, partial, partial.stride(0),
        heads + powers if has_bias else None, channels, width, heads,
        ROW=field, W=head, PARTS=parts, K=params.coeff.shape[1], ACTIVATION=functions.activation,
        GATE=functions.gate, MEAN=functions.normalize == "mean", CAUSAL=causal, BN=columns, BK=size.depth,
        PRECISION=precision(x.dtype), num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    return GateGradients(g, both, sums, partial)


def backward_features(
    tokens: Tokens,
    w_h: Tensor,
    coeff: Tensor,
    activation: str,
    drows: Tensor,
    dz: Tensor,
    partial: Tensor,
    *,
    causal: bool,
    field: int = ROW,
) -> None:
    """B3: go back through polynomial and activation; writes dz, [T, D], and D k columns of `partial`."""
    x, (width, depth) = tokens.x, w_h.shape
    size = size_of(
        "features_backward", x.dtype, is_plain(x, w_h) and is_light(coeff, activation), width, depth
    )
    features_backward[tokens.programs(width, size.columns)](
        x, *x.stride(), w_h, coeff, tokens.valid, tokens.slots, tokens.slots.shape[1],
        drows, dz, dz.stride(0), partial, partial.stride(0), depth, width,
        ROW=field, K=coeff.shape[1], ACTIVATION=activation, CAUSAL=causal, BN=size.columns, BK=size.depth,
        PRECISION=precision(x.dtype), num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip


def backward_input(both: Tensor, w_s: Tensor, w_h: Tensor) -> Tensor:
    """B4: gather the gradient of the tokens from those of both projections, [T, C]."""
    heads, (width, channels) = w_s.shape[0], w_h.shape
    size = size_of("input_gradient", both.dtype, is_plain(both, w_s, w_h), channels, width)
    dx = both.new_empty(both.shape[0], channels)
    input_gradient[(triton.cdiv(both.shape[0], TILE) * triton.cdiv(channels, size.columns),)](
        both, both[:, heads:], both.stride(0), w_s, w_h, dx, both.shape[0], channels, width, heads,
        BM=TILE, BN=size.columns, BK=size.depth, PRECISION=precision(both.dtype),
        num_warps=size.warps, num_stages=size.stages,
    )  # fmt: skip
    return dx
