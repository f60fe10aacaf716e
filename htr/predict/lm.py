"""A character language model learned from plain text: how likely is a character after those before it."""

import math
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from geomix.errors import FormatError, InputError, MissingFileError
from htr.charset import normalize_text

ORDER = 6
"""Characters that the model looks at, the new one included."""

_START = "\n"


class CharacterModel:
    """N-gram probabilities of characters, smoothed over shorter contexts (Witten-Bell).

    Args:
        texts: lines of text; each begins afresh.
        order: characters that the model looks at, the new one included.

    Raises:
        InputError: if there is no text, or the order is below 1.
    """

    def __init__(self, texts: Iterable[str], order: int = ORDER) -> None:
        if order < 1:
            raise InputError(f"the order of a language model must be 1 or more, got {order}")
        self.order = order
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        lines = 0
        for text in map(normalize_text, texts):
            if not text:
                continue
            lines += 1
            padded = _START + text
            for index in range(1, len(padded)):
                for length in range(min(order, index + 1)):
                    self._counts[padded[index - length : index]][padded[index]] += 1
        if not lines:
            raise InputError("a language model needs text, got none")
        self._totals = {context: sum(after.values()) for context, after in self._counts.items()}
        self._uniform = 1 / (len(self._counts[""]) + 1)
        self._cached = lru_cache(maxsize=200_000)(self._probability)

    @classmethod
    def from_file(cls, path: str | Path, order: int = ORDER) -> "CharacterModel":
        """Learn from a text file in UTF-8; the more it is like the pages, the better.

        Raises:
            MissingFileError: if the file is not there.
            FormatError: if it is not text in UTF-8, or is empty.
        """
        if not Path(path).is_file():
            raise MissingFileError(f"{path}: there is no such text file for the language model")
        try:
            return cls(Path(path).read_text(encoding="utf-8").splitlines(), order)
        except UnicodeDecodeError:
            raise FormatError(f"{path}: is not a text file in UTF-8") from None
        except InputError:
            raise FormatError(f"{path}: holds no text to learn a language model from") from None

    def log_probability(self, before: str, character: str) -> float:
        """The logarithm of the probability of `character` after the text `before` of a line."""
        context = (_START + before)[-(self.order - 1) :] if self.order > 1 else ""
        return self._cached(context, character)

    def _probability(self, context: str, character: str) -> float:
        return math.log(self._smoothed(context, character))

    def _smoothed(self, context: str, character: str) -> float:
        shorter = self._smoothed(context[1:], character) if context else self._uniform
        total = self._totals.get(context, 0)
        if not total:
            return shorter
        after = self._counts[context]
        # As many novelties are expected as different characters have followed so far.
        return (after.get(character, 0) + len(after) * shorter) / (total + len(after))
