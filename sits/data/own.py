"""Own images and labels: sets of both, brought together as samples of labelled pixels."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rasterio.warp import transform_bounds

from geomix.checkpoint import ClassInfo
from geomix.errors import InputError
from geomix.learn.classes import VOID, ClassMap, classes_in
from sits.data.fields import Numbers, Samples, draw, pixels_of, places_of, read_samples
from sits.io import open_series
from sits.io.options import ReadOptions
from sits.io.vector import Labels, TableColumns, read_labels
from sits.series import TimeSeries

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageSet:
    """Images of one place and season with their labels."""

    images: tuple[str, ...]
    """Files, folders or patterns of one series."""
    labels: Path


@dataclass(frozen=True)
class LabelOptions:
    """How labels are read and laid on the images."""

    column: str | None = None
    """The column that holds the label."""
    layer: str | None = None
    """Layer of the file; needed where there are several."""
    coordinates: TableColumns = field(default_factory=TableColumns)
    classes: ClassMap | None = None
    """Which label belongs to which class; None for a class of each label."""
    inside: float = 1.0
    """Distance from the edge of a polygon from which pixels count, pixels."""
    most: int = 100
    """Most pixels of one polygon, so that large fields do not outweigh the others."""
    fewest: int = 3
    """Classes with fewer shapes are left out."""


@dataclass(frozen=True)
class OwnData:
    """Labelled pixels of all sets."""

    sets: tuple[Samples, ...]
    """Pixels of each set of images; `units` are numbers of `keys`."""
    classes: tuple[ClassInfo, ...]
    bands: tuple[str, ...]
    keys: tuple[str, ...]
    """Fingerprint of each shape, rising, [U]."""
    labels: Numbers
    """Class number of each shape, [U]."""
    places: NDArray[np.float64]
    """Metres east and north of each shape, [U, 2]."""
    shapes: NDArray[np.object_]
    """In degrees, [U]."""
    level: str | None
    """Processing level of the images, where they say it and agree."""
    bounds: tuple[float, float, float, float]
    """West, south, east, north of all images, degrees."""

    @property
    def dates(self) -> tuple[date, ...]:
        """All dates of all sets, rising."""
        return tuple(sorted({day for one in self.sets for day in one.dates}))


def pair_sets(images: Sequence[Sequence[str]], labels: Sequence[Path]) -> tuple[ImageSet, ...]:
    """Bring images and labels together.

    With one file of labels all images are one series; with several there are as many `images`, in order.

    Raises:
        InputError: if their numbers do not fit.
    """
    if not images or not labels:
        raise InputError("training on own labels needs --images and --labels")
    if len(labels) == 1:
        return (ImageSet(tuple(one for group in images for one in group), labels[0]),)
    if len(images) != len(labels):
        raise InputError(
            f"{len(labels)} files of labels need as many --images, in the same order; got {len(images)}"
        )
    return tuple(ImageSet(tuple(group), file) for group, file in zip(images, labels, strict=True))


def read_own(sets: Sequence[ImageSet], reading: ReadOptions, options: LabelOptions, seed: int = 0) -> OwnData:
    """Read the labelled pixels of all sets.

    Raises:
        InputError: if fewer than two classes are left, or the images of the sets share no bands.
        GeomixError: if images or labels cannot be read or lie apart.
    """
    tables = [read_labels(one.labels, options.column, options.layer, options.coordinates) for one in sets]
    classes = options.classes or _classes_of(tables)
    numbers, kept = _numbers(tables, classes, options.fewest)
    opened = [open_series(one.images, reading) for one in sets]
    bands = _common_bands(opened)
    keys = sorted(
        {key for table, number in zip(tables, numbers, strict=True) for key in _kept_keys(table, number)}
    )
    order = {key: place for place, key in enumerate(keys)}
    labels = np.zeros(len(keys), dtype=np.int64)
    places = np.zeros((len(keys), 2))
    shapes = np.empty(len(keys), dtype=object)
    samples = []
    for table, number, series in zip(tables, numbers, opened, strict=True):
        own = table.keys()
        unit = np.array([order.get(key, VOID) for key in own], dtype=np.int64)
        used = np.flatnonzero(number != VOID)
        labels[unit[used]] = number[used]
        places[unit[used]] = places_of(table)[used]
        shapes[unit[used]] = table.to("EPSG:4326").shapes[used]
        pixels = draw(pixels_of(table, number, series.grid, options.inside), own, options.most, seed)
        found = read_samples(series.select(bands), pixels, number)
        samples.append(_in_order(replace(found, units=unit[found.units])))
    return OwnData(
        tuple(samples), kept, bands, tuple(keys), labels, places, shapes, _level(opened), _bounds(opened)
    )


def _classes_of(tables: Sequence[Labels]) -> ClassMap:
    found = classes_in(value for table in tables for value in table.values)
    told = {entry.id: entry for table in tables for entry in table.classes}
    return replace(found, classes=tuple(told.get(entry.id, entry) for entry in found.classes))


def _numbers(
    tables: Sequence[Labels], classes: ClassMap, fewest: int
) -> tuple[list[Numbers], tuple[ClassInfo, ...]]:
    """Class numbers of the shapes of each table among the classes that are kept."""
    numbers: list[Numbers] = []
    unknown: Counter[str] = Counter()
    for table in tables:
        found, more = classes.number(table.values)
        numbers.append(found)
        unknown += more
    if unknown:
        words = ", ".join(f"{label} ({count})" for label, count in unknown.most_common(5))
        log.warning("labels that the table of classes does not name are left out: %s", words)
    whole = np.concatenate(numbers)
    counts = np.bincount(whole[whole != VOID], minlength=len(classes.classes))
    keep = counts >= fewest
    for entry, count, kept in zip(classes.classes, counts, keep, strict=True):
        if not kept and count:
            log.warning(
                "class %s has %d shapes, fewer than %d, and is left out; join it to another with --classes",
                entry.name,
                count,
                fewest,
            )
    if keep.sum() < 2:
        raise InputError(f"{int(keep.sum())} classes have at least {fewest} labelled shapes; two are needed")
    renumbered = np.where(keep, np.cumsum(keep) - 1, VOID)
    renumbered = np.append(renumbered, VOID)  # place of VOID
    kept_classes = tuple(entry for entry, ok in zip(classes.classes, keep, strict=True) if ok)
    return [renumbered[found] for found in numbers], kept_classes


def _kept_keys(table: Labels, number: Numbers) -> list[str]:
    return [key for key, place in zip(table.keys(), number, strict=True) if place != VOID]


def _common_bands(opened: Sequence[TimeSeries]) -> tuple[str, ...]:
    bands = tuple(band for band in opened[0].bands if all(band in one.bands for one in opened))
    if not bands:
        raise InputError(f"the images share no bands: {opened[0].bands} and {opened[-1].bands}")
    left = {band for one in opened for band in one.bands} - {*bands}
    if left:
        log.warning("bands that not all images have are left out: %s", ", ".join(sorted(left)))
    return bands


def _in_order(samples: Samples) -> Samples:
    """By shape, so that what is learned does not depend on the order of the labels in their file."""
    order = np.argsort(samples.units, kind="stable")
    return Samples(
        samples.values[order],
        samples.valid[order],
        samples.dates,
        samples.labels[order],
        samples.units[order],
    )


def _level(opened: Sequence[TimeSeries]) -> str | None:
    levels = {one.notes.get("level") for one in opened}
    return levels.pop() if len(levels) == 1 else None


def _bounds(opened: Sequence[TimeSeries]) -> tuple[float, float, float, float]:
    boxes = np.array([transform_bounds(one.grid.crs, "EPSG:4326", *one.grid.bounds) for one in opened])
    west, south = boxes[:, :2].min(axis=0)
    east, north = boxes[:, 2:].max(axis=0)
    return float(west), float(south), float(east), float(north)
