"""The classes of a map: codes, names and colours, in every form that a format wants."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomix.checkpoint import ClassInfo
from geomix.errors import InputError

NODATA = 255
"""The code of pixels that no date shows. Never 0: that is a class."""


@dataclass(frozen=True)
class Legend:
    """The classes of a model, in the order of its scores."""

    classes: tuple[ClassInfo, ...]

    def __post_init__(self) -> None:
        codes = [entry.id for entry in self.classes]
        if not codes or len(set(codes)) < len(codes) or max(codes) >= NODATA:
            raise InputError(f"class ids must be different and lie within 0 and {NODATA - 1}, got {codes}")

    @classmethod
    def of(cls, classes: Sequence[ClassInfo] | None, name: str) -> "Legend":
        """The legend of a card.

        Raises:
            InputError: if the card lists no classes.
        """
        if not classes:
            raise InputError(f"{name}: its card lists no classes, so its scores cannot be named")
        return cls(tuple(classes))

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The code of each score, [K]."""
        return np.array([entry.id for entry in self.classes], dtype=np.uint8)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each score."""
        return tuple(entry.name for entry in self.classes)

    @property
    def colormap(self) -> dict[int, tuple[int, int, int, int]]:
        """Red, green, blue and alpha of each code, and of nodata: transparent."""
        return {entry.id: (*entry.rgb, 255) for entry in self.classes} | {NODATA: (0, 0, 0, 0)}

    @property
    def by_code(self) -> tuple[ClassInfo, ...]:
        """The classes by rising code."""
        return tuple(sorted(self.classes, key=lambda entry: entry.id))

    def to_json(self) -> str:
        """Codes, names and colours as JSON, for a tag."""
        return json.dumps([entry.model_dump() for entry in self.by_code], ensure_ascii=False)
