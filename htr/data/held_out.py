"""The documents that nothing learns from: `held_out.json` lists them, and this reads the list.

Whole documents are held out, so that no hand of a measured line was learned: a fifth of the documents of a
collection of four or more, else the last tenth of its pages. `choose` is the rule; it looks at no result.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import floor

from htr.data.inputs import Sample

SHARE = 0.2
"""Share of the documents of a collection that is held out."""

LAST = 0.1
"""Share of the pages that is held out where a collection has fewer than `FEW` documents."""

FEW = 4

_DOCUMENTS = {
    "copiste": r"(?:imp_)?wikitexte_\d+",
    "peraire": r"[A-D]\.\w+\.[^_/]+(?=_\d+\.xml)",
    "cremma19": r"(?<=data/)[^/]+",
    "cremma20": r"(?<=data/)[^/]+",
    "poilus": r"will_\w+_\d+",
    "celestine": r"data",
}
"""What names the document in the name of a page, where the index has no column `document`."""


@dataclass(frozen=True)
class HeldOut:
    """What is held out of one collection."""

    documents: tuple[str, ...]
    """Empty where the collection has too few, and pages are held out."""
    pages: tuple[str, ...]
    """Names of pages as in the index of the collection."""
    images: tuple[str, ...] = ()
    """Names of whole pages of these documents, without their folder."""


@cache
def held_out() -> dict[str, HeldOut]:
    """Read the list: what is held out of each collection."""
    text = files("htr.data").joinpath("held_out.json").read_text(encoding="utf-8")
    return {
        name: HeldOut(**{key: tuple(value) for key, value in entry.items()})
        for name, entry in json.loads(text).items()
    }


def divide(samples: Iterable[Sample]) -> list[Sample]:
    """Give the lines of listed collections the split `val` where they are held out, else `train`.

    Lines of other collections keep their split.
    """
    pages = {name: frozenset(entry.pages) for name, entry in held_out().items()}
    return [
        replace(sample, split="val" if sample.page in pages[sample.source] else "train")
        if sample.source in pages
        else sample
        for sample in samples
    ]


def document(collection: str, page: str) -> str:
    """Name the document of a page where the index does not; the page itself where its name does not tell."""
    found = re.search(_DOCUMENTS.get(collection, r"$^"), page)
    return found.group() if found else page


def choose(
    collection: str, pages: Sequence[tuple[str, str]], first: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Choose what is held out of a collection.

    Args:
        collection: its name.
        pages: the name and the document of each page.
        first: pages of earlier validation. What lies wholly within them comes first, so that models that were
            trained before the list existed can still be measured.

    Returns:
        The documents, none where there are fewer than four; and the pages, sorted.
    """
    known = set(first)
    members: dict[str, list[str]] = {}
    for page, name in sorted(set(pages)):
        members.setdefault(name, []).append(page)
    if len(members) < FEW:
        ordered = sorted({page for page, _ in pages}, key=lambda page: (page in known, _natural(page)))
        return [], sorted(ordered[-max(1, floor(LAST * len(ordered) + 0.5)) :])

    def turn(name: str) -> tuple[bool, str]:
        return not known.issuperset(members[name]), sha256(f"{collection}/{name}".encode()).hexdigest()

    chosen = sorted(members, key=turn)[: max(1, floor(SHARE * len(members) + 0.5))]
    return sorted(chosen), sorted(page for name in chosen for page in members[name])


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort `page 9` before `page 10`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
