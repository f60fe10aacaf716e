"""A character language model learned from plain text: how likely is a character after those before it.

N-grams smoothed over shorter contexts by Witten and Bell's estimate: after a context seen n times that was
followed by t different characters, P(c) = (n(c) + t P'(c)) / (n + t), where P' knows one character less
(Witten and Bell 1991, method C; Chen and Goodman 1998, section 2.6). Rare n-grams can be left out; what they
had goes back to the shorter contexts. All is kept as a trie in flat arrays, one level a length, which load at
once.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError, InputError, MissingFileError
from geomix.files import new_file
from htr.charset import normalize_text

ORDER = 6
"""Characters that the model looks at, the new one included."""

MAX_ORDER = 8
"""An n-gram is counted as one number of 64 bits."""

_ALWAYS = 3
"""N-grams up to this length are kept however rare."""

SUFFIX = ".lm"
"""Of a model file; any other is plain text to learn from."""

BUNDLED = Path(__file__).parent.parent / "weights"
"""Where the models lie that come with the package."""

NONE = "none"
"""The name that switches the language model off."""

FORMAT = "geomix-character-lm-1"

_START = "\n"
_STEP = 1 / 16
"""Step of the logarithms in a file, natural units: 0.03 off at most."""
_ALPHABET = 254
"""Characters at most, the most frequent ones; code 0 is the start of a line."""
_NEVER_SEEN = 0
"""Where the first level, in which nothing else begins a line, has the share of all other characters."""

Codes = NDArray[np.uint8]
Keys = NDArray[np.uint64]
Logs = NDArray[np.float32]


def find_lm(lm: "CharacterModel | str | Path | None") -> "CharacterModel | None":
    """Give the language model of a name, such as `french`, or of a file; a loaded one as it is.

    Args:
        lm: a model, the name of a bundled one, a `.lm` file, or a text to learn from; `none` or None for no
            model.

    Raises:
        MissingFileError: if there is neither such a file nor such a bundled model.
        FormatError: if the file is neither a model nor text in UTF-8, or is empty.
    """
    if lm is None or isinstance(lm, CharacterModel):
        return lm
    if str(lm) == NONE:
        return None
    path = Path(lm)
    return _kept(path if path.exists() else BUNDLED / f"{lm}{SUFFIX}", str(lm))


class Level(NamedTuple):
    """The n-grams of one length, sorted, so that those with the same beginning are neighbours."""

    last: Codes
    """The last character of each."""
    log: Logs
    """The logarithm of its probability after the others."""
    back: Logs
    """What is added to the logarithm of a character that was not seen after it."""
    first: NDArray[np.int64]
    """Where its continuations begin in the next level; one entry more than n-grams."""


class CharacterModel:
    """Probabilities of characters after those before them in a line.

    Args:
        characters: those that were seen, in the order of their codes from 1.
        levels: the n-grams of 1, 2, ... characters.
    """

    def __init__(self, characters: Iterable[str], levels: Iterable[Level]) -> None:
        self.characters = "".join(characters)
        self.levels = tuple(levels)
        self.order = len(self.levels)
        self._code = {character: code for code, character in enumerate(_START + self.characters)}
        self._row = lru_cache(maxsize=20_000)(self._new_row)

    @classmethod
    def learn(cls, texts: Iterable[str], order: int = ORDER, least: int = 1) -> "CharacterModel":
        """Count the n-grams of lines of text; each line begins afresh.

        Args:
            texts: the lines.
            order: characters that the model looks at, the new one included, up to 8.
            least: n-grams of four or more characters that are seen less often are left out.

        Raises:
            InputError: if there is no text, or the order is not 1 to 8.
        """
        if not 1 <= order <= MAX_ORDER:
            raise InputError(f"the order of a language model must be 1 to {MAX_ORDER}, got {order}")
        joined = _START.join(filter(None, map(normalize_text, texts)))
        if not joined:
            raise InputError("a language model needs text, got none")
        characters, codes = _encode(_START + joined)
        return cls(characters, _levels(codes, len(characters), order, least))

    @classmethod
    def from_file(cls, path: str | Path, order: int = ORDER) -> "CharacterModel":
        """Load a model that `save` wrote (`.lm`), or learn one from a text file in UTF-8.

        Raises:
            MissingFileError: if the file is not there.
            FormatError: if it is neither a model nor text in UTF-8, or is empty.
        """
        if not Path(path).is_file():
            raise MissingFileError(f"{path}: there is no such language model or text file")
        if Path(path).suffix == SUFFIX:
            return cls._load(Path(path))
        try:
            return cls.learn(Path(path).read_text(encoding="utf-8").splitlines(), order)
        except UnicodeDecodeError:
            raise FormatError(f"{path}: is not a text file in UTF-8") from None
        except InputError:
            raise FormatError(f"{path}: holds no text to learn a language model from") from None

    @classmethod
    def _load(cls, path: Path) -> "CharacterModel":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise FormatError(f"{path}: is not a language model of geomix")
                levels = [
                    _unpacked(
                        *(file.get_tensor(f"{part}{length}") for part in ("last", "log", "back", "next"))
                    )
                    for length in range(1, int(about["order"]) + 1)
                ]
        except SafetensorError as error:
            raise FormatError(f"{path}: is damaged or not a language model ({error})") from None
        return cls(about["characters"], levels)

    def save(self, path: str | Path, overwrite: bool = False, **about: str) -> None:
        """Write the model as safetensors; logarithms are rounded to sixteenths.

        Args:
            path: the file, which ends in `.lm`.
            overwrite: whether a file may be replaced.
            about: what else the file shall say, such as source and licence.

        Raises:
            OutputExistsError: if the file is there already.
        """
        from safetensors.numpy import save_file

        arrays = {}
        for length, level in enumerate(self.levels, start=1):
            packed = (level.last, _rounded(level.log), _rounded(level.back), np.diff(level.first))
            for part, array in zip(("last", "log", "back", "next"), packed, strict=True):
                arrays[f"{part}{length}"] = np.ascontiguousarray(array, dtype=np.uint8)
        facts = {"format": FORMAT, "order": str(self.order), "characters": self.characters}
        with new_file(path, overwrite) as file:
            save_file(arrays, file, metadata=facts | about)

    def log_probability(self, before: str, character: str) -> float:
        """The logarithm of the probability of `character` after the text `before` of a line."""
        context = (_START + before)[-(self.order - 1) :] if self.order > 1 else ""
        return float(self._row(context)[self._code.get(character, -1)])

    def _new_row(self, context: str) -> Logs:
        """The logarithms for every code after a context, and at the end for a character never seen."""
        if not context:
            single = self.levels[0]
            row: Logs = np.full(len(self._code) + 1, single.log[_NEVER_SEEN], dtype=np.float32)
            row[single.last] = single.log
            return row
        shorter, place = self._row(context[1:]), self._find(context)
        if place is None:
            return shorter
        level, longer = self.levels[len(context) - 1 : len(context) + 1]
        after = slice(level.first[place], level.first[place + 1])
        row = shorter + level.back[place]
        row[longer.last[after]] = longer.log[after]
        return row

    def _find(self, context: str) -> int | None:
        """The place of a context in its level, or None if it was never seen."""
        start, end, place = 0, len(self.levels[0].last), 0
        for length, character in enumerate(context):
            code = self._code.get(character)
            if code is None:
                return None
            level = self.levels[length]
            place = start + int(np.searchsorted(level.last[start:end], code))
            if place == end or level.last[place] != code:
                return None
            start, end = int(level.first[place]), int(level.first[place + 1])
        return place


def _encode(text: str) -> tuple[str, Codes]:
    """The alphabet of a text and its codes; characters beyond the alphabet begin a new line."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    seen, inverse, counts = np.unique(points, return_inverse=True, return_counts=True)
    is_character = seen != ord(_START)
    common = np.sort(np.argsort(-counts * is_character, kind="stable")[: min(_ALPHABET, is_character.sum())])
    codes = np.zeros(len(seen), dtype=np.uint8)
    codes[common] = np.arange(1, len(common) + 1)
    return "".join(map(chr, seen[common])), codes[inverse]


