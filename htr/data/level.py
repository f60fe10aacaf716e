"""Setting a line straight: writing that climbs, is small or is dense becomes level, of one size and even.

Line images come out of pages in many ways: as upright boxes around sloping writing, or turned and tightly
cut. After this step they look alike, whoever cut them. Columns keep their order and their share of the width,
and so do positions.
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

MAX_SLOPE = 0.15
"""The steepest line that is set straight, px down a px along: about 8.5 degrees."""

SPREAD = 6.8
"""Height of the window in standard deviations of the rows of ink: half above and half below their middle."""

STROKES = 0.105
"""Strokes a px of an even line 32 px high: about two and a half tokens for each stroke of the pen."""

MAX_STRETCH = 2.0
"""The most that dense writing is widened; wide writing becomes narrower by at most a tenth."""

RULE = 0.05
"""Thickness of a rule at most, as a share of the height of the line."""

_BIN = 8
_TRACE = 24
_FAINT = 64
_INKED = 100


class Level(NamedTuple):
    """Where the writing of a line lies."""

    slope: float
    """Px down for a px along."""
    middle: float
    """The mean row of its ink at the middle of the image once straight, px."""
    spread: float
    """The standard deviation of the rows of its ink once straight, px."""


class Measured(NamedTuple):
    """Where the writing of a line lies once its rules are left out."""

    level: Level
    """In the image as given."""
    unruled: Image
    """The image without rules, made level by them where there are any."""
    rest: Level
    """Where the writing lies in `unruled`."""


def find_level(ink: Image) -> Level:
    """Find slope, place and size of writing.

    The slope is the one whose removal gathers the ink in the fewest rows. Short lines tell little about it:
    the shorter a line, the closer to level it is taken to be.

    Args:
        ink: uint8 [h, w], ink high on 0.
    """
    height, width = ink.shape
    rows, along, weight = _points(ink)
    if not len(rows):
        return Level(0.0, (height - 1) / 2, height / SPREAD)
    coarse = np.linspace(-MAX_SLOPE, MAX_SLOPE, 21)
    least = min(_moments(rows - slope * along, weight)[1] for slope in coarse)
    believed = 0.006 * width / max(least, height / 12)

    def gathered(slope: float) -> float:
        return float(
            (_histogram(rows - slope * along, weight) ** 2).sum() * np.exp(-((slope / believed) ** 2))
        )

    best = max(coarse, key=gathered)
    fine = np.clip(best + np.linspace(-0.0125, 0.0125, 11), -MAX_SLOPE, MAX_SLOPE)
    slope = float(max(fine, key=gathered))
    straight = rows - slope * along
    middle, spread = _moments(straight, weight)
    # Once more without what lies far off: a stain, a rule or the tip of another line.
    near = np.abs(straight - middle) <= 3.0 * spread
    middle, spread = _moments(straight[near], weight[near])
    return Level(slope, middle, spread)


def find_stretch(ink: Image) -> float:
    """Find by how much to widen straight writing for its strokes to follow each other at an even distance.

    A token that holds two letters can say only one of them: small or narrow hands need more tokens a px.

    Args:
        ink: uint8 [h, w], ink high on 0, level and of one size.

    Returns:
        A factor from 0.9 to `MAX_STRETCH`; 1 without ink.
    """
    inked = ink > _INKED
    columns = int(inked.any(0).sum())
    if not columns:
        return 1.0
    strokes = (inked[:, 1:] & ~inked[:, :-1]).sum(1)
    # The rows that cross the most strokes are those of the small letters, which every word has.
    crossed = float(np.sort(strokes)[-max(1, len(ink) // 8) :].mean())
    return float(np.clip(crossed / columns * len(ink) / 32 / STROKES, 0.9, MAX_STRETCH))


def unruled(ink: Image) -> Image:
    """Erase rules that run under or through straight writing: they would count as its lowest row.

    A rule is thin and goes on for twice the height of the line at least. Where it crosses a letter it stays.

    Args:
        ink: uint8 [h, w], ink high on 0, the rules level.

    Returns:
        The same image where there is no rule along a third of the ink, or nothing but rules.
    """
    height, width = ink.shape
    length, thick = 2 * height, max(2, round(RULE * height)) + 1
    if width < length:
        return ink
    dark = (ink > _TRACE).astype(np.uint8)
    # A rule climbs by a pixel now and then: rows are taken together by threes.
    band = np.asarray(cv2.dilate(dark, np.ones((3, 1), np.uint8)), dtype=np.uint8)
    runs, letters = _opened(band, (1, length)), _opened(dark, (thick, 1))
    rule = runs & (dark > 0) & ~letters
    if rule.any(0).sum() < max(1, dark.any(0).sum()) / 3:
        return ink
    erased = np.where(rule, np.uint8(0), ink)
    return erased if (erased > _FAINT).sum() > (ink > _FAINT).sum() / 20 else ink


def _opened(mask: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.bool_]:
    """What of a mask holds a whole block of `size` [h, w]; there is nothing beyond the edge of the image."""
    block = np.ones(size, np.uint8)
    opened = cv2.morphologyEx(mask, cv2.MORPH_OPEN, block, borderType=cv2.BORDER_CONSTANT, borderValue=(0.0,))
    return np.asarray(opened) > 0


def straighten(ink: Image, height: int, measured: Measured | None = None) -> Image:
    """Make writing level, of one size and even.

    Args:
        ink: uint8 [h, w], ink high on 0.
        height: of the result, px.
        measured: what `measure` says of it, where that is known already.

    Returns:
        uint8 [height, w * stretch * height / window], where the window is `SPREAD` standard deviations of the
        ink high, but no less than 0.2 and no more than 1.25 of the image, and the stretch as `find_stretch`
        gives it. All of that is measured without rules; the image keeps them.
    """
    level, unruled, rest = measured or measure(ink)
    stretch = find_stretch(_straight(unruled, rest, height))
    return _straight(ink, level, height, stretch)


def find_rows(ink: Image, level: Level) -> tuple[float, float]:
    """Find the part of an image that its writing needs, with a fifth of its height to spare on both sides.

    Args:
        ink: uint8 [h, w], ink high on 0.
        level: of its writing.

    Returns:
        Upper and lower bound as shares of the height, 0 to 1.
    """
    height, width = ink.shape
    reach = 0.7 * SPREAD * level.spread + abs(level.slope) * width / 2
    middle = level.middle + 0.5
    return max(0.0, (middle - reach) / height), min(1.0, (middle + reach) / height)


def measure(ink: Image) -> Measured:
    """Find where the writing of a line lies, whatever rules run under it.

    Args:
        ink: uint8 [h, w], ink high on 0.
    """
    level = find_level(ink)
    flat = _flat(ink, level.slope)
    plain = unruled(flat)
    if plain is flat:
        return Measured(level, ink, level)
    rest = find_level(plain)
    return Measured(rest._replace(slope=level.slope + rest.slope), plain, rest)


def _flat(ink: Image, slope: float) -> Image:
    height, width = ink.shape
    matrix = np.array([[1, 0, 0], [-slope, 1, slope * (width - 1) / 2]], dtype=np.float64)
    return np.asarray(cv2.warpAffine(ink, matrix, (width, height), flags=cv2.INTER_LINEAR), dtype=np.uint8)


def _straight(ink: Image, level: Level, height: int, stretch: float = 1.0) -> Image:
    old_height, width = ink.shape
    window = float(np.clip(SPREAD * level.spread, 0.2 * old_height, 1.25 * old_height))
    scale = height / window
    new_width = max(4, round(width * scale * stretch))
    across = new_width / width
    # y' = scale * (y - slope * (x - centre) - top), x' = across * x
    centre = (width - 1) / 2
    top = level.middle - window / 2
    matrix = np.array(
        [[across, 0, 0], [-scale * level.slope, scale, scale * (level.slope * centre - top)]],
        dtype=np.float64,
    )
    return np.asarray(
        cv2.warpAffine(ink, matrix, (new_width, height), flags=cv2.INTER_LINEAR), dtype=np.uint8
    )


def _points(ink: Image) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows, places along the line and weights of the ink, columns taken together by eights."""
    width = ink.shape[1]
    strong = np.where(ink > _FAINT, ink, 0).astype(np.float64)
    bins = np.add.reduceat(strong, np.arange(0, width, _BIN), axis=1)
    rows, columns = np.nonzero(bins)
    along = columns.astype(np.float64) * _BIN + (_BIN - 1) / 2 - (width - 1) / 2
    return rows.astype(np.float64), along, bins[rows, columns].astype(np.float64)


def _histogram(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    low = np.floor(rows).astype(np.int64)
    share = rows - low
    low -= low.min()
    size = int(low.max()) + 2
    counts = np.bincount(low, weight * (1 - share), size) + np.bincount(low + 1, weight * share, size)
    return np.asarray(counts, dtype=np.float64)


def _moments(rows: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[float, float]:
    middle = float(np.average(rows, weights=weight))
    return middle, float(np.sqrt(np.average((rows - middle) ** 2, weights=weight)))
