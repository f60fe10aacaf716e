"""Where lines of writing run: ridges of the ink, blurred along the direction of the writing nearby."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.layout.ink import PITCH, Ink

Field = NDArray[np.float32]

ANGLES = tuple(range(-14, 15, 2))
"""The slopes that are tried, degrees, positive is down to the right."""
NEARBY = 2.0 * PITCH
"""How far around a place its slope is averaged, px."""
ACROSS = 0.19 * PITCH
"""Width of the blur across the writing, px."""
ALONG = 0.9 * PITCH
"""Width of the blur along the writing, px."""


@dataclass(frozen=True, eq=False)
class Ridges:
    """A field that is high along the middle of lines, and the local slope of the writing."""

    response: Field
    """About 1 in the middle of a line of dense writing, below 0 between lines, [h, w]."""
    slope: Field
    """Rise of y with x of the writing nearby, [h, w]."""


def ridges(ink: Ink) -> Ridges:
    """Second derivative of the ink across the writing, blurred along it, in the slope that fits best nearby.

    Source: after Bukhari, Shafait and Breuel, Script-independent handwritten textlines segmentation using
    active contours, ICDAR 2009 (multi-oriented, multi-scale anisotropic Gaussians); here one scale, because
    the ink comes at the scale of its own line distance.
    """
    # A band of ink is some ten pixels wide: half the size shows it, and a quarter its slope.
    half, quarter = _shrunk(ink, 2), _shrunk(ink, 4)
    coarse = (max(ink.shape[1] // 8, 1), max(ink.shape[0] // 8, 1))
    energies = []
    for angle in ANGLES:
        found = np.maximum(cv2.filter2D(quarter, -1, _kernel(angle, 4), borderType=cv2.BORDER_CONSTANT), 0.0)
        small = cv2.resize(found * found, coarse, interpolation=cv2.INTER_AREA)
        energies.append(cv2.GaussianBlur(small, (0, 0), NEARBY / 8, borderType=cv2.BORDER_CONSTANT))
    slope = _peak_slope(np.stack(energies))
    response = _along_slope(half, _grown(slope, half.shape))
    return Ridges(_grown(response, ink.shape), _grown(slope, ink.shape))


def _shrunk(ink: Ink, factor: int) -> Ink:
    size = (max(ink.shape[1] // factor, 1), max(ink.shape[0] // factor, 1))
    return np.asarray(cv2.resize(ink, size, interpolation=cv2.INTER_AREA), np.float32)


def _grown(field: Field, size: tuple[int, ...]) -> Field:
    return np.asarray(cv2.resize(field, (size[1], size[0]), interpolation=cv2.INTER_LINEAR), np.float32)


def _peak_slope(energy: NDArray[np.float32]) -> Field:
    """The slope of the largest energy, refined by a parabola, smoothed by how sure it is, [h, w]."""
    best = np.clip(energy.argmax(axis=0), 1, len(ANGLES) - 2)
    left, middle, right = (np.take_along_axis(energy, (best + d)[None], axis=0)[0] for d in (-1, 0, 1))
    curve = left - 2 * middle + right
    shift = np.where(curve < 0, 0.5 * (left - right) / np.where(curve < 0, curve, 1.0), 0.0)
    angle = ANGLES[0] + (best + np.clip(shift, -1, 1)) * (ANGLES[1] - ANGLES[0])
    weight = middle + 1e-6 * float(middle.max()) + 1e-9
    size = 2.0 * NEARBY / 8
    blurred = cv2.GaussianBlur((angle * weight).astype(np.float32), (0, 0), size)
    blurred /= cv2.GaussianBlur(weight.astype(np.float32), (0, 0), size)
    return np.asarray(np.tan(np.deg2rad(blurred)), np.float32)


def _along_slope(ink: Ink, slope: Field) -> Field:
    """The ridge field, for each pixel in its own slope: mixed from the two nearest of the tried ones."""
    position = (np.rad2deg(np.arctan(slope)) - ANGLES[0]) / (ANGLES[1] - ANGLES[0])
    response = np.zeros_like(ink)
    for index, angle in enumerate(ANGLES):
        weight = np.maximum(1.0 - np.abs(position - index), 0.0)
        if weight.any():
            response += weight * cv2.filter2D(ink, -1, _kernel(angle, 2), borderType=cv2.BORDER_CONSTANT)
    return response.astype(np.float32)


def _kernel(angle: float, factor: int) -> NDArray[np.float32]:
    """Minus the second derivative across a line at `angle`; a band of ink of usual density gives 1.

    For a field shrunk by `factor`.
    """
    across, along = ACROSS / factor, ALONG / factor
    reach = int(np.ceil(2.5 * along))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float64)
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    u, v = x * cosine + y * sine, -x * sine + y * cosine
    bell = np.exp(-0.5 * ((u / along) ** 2 + (v / across) ** 2))
    kernel = (1.0 - (v / across) ** 2) * bell
    kernel -= kernel.mean()
    # Writing covers about a quarter of its band.
    return np.asarray(kernel / (0.25 * kernel[kernel > 0].sum()), np.float32)
