"""Points as text, .xyz, .txt, .csv and the like: one point a line, columns by name or by their number.

A file that is written again keeps its lines as they are and gets the class behind.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError
from pointcloud.cloud import Cloud, Source
from pointcloud.io.columns import class_values, flat_columns, interpret, is_known
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.units import in_metres

log = logging.getLogger(__name__)

_BARE = {
    3: ("x", "y", "z"),
    4: ("x", "y", "z", "intensity"),
    6: ("x", "y", "z", "red", "green", "blue"),
    7: ("x", "y", "z", "intensity", "red", "green", "blue"),
}
"""Number of columns of a file that does not name them -> what they are."""
_COMMENT = ("#", "//", ";", "%")


@dataclass(frozen=True, eq=False)
class TextPayload:
    """What the writer needs to write the file again."""

    lines: list[str]
    """All lines without their ends."""
    rows: list[int]
    """Which lines are points."""
    header: int | None
    """Which line names the columns."""
    separator: str
    class_column: int | None
    newline: str


def read(path: Path, options: ReadOptions) -> Cloud:
    """Read one point a line, with columns split by comma, semicolon, tab or blanks.

    Raises:
        FormatError: if a line is no row of numbers, naming the line, or there are no x, y and z.
    """
    raw = path.read_bytes()
    text = raw.decode("utf-8-sig", errors="replace")
    newline = "\r\n" if b"\r\n" in raw[:65536] else "\n"
    lines = text.splitlines()
    separator = _separator(lines)
    header, rows = _rows(path, lines, separator)
    values = _numbers(path, lines, rows, separator)
    names = _names(path, lines, header, separator, values)
    values = values if len(values) else np.zeros((0, len(names)))
    table = interpret({name: values[:, n] for n, name in enumerate(names)}, str(path), options)
    metres = in_metres(table.coord, str(path), options.unit)
    column = names.index(table.class_column) if table.class_column else None
    payload = TextPayload(lines, rows, header, separator, column, newline)
    return Cloud(
        coord=metres.coord,
        fields=table.fields,
        unit=metres.unit,
        source=Source(path, "text", payload, metres.coord, metres.numbers),
    )


def split(line: str, separator: str) -> list[str]:
    """The cells of a line; blanks count as one however many they are."""
    return line.split() if separator == " " else [cell.strip() for cell in line.split(separator)]


def _separator(lines: list[str]) -> str:
    sample = next((line for line in lines if line.strip() and not line.lstrip().startswith(_COMMENT)), "")
    return next((separator for separator in ",;\t" if separator in sample), " ")


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, `nan` included."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(path: Path, lines: list[str], separator: str) -> tuple[int | None, list[int]]:
    """The line that names the columns, if there is one, and the lines with points.

    Lines with one number before the points, as in .pts, are a count and no point.
    """
    header = None
    rows: list[int] = []
    for number, line in enumerate(lines):
        stripped = line.strip()
        if not stripped:
            continue
        if stripped.startswith(_COMMENT):
            cells = re.split(r"[\s,;]+", stripped.lstrip("#/;%").strip())
            if not rows and header is None and sum(map(is_known, cells)) >= 3:
                header = number
            continue
        if not rows and not is_number(split(stripped, separator)[0]):
            header = number
            continue
        if not rows and len(split(stripped, separator)) == 1 and len(lines) > number + 1:
            continue
        rows.append(number)
    if not rows and header is None:
        raise FormatError(f"{path}: holds no points, only {len(lines)} lines of something else")
    return header, rows


def _numbers(path: Path, lines: list[str], rows: list[int], separator: str) -> NDArray[np.float64]:
    """The points as numbers, float64 [N, C]."""
    if not rows:
        return np.zeros((0, 0))
    delimiter = None if separator == " " else separator
    try:
        return np.loadtxt([lines[row] for row in rows], delimiter=delimiter, ndmin=2, comments=None)
    except ValueError:
        pass
    width = len(split(lines[rows[0]], separator))
    for row in rows:
        cells = split(lines[row], separator)
        if len(cells) != width or not all(map(is_number, cells)):
            raise FormatError(
                f"{path}:{row + 1}: is no row of {width} numbers: {lines[row][:60]!r}; "
                "the file is damaged or is no point cloud"
            )
    raise FormatError(f"{path}: cannot be read as rows of numbers")


def _names(
    path: Path, lines: list[str], header: int | None, separator: str, values: NDArray[np.float64]
) -> list[str]:
    width = values.shape[1]
    if header is not None:
        line = lines[header].strip().lstrip("#/;%").strip()
        names = split(line, separator) if separator in line else re.split(r"[\s,;]+", line)
        names = [name.strip('"') for name in names]
        if not len(values) or len(names) == width:
            return names
        log.warning("%s: %d names stand over %d columns and are passed over", path, len(names), width)
    if width not in _BARE:
        raise FormatError(
            f"{path}: has {width} columns without names; 3, 4 (intensity), 6 (colour) or 7 (both) are known, "
            "or a first line that names them: x y z red green blue"
        )
    if width > 3:
        log.warning("%s: its %d columns are taken as %s", path, width, " ".join(_BARE[width]))
    return list(_BARE[width])


def write(cloud: Cloud, path: Path, options: WriteOptions) -> None:
    """Write lines of text: those of the source with the class behind, or a table with names; or ids alone.

    A `.txt` from anything but text holds one class id a line, in the order of the points, as the ScanNet
    benchmark takes them.

    Raises:
        InputError: if a class is no whole number from 0 up.
    """
    payload = cloud.source.payload if cloud.source else None
    is_csv = path.suffix.lower() == ".csv"
    if isinstance(payload, TextPayload) and (payload.separator == "," or not is_csv):
        lines = _changed(cloud, payload, options, path)
        newline = payload.newline
    elif path.suffix.lower() == ".txt" and "classification" in cloud.fields:
        lines, newline = [str(i) for i in class_values(cloud, None, str(path)).tolist()], "\n"
    else:
        lines, newline = _table(cloud, "," if is_csv else " "), "\n"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(line + newline for line in lines)


def _changed(cloud: Cloud, payload: TextPayload, options: WriteOptions, path: Path) -> list[str]:
    lines = list(payload.lines)
    added = {name: cloud.fields[name] for name in options.extra if name in cloud.fields}
    classes: list[str] = []
    has_classes = "classification" in cloud.fields
    if has_classes:
        classes = [str(i) for i in class_values(cloud, None, str(path)).tolist()]
    column = payload.class_column
    names = (["classification"] if has_classes and column is None else []) + list(added)
    if payload.header is not None and names:
        lines[payload.header] += payload.separator + payload.separator.join(names)
    behind = [[_digits(value) for value in values.tolist()] for values in added.values()]
    for number, row in enumerate(payload.rows):
        cells = [values[number] for values in behind]
        if has_classes and column is not None:
            lines[row] = _with_cell(lines[row], payload.separator, column, classes[number])
        elif has_classes:
            cells.insert(0, classes[number])
        lines[row] = payload.separator.join([lines[row].rstrip(), *cells])
    return lines


def _with_cell(line: str, separator: str, column: int, text: str) -> str:
    """The line with one cell replaced; the blanks between the others stay."""
    if separator != " ":
        cells = line.split(separator)
        return separator.join([*cells[:column], text, *cells[column + 1 :]])
    match = list(re.finditer(r"\S+", line))[column]
    return line[: match.start()] + text + line[match.end() :]


def _digits(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(cloud: Cloud, separator: str) -> list[str]:
    """A line of names and one line a point; every number in the shortest form that brings it back."""
    columns = flat_columns(cloud)
    cells = [[str(value) for value in values] for values in columns.values()]
    return [separator.join(columns), *(separator.join(row) for row in zip(*cells, strict=True))]
