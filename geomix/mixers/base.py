"""What every token mixer promises, so that models ask the mixer itself and never for its class."""

from __future__ import annotations

from torch import Tensor, nn

from geomix.errors import UnsupportedError
from geomix.mixers.state import State
from geomix.segments import Segments


class Mixer(nn.Module):
    """A layer that is called as `mixer(x, segments=None, *, state=None, return_state=False)`.

    A mixer without a state needs `forward` alone. One with a state says how wide it is, and takes `state` and
    returns it: tokens seen before and after give the same outputs in one call or in several. One that can sum
    tokens up apart from reading them also gives `observe` and `read`: models then take any number of tokens
    in bounded memory.
    """

    @property
    def state_width(self) -> int | None:
        """Numbers kept of each sequence, the D of its `State`; None: no state of fixed size."""
        return None

    @property
    def can_observe(self) -> bool:
        """Whether `observe` and `read` serve: tokens are summed up first and read the sum later."""
        return False

    def observe(self, x: Tensor, segments: Segments | None = None) -> State:
        """Sum up tokens, [B, N, C] or [T, C], without reading them.

        Raises:
            UnsupportedError: if the mixer cannot.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot sum tokens up apart from reading them")

    def read(self, x: Tensor, state: State, segments: Segments | None = None) -> Tensor:
        """Let tokens, [B, N, C] or [T, C], read a state without adding to it.

        Raises:
            UnsupportedError: if the mixer cannot.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot read a state apart from adding to it")
