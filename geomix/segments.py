"""Which token sees which: ragged blocks of tokens inside sequences.

Tokens lie one after another. They are grouped into *blocks*, and blocks into *sequences*; token i sees
token j if and only if both are in the same sequence, block(j) <= block(i), and j is valid. One block per
sequence is full context, one token per block is causal context, anything between is block-causal. A grid
may add a local window instead: token i then sees the valid tokens of the box around it.

A `Segments` is built once, checked once, and shared by all layers of a model and by their backward pass.
Everything is computed by tensor operations: a satellite scene has a million sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from geomix.errors import SegmentsError
from geomix.offsets import check_offsets, members, short, split_runs

T = TypeVar("T")
Window = int | Sequence[int] | None


class _kept(Generic[T]):
    """A property of segments that is computed once."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.__doc__ = make, make.__doc__

    def __get__(self, segments: Segments, owner: type) -> T:
        return segments.keep(self.make.__name__, lambda: self.make(segments))


class Segments:
    """The sequences and blocks of a run of tokens; `dense`, `packed`, `from_mask` and `grid` build them."""

    def __init__(
        self,
        cu_seqlens: Tensor,
        cu_blocks: Tensor,
        *,
        is_causal: bool,
        is_full: bool,
        shape: tuple[int, ...],
        valid: Tensor | None = None,
        grid_shape: tuple[int, ...] | None = None,
        window: tuple[int, ...] | None = None,
        block_length: int | None = None,
    ) -> None:
        self.cu_seqlens = cu_seqlens
        """Where each sequence starts and the last one ends, int64, [sequences + 1]."""
        self.cu_blocks = cu_blocks
        """Where each block starts and the last one ends, every entry of `cu_seqlens` among them, int64."""
        self.is_causal = is_causal
        """True where every token is a block of its own."""
        self.is_full = is_full
        """True where every sequence is one block."""
        self.shape = shape
        """The leading axes of the tokens: (T,) when packed, (B, N) when dense, masked or on a grid."""
        self.valid = valid
        """Which tokens exist, bool, [T], or None for all of them."""
        self.grid_shape = grid_shape
        """The axes of the grid that each sequence covers, or None."""
        self.window = window
        """The odd box of tokens that each token of the grid sees, or None for the whole grid."""
        self.block_length = block_length
        """The length that all blocks share, or None where they differ."""
        self._kept: dict[Hashable, Any] = {}

    # ------------------------------------------------------------------ construction

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

    # ------------------------------------------------------------------ facts

    @property
    def total(self) -> int:
        """Number of token positions, valid or not."""
        size = 1
        for axis in self.shape:
            size *= axis
        return size

    @property
    def num_sequences(self) -> int:
        """Number of sequences, empty ones included."""
        return self.cu_seqlens.numel() - 1

    @property
    def num_blocks(self) -> int:
        """Number of blocks, empty ones included."""
        return self.cu_blocks.numel() - 1

    @property
    def device(self) -> torch.device:
        """Where the offsets lie."""
        return self.cu_seqlens.device

    @_kept
    def max_seqlen(self) -> int:
        """Length of the longest sequence, in positions."""
        if len(self.shape) == 2:
            return self.shape[1]
        return int(self.cu_seqlens.diff().max()) if self.num_sequences else 0

    @_kept
    def sequence_of_block(self) -> Tensor:
        """The sequence of each block, [blocks]; of an empty block, one that touches it."""
        found = torch.searchsorted(self.cu_seqlens, self.cu_blocks[:-1], right=True) - 1
        return found.clamp(max=max(self.num_sequences - 1, 0))

    @_kept
    def block_of_token(self) -> Tensor:
        """The block of each token, [T]."""
        return members(self.cu_blocks, self.total)

    @_kept
    def sequence_of_token(self) -> Tensor:
        """The sequence of each token, [T]."""
        return members(self.cu_seqlens, self.total)

    @_kept
    def position(self) -> Tensor:
        """The place of each token in its own sequence, counted in positions from 0, [T]."""
        index = torch.arange(self.total, device=self.device)
        return index - self.cu_seqlens[self.sequence_of_token]

    @_kept
    def _valid_before(self) -> Tensor:
        """Number of valid tokens before each position, [T + 1]."""
        if self.valid is None:
            return torch.arange(self.total + 1, device=self.device)
        return torch.nn.functional.pad(self.valid.to(torch.int64).cumsum(0), (1, 0))

    @_kept
    def valid_index(self) -> Tensor | None:
        """Positions of the valid tokens, [valid], or None where all are."""
        return None if self.valid is None else self.valid.nonzero().squeeze(1)

    @_kept
    def count(self) -> Tensor:
        """Number of valid tokens of each sequence, int64, [sequences]."""
        return self._valid_before[self.cu_seqlens].diff()

    @_kept
    def visible_count(self) -> Tensor:
        """Number of valid tokens that each block sees, int64, [blocks]."""
        before = self._valid_before
        return before[self.cu_blocks[1:]] - before[self.cu_seqlens[self.sequence_of_block]]

    def valid_in(self, cu: Tensor) -> Tensor:
        """Offsets `cu` recounted in valid tokens, of the same shape."""
        return self._valid_before[cu]

    # ------------------------------------------------------------------ use

    def to(self, device: torch.device) -> Segments:
        """Return the same segments with their offsets on `device`; the copy is made once and kept."""
        if device == self.device:
            return self
        return self.keep(("on", device), lambda: self._move(device))

    def _move(self, device: torch.device) -> Segments:
        return Segments(
            self.cu_seqlens.to(device),
            self.cu_blocks.to(device),
            is_causal=self.is_causal,
            is_full=self.is_full,
            shape=self.shape,
            valid=None if self.valid is None else self.valid.to(device),
            grid_shape=self.grid_shape,
            window=self.window,
            block_length=self.block_length,
        )

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for each key: a table that all layers share."""
        if torch.compiler.is_compiling():
            return make()  # a graph that reads a table from here would be compiled again when there is none
        if key not in self._kept:
            with torch.inference_mode(False):  # a table made in inference must serve training as well
                self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def check(self, x: Tensor) -> None:
        """Make sure that tokens `x` have the shape that these segments describe.

        Raises:
            SegmentsError: if the leading axes of `x` are not those of the segments.
        """
        if tuple(x.shape[:-1]) != self.shape:
            raise SegmentsError(
                f"the segments describe tokens [{', '.join(map(str, self.shape))}, C], got {list(x.shape)}"
            )

    def __repr__(self) -> str:
        kind = "full" if self.is_full else "causal" if self.is_causal else f"{self.num_blocks} blocks"
        grid = "" if self.grid_shape is None else f", grid {list(self.grid_shape)}, window {self.window}"
        masked = "" if self.valid is None else ", masked"
        return f"Segments({self.num_sequences} sequences, {self.total} tokens, {kind}{grid}{masked})"


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
