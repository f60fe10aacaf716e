"""Whether a page lies on its side: its lines would then run from top to bottom."""

import cv2
import numpy as np

from htr.layout.ink import PITCH, Ink

SIDEWAYS = 1.0
"""Less means a page on its side. Of 16 real pages all have over 7, and 15 less than 0.5 when turned."""

STRIP = 8 * PITCH
"""Width of the strips that a page is cut into, px: within one even sloping lines are nearly level."""

SLOPES = (-0.14, -0.07, 0.0, 0.07, 0.14)
"""Slopes of a page that are tried, up to 8 degrees: lines of one that is skewed step in no row."""

CALM = 0.99
"""The part of the steps that counts: the sharpest are those of a rim of the sheet that was left."""


def uprightness(ink: Ink) -> float:
    """Compare how sharply rows of writing stand out on a page with how sharply columns do.

    Ink is summed along short pieces of each row. The sums step from one row to the next where letters and
    white lie above each other, as they do only across the direction of the writing.

    Args:
        ink: [h, w], lines about `PITCH` apart.

    Returns:
        4 to 40 for most upright pages, less than 1 for the same page on its side; 1 for too little writing.

    Source: after Postl's criterion for the skew of a page, the sum of squared steps of its profile.
    """
    if min(ink.shape) < 4 * PITCH:
        return 1.0
    down, across = _most_steps(ink), _most_steps(np.ascontiguousarray(ink.T))
    return down / across if down > 0 and across > 0 else 1.0


def _most_steps(ink: Ink) -> float:
    """The steps where the lines run level, whatever the slope of the page."""
    return max(_steps(_sheared(ink, slope)) for slope in SLOPES)


def _sheared(ink: Ink, slope: float) -> Ink:
    """The ink with lines of a slope, rise of y with x, made level."""
    height, width = ink.shape
    shear = np.array([[1.0, 0.0, 0.0], [-slope, 1.0, slope * width / 2]])
    return np.asarray(cv2.warpAffine(ink, shear, (width, height)), np.float32)


def _steps(ink: Ink) -> float:
    """Squared steps of the profiles of upright strips, after smoothing away single strokes; a mean."""
    width = ink.shape[1]
    size = min(round(STRIP), width)
    profiles = [ink[:, left : left + size].mean(axis=1) for left in range(0, width - size + 1, size)]
    smooth = cv2.GaussianBlur(np.stack(profiles, axis=1).astype(np.float64), (1, 0), PITCH / 6)
    steps = np.sort((np.diff(smooth, axis=0) ** 2).ravel())
    return float(steps[: round(CALM * len(steps))].mean())
