"""Results on stdout: aligned columns for people, JSON for programs."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def json_text(value: Any) -> str:
    """Write a value as JSON that every parser accepts: NaN and infinity become null."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write rows under a header: numbers right-aligned with four digits, None and NaN as `-`."""
    body = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *body, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*body, strict=True)] or [
        False
    ] * len(columns)
    lines = []
    for row in ([*columns], *body):
        cells = zip(row, widths, numeric, strict=True)
        lines.append("  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip())
    return "\n".join(lines)


def flat(scores: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The single figures of a nested result, named by their path; lists appear only in JSON."""
    rows: list[tuple[str, Any]] = []
    for key, value in scores.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}.{inner}", figure) for inner, figure in flat(value)]
        elif not isinstance(value, list | tuple):
            rows.append((key, value))
    return rows


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(cell: str) -> bool:
    return (
        cell == "-"
        or cell.replace(".", "", 1).replace("e", "").lstrip("-+").replace("+", "").replace("-", "").isdigit()
    )
