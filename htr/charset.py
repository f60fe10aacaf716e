"""Characters and their class numbers; class 0 is the CTC blank.

Labels, output and metric all pass through `normalize_text`, so that unlike forms of one text never count as
errors.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from geomix.errors import InputError

BLANK = 0
"""The class of "no character here"."""

CharsetMode = Literal["keep", "union", "new"]

_STRUCK_UNREADABLE = re.compile(r">\s*<")
_STRUCK_MARKS = re.compile(r"[<>]")


def normalize_text(text: str) -> str:
    """Give the one form in which texts are learned, written and compared.

    Unicode NFC (never NFKC, which would lose the long s), every run of white space becomes one space, and
    the ends are stripped.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def clean_label(text: str) -> str:
    """Normalise a transcript and take the struck-out marks out of it.

    Transcribers of the CREMMA family write `>word<` for struck-out words that can be read and `><` for those
    that cannot. The marks go, readable words stay.
    """
    return normalize_text(_STRUCK_MARKS.sub("", _STRUCK_UNREADABLE.sub(" ", text)))


class Charset:
    """The characters that a model can write, in the order of its classes.

    Args:
        characters: all characters, without the blank. Each is one code point of NFC text.

    Raises:
        InputError: if a character occurs twice or is longer than one code point.
    """

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = tuple(characters)
        self._number = {character: number for number, character in enumerate(self.characters, start=1)}
        if len(self._number) != len(self.characters):
            twice = [character for character, count in Counter(self.characters).items() if count > 1]
            raise InputError(f"the charset lists {twice} more than once; give each character once")
        longer = [character for character in self.characters if len(character) != 1]
        if longer:
            raise InputError(f"the charset holds {longer}; each entry must be one character")

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> "Charset":
        """Collect the characters of normalised texts, in the order of their code points."""
        return cls(sorted(set().union(*map(set, texts))))

    def __len__(self) -> int:
        """Count the classes, the blank included."""
        return len(self.characters) + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Charset) and self.characters == other.characters

    def __hash__(self) -> int:
        return hash(self.characters)

    def __repr__(self) -> str:
        return f"Charset({''.join(self.characters)!r})"

    def encode(self, text: str) -> list[int]:
        """Give the class of each character.

        Raises:
            InputError: if a character is not in the charset.
        """
        try:
            return [self._number[character] for character in text]
        except KeyError:
            raise InputError(
                f"the text {text!r} holds characters that the model does not know: "
                f"{describe(self.unknown([text]))}; train with --charset union or new"
            ) from None

    def encode_known(self, text: str) -> list[int]:
        """Give the class of each character, leaving out those that are not in the charset."""
        return [self._number[character] for character in text if character in self._number]

    def decode(self, classes: Sequence[int]) -> str:
        """Write the characters of classes; blanks are left out."""
        return "".join(self.characters[number - 1] for number in classes if number != BLANK)

    def unknown(self, texts: Iterable[str]) -> Counter[str]:
        """Count the characters of the texts that are not in the charset."""
        counts = Counter[str]()
        for text in texts:
            counts.update(character for character in text if character not in self._number)
        return counts

    def merge(self, texts: Iterable[str], mode: CharsetMode) -> "Charset":
        """Give the charset with which to go on training on other texts.

        Args:
            texts: the normalised texts of the new data.
            mode: `keep` stays as it is; `union` puts the new characters behind the known ones, so that known
                classes keep their numbers; `new` holds the characters of the new data alone.
        """
        if mode == "keep":
            return self
        if mode == "new":
            return Charset.from_texts(texts)
        return Charset((*self.characters, *sorted(self.unknown(texts))))


def describe(counts: Counter[str]) -> str:
    """List characters with their code points and how often each occurs, the most frequent first."""
    return ", ".join(f"{char!r} (U+{ord(char):04X}) {count} x" for char, count in counts.most_common())