def _levels(codes: Codes, alphabet: int, order: int, least: int) -> list[Level]:
    """Count and smooth the n-grams of each length."""
    keys: list[Keys] = []
    logs: list[Logs] = []
    backs: list[Logs] = []
    for length in range(1, order + 1):
        grams, counts = _counted(codes, length)
        if length == 1:
            shares = _first_shares(counts, alphabet)
        else:
            parents, known = _places(keys[-1], grams >> np.uint64(8))
            grams, counts, parents = grams[known], counts[known], parents[known]
            # What is seen often enough is so without its first character as well.
            suffixes, _ = _places(keys[-1], grams & _mask(length - 1))
            shorter = np.exp(logs[-1].astype(np.float64))[suffixes]
            kept = (counts >= least) | (length <= _ALWAYS)
            shares, left = _smoothed(parents, counts, shorter, kept, len(keys[-1]))
            backs.append(left)
            grams = grams[kept]
        keys.append(grams)
        logs.append(np.log(shares).astype(np.float32))
    backs.append(np.zeros(len(keys[-1]), dtype=np.float32))
    return [
        Level((grams & np.uint64(255)).astype(np.uint8), log, back, _continuations(grams, longer))
        for grams, longer, log, back in zip(keys, [*keys[1:], keys[0][:0]], logs, backs, strict=True)
    ]


