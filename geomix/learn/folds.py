"""Folds for cross-validation that keep together what lies together, and a picture of them.

Samples of one polygon are alike, and so are polygons side by side. A fold that tests on the neighbours of
what was learned flatters, so whole blocks of space fall into one fold.

Source: Roberts et al. 2017, Cross-validation strategies for data with temporal, spatial, hierarchical, or
phylogenetic structure.
"""

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from geomix.files import new_file

Numbers = NDArray[np.int64]
Places = NDArray[np.float64]

_HALVINGS = 16
_SIDE = 800
_DOT = 4


def deal(labels: Numbers, groups: Numbers, folds: int, seed: int = 0) -> Numbers:
    """Deal groups out over folds so that each fold holds about the same share of each class.

    Args:
        labels: class number of each unit (a polygon, a point), [N].
        groups: units of one group fall into one fold, [N].
        folds: how many.
        seed: the same seed gives the same folds, whatever the order of the units.

    Returns:
        The fold of each unit, from 0, [N]; fold 0 to `folds` - 1 all hold something.

    Raises:
        InputError: if there are fewer than two folds, or fewer groups than folds.
    """
    if folds < 2:
        raise InputError(f"cross-validation needs at least 2 folds, got {folds}")
    names = np.unique(groups)
    if len(names) < folds:
        raise InputError(f"{folds} folds need at least {folds} groups, got {len(names)}; ask for fewer folds")
    classes = np.unique(labels)
    counts = np.zeros((len(names), len(classes)))
    np.add.at(counts, (np.searchsorted(names, groups), np.searchsorted(classes, labels)), 1)
    fold_of = _greedy(counts / counts.sum(axis=0), folds, np.random.default_rng(seed))
    return fold_of[np.searchsorted(names, groups)]


def _greedy(shares: NDArray[np.float64], folds: int, rng: np.random.Generator) -> Numbers:
    """The fold of each group: the most lopsided first, each to where the folds stay most alike.

    This is the rule of scikit-learn's `StratifiedGroupKFold` on shares of classes instead of counts of
    samples, so that rare classes are dealt out as evenly as common ones, and no fold stays empty.
    """
    order = rng.permutation(len(shares))
    order = order[np.argsort(-shares[order].std(axis=1), kind="stable")]
    held, found = np.zeros((folds, shares.shape[1])), np.zeros(len(shares), dtype=np.int64)
    sizes = np.zeros(folds, dtype=np.int64)
    for rank, group in enumerate(order):
        left = len(order) - rank
        empty = sizes == 0
        choices = np.flatnonzero(empty) if empty.sum() >= left else np.arange(folds)
        spreads = []
        for fold in choices:
            held[fold] += shares[group]
            spreads.append((held.std(axis=0).mean().round(12), held[fold].sum().round(12)))
            held[fold] -= shares[group]
        best = choices[min(range(len(choices)), key=lambda place: spreads[place])]
        held[best] += shares[group]
        sizes[best] += 1
        found[group] = best
    return found


def block_size(labels: Numbers, places: Places, folds: int) -> float:
    """The side of the blocks of space: the largest that leaves each class in enough of them.

    Args:
        labels: class number of each unit, [N].
        places: x and y of each unit in a projected system, [N, 2].
        folds: each class should lie in that many blocks; one with so few units that it could not, whatever
            the blocks, has no say.

    Returns:
        The side in the units of `places`; 0 where no block of any use leaves each class in enough blocks,
        so that units stand alone.
    """
    extent = float(np.ptp(places, axis=0).max()) if len(places) else 0.0
    size = extent / 2
    common = [one for one in np.unique(labels) if (labels == one).sum() >= 2 * folds]
    asked = common or [*np.unique(labels)]
    for _ in range(_HALVINGS if size > 0 else 0):
        found = blocks(places, size)
        if all(len(np.unique(found[labels == one])) >= folds for one in asked):
            return size
        size /= 2**0.5
    return 0.0


def blocks(places: Places, size: float) -> Numbers:
    """The number of the square block in which each unit lies, [N]; each unit its own where the size is 0.

    Blocks lie at multiples of their size, so that a unit more or less moves none of them.
    """
    if size <= 0:
        return np.unique(places, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    cells = np.floor(places / size).astype(np.int64)
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def draw_folds(
    places: Places, folds: Numbers, file: Path, size: float = 0.0, overwrite: bool = False
) -> Path:
    """Draw the units, coloured by fold, and the blocks, as PNG.

    Args:
        places: x and y of each unit, [N, 2].
        folds: the fold of each, [N].
        file: the picture.
        size: side of the blocks; 0 for none.
        overwrite: whether an existing file may be replaced.

    Raises:
        OutputExistsError: if the file exists and may not be replaced.
    """
    from PIL import Image, ImageDraw

    low, extent = places.min(axis=0), max(float(np.ptp(places, axis=0).max()), 1e-9)
    margin, count = 2 * _DOT, int(folds.max()) + 1
    scale = (_SIDE - 2 * margin) / extent

    def pixel(x: float, y: float) -> tuple[float, float]:
        return margin + (x - low[0]) * scale, _SIDE - margin - (y - low[1]) * scale

    picture = Image.new("RGB", (_SIDE, _SIDE + 24), "white")
    draw = ImageDraw.Draw(picture)
    if size > 0:
        for axis in (0, 1):
            for line in np.arange(np.floor(low[axis] / size), (low[axis] + extent) / size + 1) * size:
                ends = [(line, low[1]), (line, low[1] + extent)]
                if axis == 1:
                    ends = [(low[0], line), (low[0] + extent, line)]
                draw.line([pixel(*end) for end in ends], fill="#d0d0d0")
    for (x, y), fold in zip(places, folds, strict=True):
        left, top = pixel(x, y)
        draw.ellipse([left - _DOT, top - _DOT, left + _DOT, top + _DOT], fill=_color(int(fold), count))
    for fold in range(count):
        left = margin + 80 * fold
        draw.rectangle([left, _SIDE + 6, left + 12, _SIDE + 18], fill=_color(fold, count))
        draw.text((left + 18, _SIDE + 6), f"fold {fold + 1}", fill="black")
    with new_file(file, overwrite) as temporary:
        picture.save(temporary)
    return file


def _color(fold: int, count: int) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(fold / max(count, 1), 0.75, 0.8)
    return round(255 * red), round(255 * green), round(255 * blue)


def summary(labels: Numbers, folds: Numbers, names: Sequence[str]) -> list[tuple[object, ...]]:
    """Rows of a table: class, and how many of its units lie in each fold."""
    count = int(folds.max()) + 1
    return [
        (name, *(int(((labels == number) & (folds == fold)).sum()) for fold in range(count)))
        for number, name in enumerate(names)
    ]
