"""A map against references: points that were sampled, or polygons that somebody looked at."""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from geomix.learn.classes import VOID, ClassMap
from sits.accuracy.areas import areas_of
from sits.accuracy.estimate import Accuracy, estimate
from sits.data.fields import Pixels, pixels_of
from sits.io.legend import LEARNED_TAG, Legend, read_legend
from sits.io.raster import grid_of, open_raster
from sits.io.vector import Labels

log = logging.getLogger(__name__)

Numbers = NDArray[np.int64]


def evaluate_map(
    map_file: Path,
    references: Labels,
    classes: ClassMap | None = None,
    strata: Path | None = None,
    inside: float = 1.0,
    seen: frozenset[str] = frozenset(),
) -> Accuracy:
    """Hold a map against references.

    Each reference counts once: a point by its pixel, a polygon by the commonest class of its pixels. Points
    from `sample_map` give honest areas; polygons do so only if they were drawn at random.

    Args:
        map_file: a class map.
        references: shapes with the true class, by the map's name or id.
        classes: which label belongs to which class of the map, where labels are other words.
        strata: a map of the strata by which the points were drawn; the classes of the map if not given.
        inside: distance from the edge of a polygon from which pixels count, pixels.
        seen: fingerprints of the shapes that the model of the map learned from.

    Raises:
        InputError: if no reference lies on the map, or none has a class of it.
    """
    legend = read_legend(map_file)
    truth, notes = _numbers(references, legend, classes)
    with open_raster(str(map_file)) as dataset:
        grid, codes = grid_of(dataset), dataset.read(1)
    pixels = pixels_of(references, truth, grid, inside)
    shown = _places(codes[pixels.rows, pixels.columns], legend)
    called, units = _commonest(pixels, shown, len(legend.classes))
    areas = areas_of(map_file)
    stratum, sizes = called, np.array([areas.get(entry.id, 0.0) for entry in legend.by_code])
    if strata is not None:
        stratum, sizes = _strata_of(strata, pixels, units, grid.shape)
    keep = called != VOID
    if not keep.all():
        notes.append(f"{int((~keep).sum())} references lie where the map shows nothing and do not count")
    counts = np.zeros((len(sizes), len(legend.classes), len(legend.classes)), dtype=np.int64)
    np.add.at(counts, (stratum[keep], called[keep], truth[units][keep]), 1)
    names = [entry.name for entry in legend.by_code]
    mapped = {entry.name: areas.get(entry.id, 0.0) for entry in legend.by_code}
    result = estimate(counts, sizes, names, mapped)
    notes += _learned(references, units, seen)
    if any(shape.area for shape in references.shapes):
        notes.append(
            "the references are polygons: areas and intervals hold only if they were drawn at random "
            "(`geomix sits sample` draws points)"
        )
    return Accuracy(result.overall, result.classes, result.confusion, (*notes, *result.notes))


def learned_shapes(map_file: Path) -> frozenset[str]:
    """Fingerprints of the shapes that the model of a map learned from, as its tags keep them."""
    with open_raster(str(map_file)) as dataset:
        return frozenset(dataset.tags().get(LEARNED_TAG, "").split())


def _numbers(references: Labels, legend: Legend, classes: ClassMap | None) -> tuple[Numbers, list[str]]:
    """The place of each reference's class in the legend by code, and what is to be said about it."""
    own = legend.by_code
    by_name = {entry.name: entry.id for entry in own}
    rules: dict[str, int | None] = {**{str(entry.id): entry.id for entry in own}, **by_name}
    if classes is not None:
        known = {entry.id for entry in own}
        for label, code in classes.ids.items():
            if code is not None and code not in known:
                raise InputError(f"class {code} of the table of classes is not on the map")
            rules[label] = code
    truth, unknown = ClassMap(own, rules).number(references.values)
    if (truth == VOID).all():
        raise InputError(
            f"{references.name}: no label is a class of the map; labels are "
            f"{', '.join(sorted(unknown)[:5])}, classes {', '.join(by_name)}; join them with --classes"
        )
    notes = [
        f"{count} references are {label!r}, which the map does not know" for label, count in unknown.items()
    ]
    return truth, notes


def _places(codes: NDArray[np.uint8], legend: Legend) -> Numbers:
    table = np.full(256, VOID, dtype=np.int64)
    for place, entry in enumerate(legend.by_code):
        table[entry.id] = place
    return table[codes]


def _commonest(pixels: Pixels, shown: Numbers, classes: int) -> tuple[Numbers, Numbers]:
    """The class that the map shows most often in each unit, `VOID` where none, and the units."""
    units, place = np.unique(pixels.shape, return_inverse=True)
    counts = np.zeros((len(units), classes), dtype=np.int64)
    inside = shown != VOID
    np.add.at(counts, (place.reshape(-1)[inside], shown[inside]), 1)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), VOID), units


def _strata_of(
    file: Path, pixels: Pixels, units: Numbers, shape: tuple[int, int]
) -> tuple[Numbers, NDArray[np.float64]]:
    """The stratum of each unit, by its first pixel, and the areas of the strata."""
    with open_raster(str(file)) as dataset:
        if (dataset.height, dataset.width) != shape:
            raise InputError(f"{file}: has another grid than the map; strata must lie on the map's grid")
        codes = dataset.read(1)
    areas = areas_of(file)
    order = sorted(areas)
    first = np.searchsorted(np.sort(pixels.shape), units)
    members = np.argsort(pixels.shape, kind="stable")[first]
    found = codes[pixels.rows[members], pixels.columns[members]]
    if not np.isin(found, order).all():
        raise InputError(f"{file}: shows nothing at some references")
    return np.searchsorted(order, found).astype(np.int64), np.array([areas[code] for code in order])


def _learned(references: Labels, units: Numbers, seen: frozenset[str]) -> list[str]:
    if not seen:
        return []
    keys = references.keys()
    shared = sum(keys[unit] in seen for unit in units)
    if not shared:
        return []
    return [f"{shared} of {len(units)} references took part in the training, so the figures flatter the map"]
