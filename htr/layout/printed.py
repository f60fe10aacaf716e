"""Print and typescript told from handwriting: its letters stand apart, on one line, and are alike in height.

The measures are those of one line. Lines of print come one after another, so that neighbours have a say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.io.images import Grey
from htr.page import Line, Page, Region, bounds_of, box_polygon

Mode = Literal["auto", "text", "skip"]
PRINT = "print"
"""The kind of a line or region of print."""
SWITCH = 2.0
"""What a change from handwriting to print or back costs, in log odds: single lines seldom change."""
_WEIGHTS = np.array([5.61, 3.08, 2.82, 2.69, -9.96])
_OFFSET = -6.53
"""Logistic regression on 640 lines of typescript and print and 2,300 of handwriting, 14 collections without
their held-out documents; with one collection left out after the other 72 to 100 % of single lines of print
are told, and 0 to 13 % of handwriting are taken for print."""
_EVEN = 0.16
"""Letters stand on the line where they are no further from it than this part of their height."""


def print_odds(strip: Grey) -> float | None:
    """The log odds that a line is print; None where it has too few letters to tell.

    Args:
        strip: the line cut out, dark ink on light paper, uint8 [h, w].
    """
    measures = _measures(strip)
    return None if measures is None else float(measures @ _WEIGHTS + _OFFSET)


def are_print(odds: Sequence[float | None]) -> list[bool]:
    """Whether each line is print, by the likeliest sequence of handwriting and print (Viterbi).

    Args:
        odds: of the lines in reading order, as `print_odds` gives them.
    """
    best = np.array([0.0, -SWITCH])
    came: list[NDArray[np.int64]] = []
    for value in odds:
        step = np.array([[best[0], best[1] - SWITCH], [best[0] - SWITCH, best[1]]])
        came.append(step.argmax(axis=1))
        best = step.max(axis=1) + np.array([0.0, value or 0.0])
    state, states = int(best.argmax()), []
    for before in reversed(came):
        states.append(bool(state))
        state = int(before[state])
    return states[::-1]


def mark_print(page: Page, printed: Sequence[bool], mode: Mode = "auto") -> Page:
    """Give lines of print their kind and regions of their own.

    With `auto` they are beside the text where handwriting makes up half of the lines or more.

    Args:
        page: with its lines in reading order.
        printed: whether each of them is print.
        mode: `text` keeps print in the text always, `skip` never.
    """
    if not any(printed):
        return page
    aside = mode == "skip" or (mode == "auto" and 2 * sum(printed) <= len(printed))
    lines: list[Line] = []
    regions: list[Region] = []
    known = {region.id: region for region in page.regions}
    before: tuple[str | None, bool] | None = None
    for line, is_print in zip(page.lines, printed, strict=True):
        if (line.region, is_print) != before:
            before = line.region, is_print
            old = known.get(line.region or "", Region(id=""))
            kind = PRINT if is_print else old.kind
            regions.append(replace(old, id=f"region_{len(regions) + 1:04d}", kind=kind))
        kind, beside = (PRINT, aside) if is_print else (line.kind, False)
        lines.append(replace(line, region=regions[-1].id, kind=kind, is_aside=beside))
    return replace(page, lines=tuple(lines), regions=tuple(_around(region, lines) for region in regions))


def _around(region: Region, lines: Sequence[Line]) -> Region:
    bounds = bounds_of(line for line in lines if line.region == region.id)
    return replace(region, polygon=box_polygon(*bounds)) if bounds else region


def _measures(strip: Grey) -> NDArray[np.float64] | None:
    """Five measures of a line, in the order of `_WEIGHTS`, [5]; None for too few letters.

    How even feet and heads of the letters are, how many stand alone, how upright strokes are, and how much
    heights differ.
    """
    ink, paper = np.percentile(strip, (1, 80))
    if paper - ink < 30:
        return None
    dark = np.clip((paper - strip.astype(np.float32)) / (paper - ink), 0, 1).astype(np.float32)
    _, _, stats, _ = cv2.connectedComponentsWithStats((dark > 0.5).astype(np.uint8), connectivity=8)
    letters = stats[1:][
        (stats[1:, cv2.CC_STAT_HEIGHT] >= len(strip) / 8) & (stats[1:, cv2.CC_STAT_AREA] >= 20)
    ]
    if len(letters) < 4:
        return None
    left, top, width, height = letters[:, :4].astype(np.float64).T
    order = np.argsort(left + width / 2)
    usual = float(np.median(height))
    return np.array(
        [
            _evenness((top + height)[order], _EVEN * usual),
            _evenness(top[order], _EVEN * usual),
            width[width < 1.3 * height].sum() / width.sum(),
            _uprightness(dark),
            height.std() / usual,
        ]
    )


def _evenness(values: NDArray[np.float64], tolerance: float) -> float:
    """The share of values that are near the median of the seven around them."""
    windows = [np.median(values[max(i - 3, 0) : i + 4]) for i in range(len(values))]
    return float(np.mean(np.abs(values - windows) < tolerance))


def _uprightness(dark: NDArray[np.float32]) -> float:
    """The share of edges that are upright within 12 degrees, by their strength."""
    across, down = cv2.Sobel(dark, cv2.CV_32F, 1, 0), cv2.Sobel(dark, cv2.CV_32F, 0, 1)
    strength = np.hypot(across, down)
    upright = np.abs(down) < np.tan(np.radians(12)) * np.abs(across)
    return float(strength[upright].sum() / max(float(strength.sum()), 1e-9))