def _places(sorted_keys: Keys, wanted: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where keys stand, and whether they are there."""
    places = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return places, sorted_keys[places] == wanted


def _continuations(grams: Keys, longer: Keys) -> NDArray[np.int64]:
    return np.append(np.searchsorted(longer >> np.uint64(8), grams), len(longer))


def _first_shares(counts: NDArray[np.int64], alphabet: int) -> NDArray[np.float64]:
    """The shares of single characters, smoothed over the alphabet and one for all others."""
    counts = counts.astype(np.float64)
    counts[0] = 0
    return np.asarray((counts + alphabet / (alphabet + 1)) / (counts.sum() + alphabet))


def _mask(length: int) -> np.uint64:
    return np.uint64((1 << 8 * length) - 1)


def _counted(codes: Codes, length: int) -> tuple[Keys, NDArray[np.int64]]:
    """The different n-grams, sorted, and how often each is seen; a line starts only at their beginning."""
    windows = len(codes) - length + 1
    keys = np.zeros(max(windows, 0), dtype=np.uint64)
    whole = np.ones(len(keys), dtype=bool)
    for place in range(length):
        part = codes[place : place + len(keys)]
        keys = keys << np.uint64(8) | part
        if place:
            whole &= part != 0
    return np.unique(keys[whole], return_counts=True)


def _smoothed(
    parents: NDArray[np.int64],
    counts: NDArray[np.int64],
    shorter: NDArray[np.float64],
    kept: NDArray[np.bool_],
    contexts: int,
) -> tuple[NDArray[np.float64], Logs]:
    """Witten and Bell's shares of the kept n-grams, and what each context leaves to the shorter one.

    Args:
        parents: the context of each n-gram.
        counts: how often each is seen.
        shorter: its share after the shorter context.
        kept: which are kept.
        contexts: how many contexts there are.

    Returns:
        Shares of the kept, and the logarithm of the factor for what was not seen, one a context.
    """
    total = np.bincount(parents, counts, contexts)
    kinds = np.bincount(parents, minlength=contexts)
    shares = (counts + kinds[parents] * shorter) / (total + kinds)[parents]
    given = np.bincount(parents[kept], shares[kept], contexts)
    covered = np.bincount(parents[kept], shorter[kept], contexts)
    left = np.clip(1 - given, 1e-9, 1) / np.clip(1 - covered, 1e-9, 1)
    return shares[kept], np.log(left).astype(np.float32)


def _rounded(logs: Logs) -> Codes:
    """Sixteenths from 0 down to -12 and, for factors above 1, up to 3.9."""
    codes: Codes = np.clip(np.rint(logs / _STEP) + 192, 0, 255).astype(np.uint8)
    return codes


def _unpacked(last: Codes, log: Codes, back: Codes, following: Codes) -> Level:
    first = np.zeros(len(following) + 1, dtype=np.int64)
    np.cumsum(following, out=first[1:])
    log_, back_ = ((part.astype(np.float32) - 192) * _STEP for part in (log, back))
    return Level(last, log_, back_, first)


def _kept(path: Path, name: str) -> CharacterModel:
    """The model of a file, loaded once in a process as long as the file stays the same."""
    if not path.is_file():
        bundled = ", ".join(sorted(file.stem for file in BUNDLED.glob(f"*{SUFFIX}"))) or "none is"
        raise MissingFileError(f"{name}: there is no such language model or text file; bundled: {bundled}")
    return _loaded(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _loaded(path: Path, stamp: int) -> CharacterModel:
    return CharacterModel.from_file(path)
