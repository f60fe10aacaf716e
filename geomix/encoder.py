"""The Polymorpher: pre-norm blocks of a token mixer and an MLP, used by all models.

    x <- x + mixer(norm(x)) ; x <- x + mlp(norm(x))

Source: Picard et al., arXiv 2604.06129, equation 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from geomix.errors import ConfigError, SegmentsError
from geomix.mixers import Mixer, State, build_mixer
from geomix.segments import Segments

MixerSpec = Mapping[str, Any]


class Block(nn.Module):
    """One mixer and one MLP, each behind a norm and beside a shortcut."""

    def __init__(
        self,
        dim: int,
        mixer: MixerSpec,
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ) -> None:
        """Build a block.

        Args:
            dim: width of the tokens, C.
            mixer: configuration of the mixer, `{"name": "pom", ...}`.
            mlp_ratio: width of the MLP over `dim`.
            dropout: share of activations dropped in training, in the MLP and after the mixer.
            norm_eps: what the norms add to the variance.
        """
        super().__init__()
        hidden = round(dim * mlp_ratio)
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.mixer: Mixer = build_mixer(mixer, dim)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.Dropout(dropout),
        )

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Any:
        """Mix tokens, [B, N, C] or [T, C]; with `return_state` return the mixer's state as well."""
        if state is None and not return_state:
            return self._mlp(x + self.dropout(self.mixer(self.norm1(x), segments)))
        result = self.mixer(self.norm1(x), segments, state=state, return_state=return_state)
        mixed, after = result if return_state else (result, None)
        y = self._mlp(x + self.dropout(mixed))
        return (y, after) if return_state else y

    def observe(self, x: Tensor, segments: Segments | None = None) -> State:
        """Return what the mixer would remember of these tokens; merge those of all slices, then `read`."""
        return self.mixer.observe(self.norm1(x), segments)

    def read(self, x: Tensor, state: State, segments: Segments | None = None) -> Tensor:
        """Finish the block for these tokens from the state of all of them, [B, N, C] or [T, C]."""
        return self._mlp(x + self.dropout(self.mixer.read(self.norm1(x), state, segments)))

    def _mlp(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Encoder(nn.Module):
    """A stack of blocks, with a norm at the end."""

    def __init__(
        self,
        dim: int,
        depth: int,
        mixer: MixerSpec | Sequence[MixerSpec],
        *,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        final_norm: bool = True,
        norm_eps: float = 1e-5,
    ) -> None:
        """Build the stack.

        Args:
            dim: width of the tokens, C.
            depth: number of blocks.
            mixer: one configuration for all blocks, or a list with one per block (a hybrid).
            mlp_ratio: width of the MLPs over `dim`.
            dropout: share of activations dropped in training.
            final_norm: end with a norm.
            norm_eps: what the norms add to the variance.

        Raises:
            ConfigError: if the list of mixers does not have `depth` entries.
        """
        super().__init__()
        specs = [mixer] * depth if isinstance(mixer, Mapping) else list(mixer)
        if len(specs) != depth:
            raise ConfigError(
                f"a list of mixers needs one entry per block: depth is {depth}, the list has {len(specs)}"
            )
        self.blocks = nn.ModuleList(
            Block(dim, spec, mlp_ratio=mlp_ratio, dropout=dropout, norm_eps=norm_eps) for spec in specs
        )
        self.norm = nn.LayerNorm(dim, eps=norm_eps) if final_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: tuple[State, ...] | None = None,
        return_state: bool = False,
    ) -> Any:
        """Encode tokens.

        Args:
            x: tokens, [B, N, C], or [T, C] when packed.
            segments: which token sees which.
            state: what the sequences have seen before, one state a block.
            return_state: return the states after these tokens as well.

        Returns:
            Tokens of the shape of `x`, and a tuple of states, one per block, if asked for.

        Raises:
            SegmentsError: if `state` does not have one entry per block.
        """
        before: Sequence[State | None] = [None] * len(self.blocks) if state is None else state
        if len(before) != len(self.blocks):
            raise SegmentsError(f"the encoder has {len(self.blocks)} blocks, the state {len(before)} entries")
        after = []
        for block, known in zip(self.blocks, before, strict=True):
            if return_state:
                x, seen = block(x, segments, state=known, return_state=True)
                after.append(seen)
            else:
                x = block(x, segments, state=known)
        x = self.norm(x)
        return (x, tuple(after)) if return_state else x


def parameters(module: nn.Module) -> int:
    """Count the trained numbers of a module."""
    return sum(weight.numel() for weight in module.parameters())
