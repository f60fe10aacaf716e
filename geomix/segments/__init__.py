"""Which token sees which: ragged blocks of tokens inside sequences.

Tokens lie one after another. They are grouped into *blocks*, and blocks into *sequences*; token i sees
token j if and only if both are in the same sequence, block(j) <= block(i), and j is valid. One block per
sequence is full context, one token per block is causal context, anything between is block-causal. A grid
may add a local window instead: token i then sees the valid tokens of the box around it.

A `Segments` is built once, checked once, and shared by all layers of a model and by their backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from geomix.errors import SegmentsError
from geomix.offsets import (
    band_of,
    check_offsets,
    nested_offsets,
    repeat_offsets,
    seen_runs,
    short,
    split_runs,
)
from geomix.segments.layout import Layout

Window = int | Sequence[int] | None


class Segments(Layout):
    """The layout of some tokens, built from sizes, offsets, a grid or a mask."""

    @classmethod
    def dense(
        cls, batch: int, length: int, *, causal: bool = False, block_size: int | None = None
    ) -> Segments:
        """Describe `batch` sequences of `length` tokens each: tokens `[batch, length, C]`.

        Args:
            batch: number of sequences.
            length: tokens in each of them.
            causal: every token is a block of its own.
            block_size: tokens in a block; the last block of a sequence may be shorter.

        Raises:
            SegmentsError: if a size is negative, or `causal` and `block_size` are both given.
        """
        if batch < 0 or length < 0:
            raise SegmentsError(
                f"dense segments need sizes of 0 or more, got batch {batch} and length {length}"
            )
        # The compiler traces through caches, and says so in a warning.
        make = _dense.__wrapped__ if torch.compiler.is_compiling() else _dense
        return make(batch, length, causal, block_size)

    @classmethod
    def of(cls, x: Tensor) -> Segments:
        """Describe tokens that see their whole row: [B, N, C], or [T, C] for one row.

        Raises:
            SegmentsError: if `x` has another number of axes.
        """
        if x.ndim == 3:
            return cls.dense(x.shape[0], x.shape[1])
        if x.ndim != 2:
            raise SegmentsError(f"tokens are [B, N, C] or, packed, [T, C], got {list(x.shape)}")
        length = x.shape[0]
        cu = torch.arange(2, dtype=torch.int64) * length
        return cls(cu, cu, is_causal=False, is_full=True, shape=(length,), block_length=length)

    @classmethod
    def packed(
        cls,
        cu_seqlens: Tensor | Sequence[int],
        cu_blocks: Tensor | Sequence[int] | None = None,
        *,
        causal: bool = False,
        block_size: int | None = None,
    ) -> Segments:
        """Describe sequences that lie one after another: tokens `[T, C]`.

        Args:
            cu_seqlens: where each sequence starts and the last one ends, integers, [sequences + 1], as in
                FlashAttention. Empty sequences are legal.
            cu_blocks: absolute offsets of the blocks, [blocks + 1]; must hold every entry of `cu_seqlens`.
            causal: every token is a block of its own.
            block_size: positions in a block, counted from the start of each sequence.

        Raises:
            SegmentsError: if the offsets do not start at 0 or decrease, if `cu_blocks` crosses a sequence, or
                if more than one of `cu_blocks`, `causal` and `block_size` is given.
        """
        seqlens = check_offsets(cu_seqlens, "cu_seqlens")
        blocks = None if cu_blocks is None else check_offsets(cu_blocks, "cu_blocks").to(seqlens.device)
        total = int(seqlens[-1])
        return cls._build(seqlens, blocks, causal, block_size, (total,))

    @classmethod
    def from_mask(cls, valid: Tensor, *, causal: bool = False, block_size: int | None = None) -> Segments:
        """Describe padded sequences: tokens `[B, N, C]` of which only the valid ones exist.

        A token that is not valid is seen by nobody and comes out as 0. Blocks count positions, valid or not.

        Args:
            valid: which tokens exist, bool, [B, N].
            causal: every token is a block of its own.
            block_size: positions in a block.

        Raises:
            SegmentsError: if `valid` is not bool or not [B, N].
        """
        if valid.dtype != torch.bool or valid.ndim != 2:
            raise SegmentsError(f"the mask must be bool [B, N], got {valid.dtype} {list(valid.shape)}")
        batch, length = valid.shape
        cu_seqlens = torch.arange(batch + 1, dtype=torch.int64, device=valid.device) * length
        return cls._build(cu_seqlens, None, causal, block_size, (batch, length), valid=valid.reshape(-1))

    @classmethod
    def grid(
        cls, batch: int, shape: Sequence[int], window: Window = None, *, valid: Tensor | None = None
    ) -> Segments:
        """Describe `batch` grids of tokens, each read in row-major order: tokens `[batch, h * w, C]`.

        Args:
            batch: number of grids.
            shape: the axes of a grid, of any number.
            window: the box of tokens that each token sees, centred on it: one odd number, or one per axis.
                The window shrinks at the border. None: every token sees the whole grid.
            valid: which tokens exist, bool, [batch, h * w], or None for all of them.

        Raises:
            SegmentsError: if a size is negative, the window is not odd, or `valid` does not fit the grid.
        """
        sizes = tuple(int(size) for size in shape)
        if batch < 0 or not sizes or min(sizes) < 0:
            raise SegmentsError(f"a grid needs a batch and axes of 0 or more, got {batch} x {list(sizes)}")
        box = _window(window, len(sizes))
        length = 1
        for size in sizes:
            length *= size
        if valid is not None:
            if valid.dtype != torch.bool or tuple(valid.shape) != (batch, length):
                raise SegmentsError(
                    f"the mask of a grid must be bool [{batch}, {length}], "
                    f"got {valid.dtype} {list(valid.shape)}"
                )
            valid = valid.reshape(-1)
        device = None if valid is None else valid.device
        cu_seqlens = torch.arange(batch + 1, dtype=torch.int64, device=device) * length
        built = cls._build(cu_seqlens, None, False, None, (batch, length), valid=valid)
        built.grid_shape, built.window = sizes, box
        return built

    @classmethod
    def dense_mask(cls, mask: Tensor, *, batch: int | None = None) -> Segments:
        """Describe rows in which token i sees token j where `mask[.., i, j]` is true: tokens `[B, N, C]`.

        The one layout that costs B x N x N in time, and N x N in memory. A mask that is in fact full, causal,
        block-causal, packed or banded is recognised and costs what that costs; `repr` tells.

        Args:
            mask: bool, [B or 1, N, N].
            batch: number of rows, where one mask serves them all; None: that of the mask.

        Raises:
            SegmentsError: if the mask is not bool or not square, or the batch is not that of the mask.
        """
        rows = (mask.shape[0] if mask.ndim else 0) if batch is None else batch
        square = mask.ndim == 3 and mask.shape[1] == mask.shape[2] and mask.shape[0] in (1, rows)
        if mask.dtype != torch.bool or not square:
            raise SegmentsError(
                f"the mask must be bool [{rows} or 1, N, N], got {mask.dtype} {list(mask.shape)}"
            )
        if mask.numel() == 0:
            return cls.dense(rows, mask.shape[1])
        length, runs = mask.shape[1], seen_runs(mask)
        own = torch.arange(rows + 1, dtype=torch.int64, device=mask.device) * length
        nested = None if runs is None else nested_offsets(*runs)
        if nested is not None:
            seqlens, blocks = (repeat_offsets(cu, rows // len(mask)) for cu in nested)
            causal = len(blocks) == rows * length + 1
            blocks_given = None if causal or torch.equal(seqlens, blocks) else blocks
            if len(seqlens) == rows + 1:
                return cls._build(own, blocks_given, causal, None, (rows, length))
        built = cls(own, own, is_causal=False, is_full=False, shape=(rows, length), block_length=length)
        built.mask = mask
        if nested is not None:
            built.simpler = cls._build(seqlens, blocks_given, causal, None, (rows * length,))
        elif runs is not None and (band := band_of(*runs)) is not None:
            built.simpler = cls.grid(rows, (length,), band).to(mask.device)
        return built

    @classmethod
    def _build(
        cls,
        cu_seqlens: Tensor,
        cu_blocks: Tensor | None,
        causal: bool,
        block_size: int | None,
        shape: tuple[int, ...],
        valid: Tensor | None = None,
    ) -> Segments:
        if (cu_blocks is not None) + causal + (block_size is not None) > 1:
            raise SegmentsError(
                "give one of cu_blocks, causal=True and block_size, not several: they exclude each other"
            )
        if block_size is not None and block_size < 1:
            raise SegmentsError(f"block_size must be 1 or more, got {block_size}")
        dense_length = shape[1] if len(shape) == 2 else None
        is_full = cu_blocks is None and not causal and block_size is None
        if cu_blocks is not None:
            if not torch.isin(cu_seqlens, cu_blocks).all() or cu_blocks[-1] != cu_seqlens[-1]:
                raise SegmentsError(
                    "cu_blocks must hold every entry of cu_seqlens: blocks lie inside sequences, "
                    f"got cu_blocks {short(cu_blocks)} for cu_seqlens {short(cu_seqlens)}"
                )
            block_length = None
        elif causal or block_size == 1:
            causal, block_length = True, 1
            cu_blocks = torch.arange(int(cu_seqlens[-1]) + 1, dtype=torch.int64, device=cu_seqlens.device)
        elif block_size is not None:
            cu_blocks, _ = split_runs(cu_seqlens, block_size)
            divides = dense_length is not None and dense_length % block_size == 0
            block_length = block_size if divides else None
        else:
            cu_blocks, block_length = cu_seqlens, dense_length
        if block_length is None and cu_blocks.numel() > 1:
            lengths = cu_blocks.diff()
            first = int(lengths[0])
            block_length = first if bool((lengths == first).all()) else None
        return cls(
            cu_seqlens,
            cu_blocks,
            is_causal=causal,
            is_full=is_full,
            shape=shape,
            valid=valid,
            block_length=block_length,
        )


@lru_cache(maxsize=16)
def _dense(batch: int, length: int, causal: bool, block_size: int | None) -> Segments:
    """Build dense segments; kept, for every layer of every batch asks for the same ones."""
    with torch.inference_mode(False):
        cu_seqlens = torch.arange(batch + 1, dtype=torch.int64) * length
        return Segments._build(cu_seqlens, None, causal, block_size, (batch, length))


def _window(window: Window, rank: int) -> tuple[int, ...] | None:
    if window is None:
        return None
    box = (window,) * rank if isinstance(window, int) else tuple(int(size) for size in window)
    if len(box) != rank or any(size < 1 or size % 2 == 0 for size in box):
        raise SegmentsError(f"a window needs one odd number per axis ({rank} axes), got {window}")
    return box
