"""From grey pixels to ink: paper levelled, ruling and frames removed, polarity and size of writing found."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from htr.io.images import Grey
from htr.io.options import Polarity

Ink = NDArray[np.float32]

PITCH = 32.0
"""From one line of writing to the next at the scale on which lines are sought, px."""
_FAINTEST, _GRAIN = 0.045, 4.0
"""Strokes must be that much darker than the paper, and so many times darker than its grain."""
_HAIR = 0.4
"""Hairlines are that part as dark as what parts paper and ink."""
_BESIDE = 0.45
"""Paper in shadow is seldom darker than this part of the usual paper."""
FIRST_SIDE = 1600
"""Longer side of the page at the scale on which the size of the writing is estimated, px."""


@dataclass(frozen=True, eq=False)
class InkMap:
    """Where the ink of a page is, at the scale that makes its lines `PITCH` apart."""

    ink: Ink
    """0 is paper, 1 is full ink, [h, w]."""
    scale: float
    """Pixels of the map for one pixel of the page."""
    faint: Ink
    """The same down to hairlines, and to whatever else is as faint, [h, w]."""
    pictures: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 4), np.int32))
    """Boxes x0, y0, x1, y1 of seals, stamps and drawings, which `ink` leaves out, px of the map, [n, 4]."""


def ink_map(grey: Grey) -> InkMap | None:
    """The ink of a page with dark writing on light paper; None for a page without any.

    Args:
        grey: the page, [H, W].
    """
    first = min(FIRST_SIDE / max(grey.shape), 1.0)
    ink = writing(resized(grey, first))
    pitch = pitch_of_ink(ink)
    return None if pitch is None else ink_map_at(grey, first * PITCH / pitch)


def ink_map_at(grey: Grey, scale: float) -> InkMap:
    """The ink of a page at a given scale, within bounds that the memory sets."""
    scale = float(np.clip(scale, 0.02, min(2.0, 6000.0 / max(grey.shape))))
    small = resized(grey, scale)
    usual = unframed(small)
    pictures = pictures_in(usual, PITCH)
    ink = without_rim(without_boxes(usual, pictures), beside_the_sheet(small))
    return InkMap(ink, scale, writing(small, _HAIR), pictures)


def writing(grey: Grey, share: float = 1.0) -> Ink:
    """The ink of a page without ruling, frames and pictures, [h, w]; `share` as in `darkness`."""
    ink = unframed(grey, share)
    return without_boxes(ink, pictures_in(ink, PITCH))


def unframed(grey: Grey, share: float = 1.0) -> Ink:
    """The ink of a page without ruling and frames, [h, w]; `share` as in `darkness`."""
    return without_frame(without_rules(darkness(grey, share), PITCH))


def beside_the_sheet(grey: Grey) -> NDArray[np.bool_]:
    """What is dark as no paper of the page is and reaches the edge of the image: what it lies on, [h, w].

    The rim of the sheet is dark against its paper, and broken into pieces it looks like writing.
    """
    dark = (grey < _BESIDE * float(np.median(grey))).astype(np.uint8)
    # Strokes are narrower than that; the grain of what is dark is not.
    wide = cv2.morphologyEx(cv2.medianBlur(dark, 5), cv2.MORPH_OPEN, np.ones((13, 13), np.uint8))
    _, labels = cv2.connectedComponents(wide, connectivity=4)
    rim = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))
    beside = np.isin(labels, rim[rim > 0]).astype(np.uint8)
    # The opening rounds corners, and the rim itself is a little lighter.
    return np.asarray(cv2.dilate(beside, np.ones((9, 9), np.uint8)) > 0)


def without_rim(ink: Ink, beside: NDArray[np.bool_]) -> Ink:
    """The ink without the parts that lie mostly `beside` the sheet, [h, w] both."""
    count, labels = cv2.connectedComponents((ink > 0.1).astype(np.uint8), connectivity=8)
    # Letters that reach the rim are kept whole, for half a letter would be found too.
    share = np.bincount(labels[beside], minlength=count) / np.maximum(np.bincount(labels.ravel()), 1)
    rim = share > 0.5
    rim[0] = False
    return np.where(rim[labels], np.float32(0.0), ink).astype(np.float32)


def pictures_in(ink: Ink, pitch: float) -> NDArray[np.int32]:
    """Seals, stamps and drawings: boxes x0, y0, x1, y1 of high, wide parts that are full of ink, [n, 4]."""
    solid = (ink > 0.35).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(solid, connectivity=8)
    width, height = stats[:, cv2.CC_STAT_WIDTH], stats[:, cv2.CC_STAT_HEIGHT]
    boxes = []
    for index in np.flatnonzero((height > 2.0 * pitch) & (width > 1.2 * pitch)):
        x, y = stats[index, cv2.CC_STAT_LEFT], stats[index, cv2.CC_STAT_TOP]
        box = (x, y, x + width[index], y + height[index])
        if index and float(solid[box[1] : box[3], box[0] : box[2]].mean()) > 0.45:
            boxes.append(box)
    return np.array(boxes, np.int32).reshape(-1, 4)


def without_boxes(ink: Ink, boxes: NDArray[np.int32]) -> Ink:
    """The ink with nothing in some boxes x0, y0, x1, y1, [h, w]."""
    kept = ink.copy()
    for x0, y0, x1, y1 in boxes:
        kept[y0:y1, x0:x1] = 0.0
    return kept


def is_light_on_dark(grey: Grey) -> bool:
    """Whether the writing is lighter than what it stands on, as on a photographic negative.

    Strokes are thin: what differs from the median of its neighbourhood is a stroke, and the side on which
    most of them lie is that of the ink.
    """
    small = resized(grey, min(1200.0 / max(grey.shape), 1.0))
    size = max(min(31, (min(small.shape) - 1) // 2 * 2 + 1), 3)
    difference = small.astype(np.float32) - cv2.medianBlur(small, size)
    strength = float(np.percentile(np.abs(difference), 99.5))
    if strength < 12.0:
        return False
    dark = np.count_nonzero(difference < -0.5 * strength)
    light = np.count_nonzero(difference > 0.5 * strength)
    # A page in a black frame has some light specks; a negative has hardly any dark ones.
    return bool(light > 2 * dark and np.median(small) < 140)


def upright_polarity(grey: Grey, polarity: Polarity = "auto") -> Grey:
    """The page with dark ink on light paper.

    Args:
        grey: the page.
        polarity: of the ink: `dark`, `light`, or `auto` to find out.
    """
    is_light = is_light_on_dark(grey) if polarity == "auto" else polarity == "light"
    return 255 - grey if is_light else grey


def resized(grey: Grey, scale: float) -> Grey:
    """An image at another size."""
    size = (max(round(grey.shape[1] * scale), 1), max(round(grey.shape[0] * scale), 1))
    if size == (grey.shape[1], grey.shape[0]):
        return grey
    return np.asarray(
        cv2.resize(grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR), np.uint8
    )


def darkness(grey: Grey, share: float = 1.0) -> Ink:
    """How much darker than its paper each pixel is, 0 to 1, with shadows and stains levelled, [h, w].

    Args:
        grey: the page.
        share: part of the usual threshold between paper and ink; below 1 fainter strokes are ink too.
    """
    paper = cv2.morphologyEx(grey, cv2.MORPH_CLOSE, np.ones((25, 25), np.uint8))
    paper = cv2.medianBlur(paper, 25) if min(grey.shape) > 25 else paper
    paper = np.maximum(cv2.GaussianBlur(paper, (0, 0), 5.0).astype(np.float32), 1.0)
    relative = np.clip(1.0 - grey.astype(np.float32) / paper, 0.0, 1.0)
    # Where everything is black, as outside the sheet, a little noise would count as ink.
    relative *= np.clip((paper - 30.0) / 30.0, 0.0, 1.0)
    threshold = _local_threshold(relative, _threshold(relative))
    if share < 1.0:
        # Most of a page is paper: what is not much darker than its median is grain.
        grain = max(_GRAIN * float(np.median(relative)), _FAINTEST)
        threshold = np.minimum(np.maximum(share * threshold, grain), threshold)
    return np.asarray(np.clip((relative - 0.6 * threshold) / (0.8 * threshold), 0.0, 1.0), np.float32)


def _local_threshold(relative: NDArray[np.float32], threshold: float) -> NDArray[np.float32]:
    """The threshold of the page, down to half of it where the writing nearby is faint, [h, w].

    Not lower, because where there is no writing at all the texture of the paper would be left to rule.
    """
    block = 16
    height, width = relative.shape
    rows, columns = -(-height // block), -(-width // block)
    padded = np.pad(relative, ((0, rows * block - height), (0, columns * block - width)))
    # The darkest pixel of a block, then the usual of these around it: strokes, not specks.
    peaks = padded.reshape(rows, block, columns, block).max(axis=(1, 3))
    strokes = np.where(peaks > 0.5 * threshold, peaks, 0.0).astype(np.float32)
    count = cv2.GaussianBlur((strokes > 0).astype(np.float32), (0, 0), 4.0)
    strength = cv2.GaussianBlur(strokes, (0, 0), 4.0) / np.maximum(count, 1e-6)
    local = np.clip(0.6 * strength, 0.5 * threshold, threshold).astype(np.float32)
    return np.asarray(cv2.resize(local, (width, height), interpolation=cv2.INTER_LINEAR))


def _threshold(relative: NDArray[np.float32]) -> float:
    """Otsu's split of what stands out of the paper at all; never so low that its texture is ink."""
    standing = (relative[relative > 0.04] * 255).astype(np.uint8)
    if len(standing) < 50:
        return 0.25
    found, _ = cv2.threshold(standing.reshape(-1, 1), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    return float(np.clip(found / 255.0, 0.10, 0.45))


def without_rules(ink: Ink, pitch: float) -> Ink:
    """The ink without ruled lines, borders and edges of the sheet: what is long, straight and thin."""
    solid = (ink > 0.35).astype(np.uint8)
    rules = _level_rules(solid, pitch) | _level_rules(np.ascontiguousarray(solid.T), pitch).T
    rules |= _edges_of_sheets(solid, pitch)
    return np.where(rules, np.float32(0.0), ink).astype(np.float32)


def _level_rules(solid: NDArray[np.uint8], pitch: float) -> NDArray[np.bool_]:
    """Pixels of rules that run along x."""
    # Letters on the rule are high there: only what is as thin as a rule goes.
    tall = np.asarray(cv2.morphologyEx(solid, cv2.MORPH_OPEN, np.ones((6, 1), np.uint8)))
    thin = (solid > 0) & (tall == 0)
    # Ruling that is not quite level leaves a row after some length; thickened it still overlaps itself.
    thick = cv2.dilate(solid, np.ones((3, 1), np.uint8))
    long = np.asarray(cv2.morphologyEx(thick, cv2.MORPH_OPEN, np.ones((1, round(3.0 * pitch)), np.uint8)))
    # A faint rule is a row of dashes: more of its row than letters ever fill, for longer than a word.
    rows = cv2.dilate(thin.astype(np.uint8), np.ones((3, 1), np.uint8)).astype(np.float32)
    share = np.asarray(cv2.blur(rows, (round(7.0 * pitch), 1)))
    return np.asarray(thin & ((long > 0) | (share > 0.6)))


def _edges_of_sheets(solid: NDArray[np.uint8], pitch: float) -> NDArray[np.bool_]:
    """Pixels of upright seams, such as bindings and edges of sheets: broken, but straight past many lines."""
    joined = cv2.morphologyEx(solid, cv2.MORPH_CLOSE, np.ones((round(0.6 * pitch), 1), np.uint8))
    long = cv2.morphologyEx(joined, cv2.MORPH_OPEN, np.ones((round(6.0 * pitch), 1), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(long, connectivity=8)
    narrow = stats[:, cv2.CC_STAT_WIDTH] < 0.4 * pitch
    narrow[0] = False
    return np.asarray(narrow[labels] & (solid > 0))


def without_frame(ink: Ink) -> Ink:
    """The ink without what reaches the edge of the image and is larger than writing: binding, shadow."""
    labels_of = (ink > 0.35).astype(np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(labels_of, connectivity=8)
    height, width = ink.shape
    left, top = stats[:, cv2.CC_STAT_LEFT], stats[:, cv2.CC_STAT_TOP]
    right, bottom = left + stats[:, cv2.CC_STAT_WIDTH], top + stats[:, cv2.CC_STAT_HEIGHT]
    at_edge = (left <= 2) | (top <= 2) | (right >= width - 2) | (bottom >= height - 2)
    large = (stats[:, cv2.CC_STAT_HEIGHT] > 0.06 * height) | (stats[:, cv2.CC_STAT_WIDTH] > 0.15 * width)
    frame = at_edge & large
    frame[0] = False
    return np.where(frame[labels], np.float32(0.0), ink).astype(np.float32)


def pitch_of_ink(ink: Ink) -> float | None:
    """The usual distance from line to line, px; None where there is no ink that could be writing.

    From the autocorrelation of the ink down narrow columns, in which slanting lines stay apart; for pages
    with too few lines, from the height of connected ink.
    """
    typical = writing_height(ink)
    if typical is None:
        return None
    lags = np.arange(round(max(0.8 * typical, 8.0)), round(min(5.0 * typical, ink.shape[0] / 2.5)) + 1)
    fallback = 1.8 * typical
    if len(lags) < 5:
        return fallback
    strip = max(round(2.0 * typical), 8)
    columns = ink.shape[1] // strip
    profiles = ink[:, : columns * strip].reshape(ink.shape[0], columns, strip).mean(axis=2)
    smooth = cv2.GaussianBlur(profiles, (1, 0), sigmaX=0.1, sigmaY=max(0.12 * typical, 1.0))
    centred = smooth - cv2.GaussianBlur(smooth, (1, 0), sigmaX=0.1, sigmaY=2.0 * typical)
    # Bold headings must not drown the rest: each part of a column counts by its shape, not its weight.
    local = cv2.GaussianBlur(centred * centred, (1, 0), sigmaX=0.1, sigmaY=2.0 * typical)
    usual = float(np.mean(centred * centred))
    if usual <= 0:
        return fallback
    centred = centred / np.sqrt(local + 0.2 * usual)
    energy = float((centred * centred).sum())
    scores = np.array([(centred[lag:] * centred[:-lag]).sum() / energy for lag in lags])
    peaks = [i for i in range(1, len(lags) - 1) if scores[i] > scores[i - 1] and scores[i] >= scores[i + 1]]
    strong = [i for i in peaks if scores[i] > 0.15 and scores[i] > 0.6 * max(scores[peak] for peak in peaks)]
    return float(lags[strong[0]]) if strong else fallback


def writing_height(ink: Ink) -> float | None:
    """The height of the connected part, letter or word, in which the median pixel of the ink lies, px."""
    _, _, stats, _ = cv2.connectedComponentsWithStats((ink > 0.5).astype(np.uint8), connectivity=8)
    width, height, area = (
        stats[1:, cv2.CC_STAT_WIDTH],
        stats[1:, cv2.CC_STAT_HEIGHT],
        stats[1:, cv2.CC_STAT_AREA],
    )
    kept = (height >= 5) & (width >= 3) & (area >= 12)
    kept &= (height < max(ink.shape) / 5) & (area < 0.7 * width * height + 40)
    if area[kept].sum() < 60:
        return None
    height, area = height[kept], area[kept]
    order = np.argsort(height)
    weight = np.cumsum(area[order])
    return float(height[order][np.searchsorted(weight, weight[-1] / 2)])
