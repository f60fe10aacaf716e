"""Plain text and JSON out, and the JSON back in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError, MissingFileError
from geomix.files import new_file
from htr.io.words import words_of
from htr.io.xmlfile import clean_text
from htr.page import Line, Page, Region, as_points

VERSION = 1
"""Raised when a key changes its meaning or goes."""


def write_text(page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write one line of UTF-8 text per line of the page but those aside, unread lines as empty ones.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    lines = [clean_text(line.text or "") for line in page.lines if not line.is_aside]
    with new_file(path, overwrite) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_json(page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write the page as JSON with the places and confidences of lines, words and characters.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
    """
    with new_file(path, overwrite) as temporary:
        document = json.dumps(page_dict(page), ensure_ascii=False, indent=1, allow_nan=False)
        temporary.write_text(document + "\n", encoding="utf-8")


def page_dict(page: Page) -> dict[str, Any]:
    """The page as plain lists, strings and finite numbers; null is what is not known."""
    return {
        "format": VERSION,
        "source": page.source,
        "frame": page.frame,
        "width": page.width,
        "height": page.height,
        "orientation": page.orientation,
        "direction": page.direction,
        "text": page.text,
        "regions": [
            {
                "id": region.id,
                "kind": region.kind,
                "direction": region.direction,
                "polygon": _rows(region.polygon),
            }
            for region in page.regions
        ],
        "lines": [_line_dict(line) for line in page.lines],
        "dropped": [{"reason": line.error, "polygon": _rows(line.polygon)} for line in page.dropped],
    }


def read_json(path: str | Path) -> Page:
    """Read the lines that `write_json` wrote; places of single characters are left out.

    Raises:
        MissingFileError: if there is no such file.
        FormatError: if it is not such a file.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"{file}: no such file")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return Page(
            width=int(document["width"]),
            height=int(document["height"]),
            source=str(document["source"]),
            frame=int(document["frame"]),
            direction=document["direction"],
            regions=tuple(
                Region(
                    id=item["id"],
                    kind=item["kind"],
                    direction=item["direction"],
                    polygon=as_points(item["polygon"]),
                )
                for item in document["regions"]
            ),
            lines=tuple(_line(item) for item in document["lines"]),
        )
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{file}: is not a page as `geomix htr --format json` writes it ({error!r})"
        ) from error


def _line_dict(line: Line) -> dict[str, Any]:
    text = line.text or ""
    confidences = line.char_confidences if len(line.char_confidences) == len(text) else (None,) * len(text)
    boxes = line.char_boxes if len(line.char_boxes) == len(text) else (None,) * len(text)
    return {
        "id": line.id,
        "region": line.region,
        "kind": line.kind,
        "aside": line.is_aside,
        "direction": line.direction,
        "text": line.text,
        "confidence": _finite(line.confidence),
        "error": line.error,
        "baseline": _rows(line.baseline),
        "polygon": _rows(line.polygon),
        "box": _box(line.bounds()),
        "words": [
            {"text": word.text, "confidence": _finite(word.confidence), "box": _box(word.box)}
            for word in words_of(line)
        ],
        "characters": [
            {"text": character, "confidence": _finite(confidence), "box": _box(box)}
            for character, confidence, box in zip(text, confidences, boxes, strict=True)
        ],
    }


def _line(item: dict[str, Any]) -> Line:
    return Line(
        id=item["id"],
        region=item["region"],
        kind=item["kind"],
        is_aside=item.get("aside", False),
        direction=item["direction"],
        text=item["text"],
        confidence=item["confidence"],
        error=item["error"],
        baseline=as_points(item["baseline"]),
        polygon=as_points(item["polygon"]),
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def _rows(points: NDArray[np.float64]) -> list[list[float]]:
    return [[round(float(value), 1) for value in row] for row in points if np.isfinite(row).all()]


def _box(box: tuple[float, float, float, float] | NDArray[np.float64] | None) -> list[float] | None:
    return None if box is None or not np.isfinite(box).all() else [round(float(value), 1) for value in box]
