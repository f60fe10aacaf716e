"""Labelled data, divided by what each part is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from geomix.config import hint
from geomix.errors import InputError

T = TypeVar("T")
Split = Literal["train", "select", "val", "test", "all"]


@dataclass(frozen=True)
class Splits(Generic[T]):
    """Labelled items, each in one part. A domain adds fields for what it learns from the training part."""

    train: Sequence[T]
    """What the weights are fitted to."""
    val: Sequence[T] = ()
    """What chooses the epoch, where there is no `select`."""
    test: Sequence[T] = ()
    """What decides nothing during the training."""
    select: Sequence[T] = ()
    """What is taken from the training part to choose the epoch, so that `val` decides nothing either."""

    @property
    def parts(self) -> Mapping[str, Sequence[T]]:
        """The parts that are not empty, by name."""
        parts = {"train": self.train, "select": self.select, "val": self.val, "test": self.test}
        return {name: items for name, items in parts.items() if items}

    @property
    def held_out(self) -> tuple[str, ...]:
        """The names of the parts that the weights are not fitted to."""
        return tuple(name for name in self.parts if name != "train")

    def of(self, name: str) -> list[T]:
        """The items of `train`, `select`, `val` or `test`, or of `all` of them.

        Raises:
            InputError: if there is no such split or it is empty.
        """
        choices = ("train", "select", "val", "test", "all")
        if name not in choices:
            raise InputError(f"there is no split {name!r}{hint(name, choices)}")
        chosen = self.parts.values() if name == "all" else [self.parts.get(name, ())]
        found = [item for items in chosen for item in items]
        if not found:
            there = ", ".join([*self.parts, "all"]) if self.parts else "other data: these are empty"
            raise InputError(f"these data hold no {name} split; choose from {there}")
        return found
