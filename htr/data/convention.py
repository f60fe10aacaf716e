"""The one transcription convention of the bundled models, and the way other conventions are mapped to it.

Spelling, capitals and punctuation as written; u and v, i and j as the source transcribes them; the long s as
s; superior letters on the line; abbreviations as they stand, without strokes over letters and without letters
that an editor supplied; one kind of apostrophe and of quotation mark; a hyphen at the end of a line where a
word is broken; words that are struck out as far as they can be read; no editorial signs.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from htr.charset import clean_label, normalize_text
from htr.data.inputs import Sample

NAME = "as written, long s as s, superior letters on the line, abbreviations not resolved"
"""For the card of a model."""

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("’‘ʼ`´", "'"),
        **dict.fromkeys("“”„", '"'),
        **dict.fromkeys("–—", "-"),
        **dict.fromkeys("¬⹀", "-"),
        **dict.fromkeys("^⟦⟧⎀‸⋎ΞΩ→|#{}~_", ""),
        **dict(zip("ʳᵉᵈˡᵗˢᵇⁱᵐⁿᵒᵃᶜ", "redltsbimnoac", strict=True)),
        "ſ": "s",
        "ꝑ": "p",
        "ꝗ": "q",
        "⁊": "&",
        "ÿ": "y",
        "…": "...",
        "×": "x",
    }
)
_STROKES = re.compile("[\u0300-\u036f]")
_TILDES = re.compile("(?<=[aeiouvAEIOUV])[\u0303\u0304]")
_EXPANDED = re.compile(r"(?<=\w)\([a-zéè]{2,}\)|(?<=\w)\[[a-zéè]+\]|\[[a-zéè]+\](?=\w)")
_BROKEN = re.compile(r"\s?=$")


def conventional(text: str) -> str:
    """Map a transcript to the convention.

    >>> conventional("M^r jan(uier) eſt vn bõ ho⟦m⟧me=")
    'Mr jan est vn bo homme-'
    """
    text = _TILDES.sub("", unicodedata.normalize("NFD", clean_label(text)))
    text = _STROKES.sub("", unicodedata.normalize("NFC", text))
    return normalize_text(_BROKEN.sub("-", _EXPANDED.sub("", text.translate(_SIGNS))))


def conventional_samples(samples: Iterable[Sample]) -> list[Sample]:
    """Map the labels of lines to the convention; lines of which nothing is left go."""
    mapped = (replace(sample, text=conventional(sample.text)) for sample in samples)
    return [sample for sample in mapped if sample.text]
