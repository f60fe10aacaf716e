"""The offsets of sequences and blocks, and what follows from them.

Everything is computed by tensor operations: a satellite scene has a million sequences.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from geomix.errors import SegmentsError
from geomix.offsets import members
from geomix.segments.tables import Tables, kept


class Layout(Tables):
    """Sequences and blocks of a run of tokens."""

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
        self.mask: Tensor | None = None
        """Which token of a row sees which, bool [B or 1, N, N], where `dense_mask` found no simpler form."""
        self.simpler: Self | None = None
        """The packed or banded form of `mask`, which costs linear time where a mixer has it, or None."""
        super().__init__()

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

    @kept
    def max_seqlen(self) -> int:
        """Length of the longest sequence, in positions."""
        if len(self.shape) == 2:
            return self.shape[1]
        return int(self.cu_seqlens.diff().max()) if self.num_sequences else 0

    @kept
    def sequence_of_block(self) -> Tensor:
        """The sequence of each block, [blocks]; of an empty block, one that touches it."""
        found = torch.searchsorted(self.cu_seqlens, self.cu_blocks[:-1], right=True) - 1
        return found.clamp(max=max(self.num_sequences - 1, 0))

    @kept
    def block_of_token(self) -> Tensor:
        """The block of each token, [T]."""
        return members(self.cu_blocks, self.total)

    @kept
    def sequence_of_token(self) -> Tensor:
        """The sequence of each token, [T]."""
        return members(self.cu_seqlens, self.total)

    @kept
    def position(self) -> Tensor:
        """The place of each token in its own sequence, counted in positions from 0, [T]."""
        index = torch.arange(self.total, device=self.device)
        return index - self.cu_seqlens[self.sequence_of_token]

    @kept
    def _valid_before(self) -> Tensor:
        """Number of valid tokens before each position, [T + 1]."""
        if self.valid is None:
            return torch.arange(self.total + 1, device=self.device)
        return torch.nn.functional.pad(self.valid.to(torch.int64).cumsum(0), (1, 0))

    @kept
    def valid_index(self) -> Tensor | None:
        """Positions of the valid tokens, [valid], or None where all are."""
        return None if self.valid is None else self.valid.nonzero().squeeze(1)

    @kept
    def count(self) -> Tensor:
        """Number of valid tokens of each sequence, int64, [sequences]."""
        return self._valid_before[self.cu_seqlens].diff()

    @kept
    def visible_count(self) -> Tensor:
        """Number of valid tokens that each block sees, int64, [blocks]."""
        before = self._valid_before
        return before[self.cu_blocks[1:]] - before[self.cu_seqlens[self.sequence_of_block]]

    def valid_in(self, cu: Tensor) -> Tensor:
        """Offsets `cu` recounted in valid tokens, of the same shape."""
        return self._valid_before[cu]

    # ------------------------------------------------------------------ use

    def to(self, device: torch.device) -> Self:
        """Return the same segments with their offsets on `device`; the copy is made once and kept."""
        if device == self.device:
            return self
        return self.keep(("on", device), lambda: self._move(device))

    def _move(self, device: torch.device) -> Self:
        moved = type(self)(
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
        moved.mask = None if self.mask is None else self.mask.to(device)
        moved.simpler = None if self.simpler is None else self.simpler.to(device)
        return moved

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
        if self.mask is not None:
            kind = "a mask of its own" if self.simpler is None else f"a mask, computed as {self.simpler!r}"
        return f"Segments({self.num_sequences} sequences, {self.total} tokens, {kind}{grid}{masked})"
