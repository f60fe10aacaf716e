"""The Polynomial Mixer: a token mixer that costs linear time.

    phi_j = sum_p alpha_p * h(W_h x_j)^p          what a token contributes, D channels
    H_b   = mean of phi over the valid tokens that block b may see
    y_i   = W_o( sigma(W_s x_i + b) * H_b(i) )     what a token takes from it

Source: Picard et al., arXiv 2604.06129, equations 1, 2, 5 to 8. The paper's text sums over tokens; its
published code takes the mean, which is what lets lengths change, and so does this module by default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, overload

import torch
from torch import Tensor, nn

from geomix import ops
from geomix.errors import SegmentsError, UnsupportedError
from geomix.mixers.base import Mixer
from geomix.mixers.rotary import rotary_mix
from geomix.mixers.state import State
from geomix.ops import reference
from geomix.ops.elementwise import ACTIVATIONS, GATES, pick
from geomix.ops.params import MixerFunctions, MixerParams
from geomix.segments import Segments


class PoM(Mixer):
    """Mix tokens through a polynomial of each that is averaged over its context."""

    def __init__(
        self,
        dim: int,
        *,
        degree: int = 2,
        expand: float = 2,
        gate_heads: int | None = None,
        groups: int = 1,
        activation: str = "clamped_leaky_relu",
        gate: str = "sigmoid",
        normalize: Literal["mean", "sum"] = "mean",
        bias: bool = False,
        rotary: bool = False,
    ) -> None:
        """Build a mixer with a start that gives a signal at any degree up to 16.

        Args:
            dim: width of the tokens, C.
            degree: highest power of the polynomial, from 1.
            expand: width of the state over that of the tokens, D / C.
            gate_heads: number of gates, a divisor of D; None: one gate per channel.
            groups: number of groups of W_h, a divisor of C and D.
            activation: h, one of `ops.elementwise.ACTIVATIONS`.
            gate: sigma, one of `ops.elementwise.GATES`.
            normalize: "mean" or "sum" over the tokens seen.
            bias: give the output projection a bias.
            rotary: turn features and gates by the token's position, so that a token reads the others
                relative to itself. Needs an even D and one gate per channel.

        Raises:
            UnsupportedError: if the numbers do not divide or a name is not known.
        """
        super().__init__()
        width = round(dim * expand)
        heads = width if gate_heads is None else gate_heads
        if degree < 1:
            raise UnsupportedError(f"the degree of a polynomial mixer must be 1 or more, got {degree}")
        if heads < 1 or width % heads:
            raise UnsupportedError(f"gate_heads must divide the state width {width}, got {gate_heads}")
        if groups < 1 or dim % groups or width % groups:
            raise UnsupportedError(f"groups must divide the widths {dim} and {width}, got {groups}")
        if normalize not in ("mean", "sum"):
            raise UnsupportedError(f"normalize must be 'mean' or 'sum', got {normalize!r}")
        if rotary and (width % 2 or heads != width):
            raise UnsupportedError("a rotary mixer needs an even state width and one gate per channel")
        pick(ACTIVATIONS, activation, "activation")
        pick(GATES, gate, "gate")
        self.dim, self.width, self.groups, self.rotary = dim, width, groups, rotary
        self.functions = MixerFunctions(activation, gate, normalize)
        self.w_h = nn.Parameter(torch.empty(width, dim // groups))
        self.coeff = nn.Parameter(torch.empty(width, degree))
        self.w_s = nn.Parameter(torch.empty(heads, dim))
        self.b_s = nn.Parameter(torch.empty(heads))
        self.w_o = nn.Parameter(torch.empty(dim, width))
        self.b_o = nn.Parameter(torch.empty(dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights that keep unit variance through the projections and give every power one share."""
        for weight in (self.w_h, self.w_s, self.w_o):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        nn.init.zeros_(self.b_s)
        if self.b_o is not None:
            nn.init.zeros_(self.b_o)
        degree = self.coeff.shape[1]
        with torch.no_grad():
            for power in range(1, degree + 1):
                # E[relu(z)^(2p)] = (2p - 1)!! / 2 for a normal z: without it power 16 would drown the others.
                moment = math.prod(range(2 * power - 1, 0, -2)) / 2
                self.coeff[:, power - 1].normal_(std=(moment * degree) ** -0.5)

    @property
    def params(self) -> MixerParams:
        """The weights as the functions of `geomix.ops` take them."""
        w_h = self.w_h
        if self.groups > 1:
            w_h = torch.block_diag(*w_h.chunk(self.groups))  # type: ignore[no-untyped-call]
        return MixerParams(w_h, self.coeff, self.w_s, self.b_s, self.w_o, self.b_o)

    @property
    def state_width(self) -> int:
        """Numbers kept of each sequence, D."""
        return self.width

    @property
    def can_observe(self) -> bool:
        """Whether tokens can be summed up first and read later; not with rotary positions."""
        return not self.rotary

    @overload
    def forward(
        self, x: Tensor, segments: Segments | None = None, *, state: State | None = None
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, State]: ...

    @overload
    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool,
    ) -> Tensor | tuple[Tensor, State]: ...

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        """Mix tokens.

        Args:
            x: tokens, [B, N, C], or [T, C] when packed.
            segments: which token sees which; None: every token of a row sees the whole row.
            state: what the sequences have seen before; the tokens of `x` see it too.
            return_state: return the state after these tokens as well.

        Returns:
            Outputs of the shape of `x`, and the state if asked for.

        Raises:
            SegmentsError: if tokens, segments and state do not fit.
            UnsupportedError: if a state is asked of a local window.
        """
        segments = self._segments(x, segments)
        has_own = segments.window is not None or segments.mask is not None
        if has_own and (state is not None or return_state):
            raise UnsupportedError(
                "a local window or a mask has no state: every token has a context of its own"
            )
        segments = segments.simpler or segments
        if state is not None and tuple(state.sum.shape) != (segments.num_sequences, self.width):
            raise SegmentsError(
                f"the state must hold {segments.num_sequences} sequences of width {self.width}, "
                f"got {list(state.sum.shape)}"
            )
        flat = x.reshape(-1, x.shape[-1])
        before = None if state is None else state.total
        count = None if state is None else state.count
        if self.rotary:
            y, total = rotary_mix(flat, self.params, segments, self.functions, before, count)
        else:
            y, total = ops.mix(flat, self.params, segments, self.functions, before, count)
        y = y.view(x.shape)
        if not return_state:
            return y
        after = State(total, segments.count)
        return y, after if state is None else state.merge(after)

    def observe(self, x: Tensor, segments: Segments | None = None) -> State:
        """Sum up tokens without reading them.

        Args:
            x: tokens, [B, N, C] or [T, C].
            segments: their sequences; blocks and causality play no part.

        Returns:
            The state of these tokens alone; `merge` it with others.
        """
        segments = self._segments(x, segments)
        if segments.window is not None or self.rotary:
            raise UnsupportedError("only a mixer without local window and rotary positions can observe alone")
        total = ops.observe(x.reshape(-1, x.shape[-1]), self.params, segments, self.functions)
        return State(total, segments.count)

    def read(self, x: Tensor, state: State, segments: Segments | None = None) -> Tensor:
        """Let tokens read a state without adding to it: cross context, and the second pass of streaming.

        Args:
            x: tokens, [S, N, C], or [T, C] with `segments`, or [N, C] for a state of one sequence.
            state: what to read, one row per sequence.
            segments: which state row each token reads: that of its sequence.

        Returns:
            Outputs of the shape of `x`.
        """
        if self.rotary:
            raise UnsupportedError("rotary positions have no reading without tokens of their own")
        segments = self._segments(x, segments)
        if segments.num_sequences != state.count.numel():
            raise SegmentsError(
                f"the tokens lie in {segments.num_sequences} sequences, the state holds {state.count.numel()}"
            )
        flat = x.reshape(-1, x.shape[-1])
        y = ops.read(flat, self.params, self.functions, segments, state.total, state.count)
        return y.view(x.shape)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Take one token of each sequence in and let it read: exactly the causal forward call.

        Args:
            x: one token per sequence, [S, C].
            state: what the sequences have seen, of S rows.

        Returns:
            Outputs [S, C] and the state after.
        """
        if self.rotary:
            segments = Segments.packed(torch.arange(x.shape[0] + 1, device=x.device), causal=True)
            return self.forward(x, segments, state=state, return_state=True)
        params = self.params
        phi = reference.features(x, params, self.functions).to(state.sum.dtype)
        state = state.merge(State(phi, torch.ones_like(state.count)))
        return self.read(x[:, None], state)[:, 0], state

    def _segments(self, x: Tensor, segments: Segments | None) -> Segments:
        if x.shape[-1] != self.dim:
            raise SegmentsError(f"this mixer takes tokens of width {self.dim}, got {list(x.shape)}")
        if segments is None:
            segments = Segments.of(x)
        segments.check(x)
        return segments.to(x.device)

    def extra_repr(self) -> str:
        """Describe the mixer in one line."""
        return (
            f"dim={self.dim}, degree={self.coeff.shape[1]}, width={self.width}, gates={self.w_s.shape[0]}, "
            f"groups={self.groups}, {', '.join(self.functions)}"
        )

    @classmethod
    def official(
        cls,
        dim: int,
        *,
        degree: int = 2,
        expand: float = 2,
        n_groups: int = 1,
        n_sel_heads: int = 1,
        bias: bool = False,
    ) -> PoM:
        """Build the published module: hardsigmoid gate, its arguments by name, its start.

        Args:
            dim: width of the tokens.
            degree: highest power.
            expand: width of the state over `dim`.
            n_groups: groups of the feature projection.
            n_sel_heads: gates; 1 means one a channel, as published.
            bias: output bias.
        """
        pom = cls(
            dim,
            degree=degree,
            expand=expand,
            groups=n_groups,
            gate_heads=None if n_sel_heads <= 1 else n_sel_heads,
            gate="hardsigmoid",
            bias=bias,
        )
        nn.init.normal_(pom.coeff).data.clamp_(-1e-3, 1e-3)
        return pom

    @classmethod
    def compom(
        cls,
        dim: int,
        *,
        degree: int = 2,
        expand: float = 2,
        n_groups: int = 1,
        n_sel_heads: int = 1,
        bias: bool = False,
    ) -> PoM:
        """Build the earlier published ComPoM: leaky ReLU without bounds, sigmoid gate, its start.

        Args:
            dim: as in `official`.
            degree: as in `official`.
            expand: as in `official`.
            n_groups: as in `official`.
            n_sel_heads: gates, each for an equal share of the channels.
            bias: output bias.
        """
        pom = cls(
            dim,
            degree=degree,
            expand=expand,
            groups=n_groups,
            gate_heads=n_sel_heads,
            activation="leaky_relu",
            bias=bias,
        )
        nn.init.normal_(pom.coeff, std=2).data.clamp_(-2, 2)
        return pom

    def load_official(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a state dict of a published module into a mixer built by `official` or `compom`.

        Raises:
            UnsupportedError: if a name or shape is not one of the published module, or if the file is of the
                other form: each computes another function.
        """
        from geomix.mixers.official import convert_state_dict

        self.load_state_dict(convert_state_dict(state_dict, self))
