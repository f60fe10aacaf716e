"""Token mixers with one call: `mixer(x, segments=None, *, state=None, return_state=False)`.

A new mixer is one file with a class that keeps the promises of `Mixer`, and one line in `MIXERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from geomix.errors import ConfigError
from geomix.mixers.attention import Attention
from geomix.mixers.base import Mixer
from geomix.mixers.concentration import Concentration
from geomix.mixers.poly_attention import PolyAttention
from geomix.mixers.pom import PoM
from geomix.mixers.state import State
from geomix.mixers.tree_attention import TreeAttention

__all__ = [
    "MIXERS",
    "Attention",
    "Concentration",
    "Mixer",
    "PoM",
    "PolyAttention",
    "State",
    "TreeAttention",
    "build_mixer",
]

MIXERS: dict[str, Callable[..., Mixer]] = {
    "pom": PoM,
    "pom_official": PoM.official,
    "compom": PoM.compom,
    "attention": Attention,
    "poly_attention": PolyAttention,
    "tree_attention": TreeAttention,
    "concentration": Concentration,
}
"""What `name` may be in a mixer's configuration; the other keys are the arguments of the constructor."""


def build_mixer(spec: Mapping[str, Any], dim: int) -> Mixer:
    """Build a mixer from its configuration.

    Args:
        spec: `name`, a key of `MIXERS`, and arguments of that mixer: `{"name": "pom", "degree": 2}`.
        dim: width of the tokens.

    Raises:
        ConfigError: if the name is not known or an argument does not fit.
    """
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if name not in MIXERS:
        raise ConfigError(f"mixer name {name!r} is not known; choose one of {', '.join(MIXERS)}")
    try:
        return MIXERS[name](dim, **arguments)
    except TypeError as error:
        raise ConfigError(f"mixer {name!r}: {error}") from None
