"""The classes of labelled data: from a table of the user, or from the labels themselves."""

import colorsys
import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from geomix.checkpoint import ClassInfo
from geomix.config import hint
from geomix.errors import FormatError, InputError, MissingFileError

VOID = -1
"""Number of a label that belongs to no class."""

_COLUMNS = ("from", "to", "name", "color")


@dataclass(frozen=True)
class ClassMap:
    """Which label belongs to which class."""

    classes: tuple[ClassInfo, ...]
    """By rising id."""
    ids: Mapping[str, int | None]
    """Label as text, or its beginning with `*`, -> id of its class; None for a label that is left out."""

    def number(self, labels: Iterable[object]) -> tuple[NDArray[np.int64], Counter[str]]:
        """The class number of each label, the place of its class in `classes`.

        Args:
            labels: as the data hold them: text, numbers, None or NaN for nothing.

        Returns:
            Numbers, int64, [N], `VOID` where there is no class; and how often each label occurs that the
            map does not know.
        """
        places = {entry.id: place for place, entry in enumerate(self.classes)}
        unknown: Counter[str] = Counter()
        found = []
        for label in labels:
            text = label_text(label)
            code = self._find(text)
            if code is None and text and not self._knows(text):
                unknown[text] += 1
            found.append(VOID if code is None else places[code])
        return np.array(found, dtype=np.int64), unknown

    def _find(self, text: str) -> int | None:
        rule = self._rule(text)
        return None if rule is None else self.ids[rule]

    def _knows(self, text: str) -> bool:
        return self._rule(text) is not None

    def _rule(self, text: str) -> str | None:
        """The rule for a label: the label itself, else the longest beginning."""
        if text in self.ids:
            return text
        fitting = [rule for rule in self.ids if rule.endswith("*") and text.startswith(rule[:-1])]
        return max(fitting, key=len, default=None)


def label_text(label: object) -> str:
    """A label as text: 3301010101 for the integer and the whole float alike, empty for None and NaN."""
    if label is None or label != label:
        return ""
    if isinstance(label, float | np.floating) and float(label).is_integer():
        label = int(label)
    text = str(label).strip()
    return "" if text in ("<NA>", "NaT") else text


def classes_in(labels: Iterable[object], most: int = 255) -> ClassMap:
    """Make a class of each label that occurs.

    Whole numbers within 0 and `most` - 1 keep their number as id; all other labels are numbered from 1 in
    the order of the alphabet.

    Raises:
        InputError: if there are no labels or too many different ones.
    """
    found = sorted({text for text in map(label_text, labels) if text})
    if not found:
        raise InputError("the labels are all empty")
    if len(found) >= most:
        raise InputError(
            f"{len(found)} different labels are too many for a map, which holds {most - 1}; "
            "join them with --classes map.csv"
        )
    if all(text.isdecimal() and int(text) < most for text in found):
        found.sort(key=int)
        ids = {text: int(text) for text in found}
    else:
        ids = {text: number for number, text in enumerate(found, 1)}
    classes = tuple(ClassInfo(id=ids[text], name=text, color=color_of(ids[text])) for text in found)
    return ClassMap(classes, dict(ids))


def read_classes(file: Path) -> ClassMap:
    """Read a table of classes: CSV with the columns from, to, name, color, or a QGIS style (.qml).

    `from` is a label of the data, or its beginning and `*`, as in `3301*` for all cereals of HCAT. `to` is
    the id of the class in the map; where it is empty, classes are numbered by name from 1, and where the
    name is empty too, the label is left out. `name` and `color` (#rrggbb) need be given once a class.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if it is no such table.
    """
    if not file.is_file():
        raise MissingFileError(f"{file}: no such file")
    return _read_style(file) if file.suffix.lower() == ".qml" else _read_table(file)


def color_of(number: int) -> str:
    """A colour that differs from those of the numbers nearby, `#rrggbb`."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.65, 0.55 + 0.15 * (number % 4))
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in (red, green, blue)))


def _read_table(file: Path) -> ClassMap:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: is not text in UTF-8 ({error.reason})") from error
    first = text.partition("\n")[0]
    reader = csv.DictReader(text.splitlines(), delimiter=";" if ";" in first and "," not in first else ",")
    columns = tuple(name.strip() for name in reader.fieldnames or ())
    if "from" not in columns or not {"to", "name"} & {*columns}:
        raise FormatError(
            f"{file}: needs the columns from, and to or name; got {', '.join(columns) or 'none'}"
        )
    if unknown := [name for name in columns if name not in _COLUMNS]:
        raise FormatError(f"{file}: column {unknown[0]!r} is unknown{hint(unknown[0], _COLUMNS)}")
    reader.fieldnames = columns
    rows = [{key: (row.get(key) or "").strip() for key in _COLUMNS} for row in reader]
    names = sorted({row["name"] for row in rows if row["name"] and not row["to"]})
    ids: dict[str, int | None] = {}
    told: dict[int, dict[str, str]] = {}
    for line, row in enumerate(rows, 2):
        where = f"{file}, line {line}"
        if not row["from"]:
            raise FormatError(f"{where}: the column from is empty")
        if row["from"] in ids:
            raise FormatError(f"{where}: label {row['from']!r} stands twice")
        code = _id(row, names, where)
        ids[row["from"]] = code
        if code is not None:
            _agree(told.setdefault(code, {}), row, where)
    return ClassMap(_classes(told, file), ids)


def _id(row: dict[str, str], names: Sequence[str], where: str) -> int | None:
    if not row["to"]:
        return names.index(row["name"]) + 1 if row["name"] else None
    if not row["to"].isdecimal():
        raise FormatError(f"{where}: to must be a whole number, the id in the map, got {row['to']!r}")
    return int(row["to"])


def _agree(told: dict[str, str], row: dict[str, str], where: str) -> None:
    for key in ("name", "color"):
        if row[key] and told.setdefault(key, row[key]) != row[key]:
            raise FormatError(f"{where}: class {row['to']} has two {key}s, {told[key]!r} and {row[key]!r}")


def _classes(told: dict[int, dict[str, str]], file: Path) -> tuple[ClassInfo, ...]:
    if not told:
        raise FormatError(f"{file}: names no class")
    try:
        return tuple(
            ClassInfo(
                id=code,
                name=entry.get("name", str(code)),
                color=(entry.get("color") or color_of(code)).lower(),
            )
            for code, entry in sorted(told.items())
        )
    except ValueError as error:
        raise FormatError(f"{file}: a colour is not #rrggbb ({str(error).splitlines()[0]})") from error


def _read_style(file: Path) -> ClassMap:
    try:
        root = etree.parse(file).getroot()
    except etree.XMLSyntaxError as error:
        raise FormatError(f"{file}: is damaged ({error})") from error
    told = {}
    for entry in root.iter("paletteEntry"):
        value = entry.get("value", "")
        if not value.isdecimal():
            raise FormatError(f"{file}: value {value!r} of its palette is no whole number")
        told[int(value)] = {"name": entry.get("label") or value, "color": entry.get("color", "")[:7]}
    classes = _classes(told, file)
    return ClassMap(classes, {str(one.id): one.id for one in classes} | {one.name: one.id for one in classes})
