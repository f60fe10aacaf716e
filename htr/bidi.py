"""Text that runs from right to left: the order in which it is stored and the order in which it is seen.

A line recogniser sees an image from left to right, so it learns and writes display order. Files hold logical
order, the one in which a reader speaks. Both directions follow the Unicode bidirectional algorithm without
explicit embeddings, which transcripts of single lines do not have.

Source: Unicode Standard Annex #9, rules W1-W7, N1-N2, I1-I2, L1-L4.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from htr.page import Direction

_OPENING, _CLOSING = "([{<«‹⁅⁽≤", ")]}>»›⁆⁾≥"
_MIRRORED = dict(zip(_OPENING + _CLOSING, _CLOSING + _OPENING, strict=True))
_STRONG = {"L", "R", "AL"}
_ROUNDS = 12


def base_direction(text: str) -> Direction:
    """The direction of most of the letters of a text; `ltr` where there are none."""
    classes = [unicodedata.bidirectional(character) for character in text]
    right = sum(kind in {"R", "AL"} for kind in classes)
    return "rtl" if right > classes.count("L") else "ltr"


def to_display(text: str, base: Direction) -> str:
    """Logical order to display order, brackets mirrored where they run from right to left."""
    levels = _levels(text, base)
    return "".join(_shown(text[i], levels[i]) for i in _display_order(text, levels))


def as_seen(text: str) -> str:
    """The display order of a line whose direction is that of most of its letters."""
    return to_display(text, base_direction(text))


def to_logical(text: str, base: Direction) -> str:
    """Display order to logical order.

    Some displays have several logical orders; one of them is given. Showing it gives `text` again, save for
    rare tangles of numbers and signs.
    """
    order, levels = logical_order(text, base)
    return "".join(_shown(text[i], level) for i, level in zip(order, levels, strict=True))


def logical_order(text: str, base: Direction) -> tuple[list[int], list[int]]:
    """For each place of the logical text the place in the display `text`, and its level (odd: right to left).

    The algorithm is not its own inverse: the order is guessed, shown, and corrected until the display fits.
    """
    # A letter and its marks move together.
    heads = [i for i, c in enumerate(text) if i == 0 or unicodedata.bidirectional(c) != "NSM"]
    letters = "".join(text[i] for i in heads)
    order = list(range(len(letters)))
    if base == "rtl":
        order.reverse()
    levels = [0 if base == "ltr" else 1] * len(letters)
    for _ in range(_ROUNDS):
        guess = "".join(_shown(letters[i], level) for i, level in zip(order, levels, strict=True))
        levels = _levels(guess, base)
        following = [0] * len(letters)
        for place, source in enumerate(_display_order(guess, levels)):
            following[source] = place
        if following == order:
            break
        order = following
    ends = [*heads[1:], len(text)]
    parts = [(range(heads[i], ends[i]), level) for i, level in zip(order, levels, strict=True)]
    return [place for part, _ in parts for place in part], [level for part, level in parts for _ in part]


def _shown(character: str, level: int) -> str:
    return _MIRRORED.get(character, character) if level % 2 else character


def _levels(text: str, base: Direction) -> list[int]:
    """The embedding level of each character; odd ones run from right to left."""
    level = 1 if base == "rtl" else 0
    classes = _neutrals(_weak(text, "R" if level else "L"), "R" if level else "L")
    levels = []
    for kind in classes:
        if level == 0:
            levels.append({"L": 0, "R": 1}.get(kind, 2))
        else:
            levels.append(1 if kind == "R" else 2)
    for index in range(len(text) - 1, -1, -1):  # L1: white space at the end keeps the base
        if unicodedata.bidirectional(text[index]) not in {"WS", "B", "S"}:
            break
        levels[index] = level
    return levels


def _weak(text: str, edge: str) -> list[str]:
    """Rules W1 to W7: numbers, their separators, and marks."""
    kinds = [unicodedata.bidirectional(character) or "L" for character in text]
    for i, kind in enumerate(kinds):
        if kind == "NSM":
            kinds[i] = kinds[i - 1] if i else edge
    strong = edge
    for i, kind in enumerate(kinds):
        strong = kind if kind in _STRONG else strong
        if kind == "EN" and strong == "AL":
            kinds[i] = "AN"
    kinds = ["R" if kind == "AL" else kind for kind in kinds]
    for i in range(1, len(kinds) - 1):
        before, after = kinds[i - 1], kinds[i + 1]
        if kinds[i] == "ES" and before == after == "EN":
            kinds[i] = "EN"
        elif kinds[i] == "CS" and before == after and before in {"EN", "AN"}:
            kinds[i] = before
    for step in (1, -1):  # W5: a run of terminators beside a number belongs to it
        places = range(len(kinds)) if step == 1 else range(len(kinds) - 1, -1, -1)
        for i in places:
            if kinds[i] == "ET" and 0 <= i - step < len(kinds) and kinds[i - step] == "EN":
                kinds[i] = "EN"
    strong = edge
    for i, kind in enumerate(kinds):
        if kind in {"ES", "ET", "CS"}:
            kinds[i] = "ON"
        strong = kind if kind in {"L", "R"} else strong
        if kind == "EN" and strong == "L":
            kinds[i] = "L"
    return kinds


def _neutrals(kinds: list[str], edge: str) -> list[str]:
    """Rules N1 and N2: what has no direction follows its neighbours where they agree, else the line."""
    resolved = list(kinds)
    i = 0
    while i < len(kinds):
        if kinds[i] in {"L", "R", "EN", "AN"}:
            i += 1
            continue
        end = i
        while end < len(kinds) and kinds[end] not in {"L", "R", "EN", "AN"}:
            end += 1
        before = _side(kinds[i - 1]) if i else edge
        after = _side(kinds[end]) if end < len(kinds) else edge
        resolved[i:end] = [before if before == after else edge] * (end - i)
        i = end
    return resolved


def _side(kind: str) -> str:
    """Numbers count as right to left for what stands beside them."""
    return "L" if kind == "L" else "R"


def _display_order(text: Sequence[str], levels: Sequence[int]) -> list[int]:
    """Rules L2 and L3: the logical place of each character of the display."""
    order = list(range(len(levels)))
    lowest_odd = min((level for level in levels if level % 2), default=1)
    for level in range(max(levels, default=0), lowest_odd - 1, -1):
        i = 0
        while i < len(order):
            end = i
            while end < len(order) and levels[order[end]] >= level:
                end += 1
            order[i:end] = order[i:end][::-1]
            i = max(end, i + 1)
    return _marks_after_letters(text, levels, order)


def _marks_after_letters(text: Sequence[str], levels: Sequence[int], order: list[int]) -> list[int]:
    """In a reversed run the marks stand before their letter; they are written after it, as everywhere."""
    result: list[int] = []
    marks: list[int] = []
    for place in order:
        if levels[place] % 2 and unicodedata.bidirectional(text[place]) == "NSM":
            marks.append(place)
        else:
            result.append(place)
            result += marks[::-1]
            marks = []
    return result + marks[::-1]
