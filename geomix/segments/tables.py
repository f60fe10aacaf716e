"""Tables that are computed once and kept as long as what they belong to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Tables:
    """Something that keeps what was computed of it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for each key: a table that all layers share."""
        if torch.compiler.is_compiling():
            return make()  # a graph that reads a table from here would be compiled again when there is none
        if key not in self._kept:
            with torch.inference_mode(False):  # a table made in inference must serve training as well
                self._kept[key] = make()
        kept: T = self._kept[key]
        return kept


class kept(Generic[T]):
    """A property of `Tables` that is computed once."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.__doc__ = make, make.__doc__

    def __get__(self, owner: Tables, kind: type) -> T:
        return owner.keep(self.make.__name__, lambda: self.make(owner))
