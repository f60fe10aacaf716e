"""Accuracy and areas of a map with intervals, from references in strata.

One formula serves all: each figure is a ratio of two means over the area, and its variance that of the
residuals within the strata (Stehman 2014). Where the strata are the classes of the map, these are the
equations of Olofsson et al. 2014; with one stratum, those of simple random sampling.

Sources: Olofsson et al. 2014, Good practices for estimating area and assessing accuracy of land change,
Remote Sensing of Environment 148, eq. 1-13; Stehman 2014, Estimating area and map accuracy for stratified
random sampling when the strata are different from the map classes, International Journal of Remote
Sensing 35, eq. 25-30.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from geomix.learn.report import FEW
from geomix.report import json_text, table

Z95 = 1.96
"""Half the width of a 95 % interval in standard errors."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure and half the width of its 95 % interval; NaN where the references do not tell."""

    value: float
    half: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:.3f} ±{'?' if math.isnan(self.half) else f'{self.half:.3f}'}"


@dataclass(frozen=True)
class ClassAccuracy:
    """What the references say of one class."""

    users: Estimate
    """Part of the mapped area that is of the class: 1 less commission."""
    producers: Estimate
    """Part of the area of the class that is mapped as it: 1 less omission."""
    f1: Estimate
    area: Estimate
    """Area of the class in the unit of the strata's areas, corrected by the references."""
    mapped: float
    """Area that the map gives it; NaN where it is not known."""
    references: int


@dataclass(frozen=True)
class Accuracy:
    """Accuracy and areas of a map."""

    overall: Estimate
    classes: dict[str, ClassAccuracy]
    confusion: NDArray[np.int64]
    """References by class of the map (rows) and of the reference (columns), [K, K]."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures must know."""

    def figures(self) -> dict[str, Any]:
        """All figures by name, for JSON; `half` is half the width of the 95 % interval."""
        return {
            "overall": _pair(self.overall),
            "references": int(self.confusion.sum()),
            "classes": {
                name: {
                    "users": _pair(one.users),
                    "producers": _pair(one.producers),
                    "f1": _pair(one.f1),
                    "area_ha": _pair(one.area),
                    "mapped_ha": one.mapped,
                    "references": one.references,
                }
                for name, one in self.classes.items()
            },
            "confusion": {
                name: dict(zip(self.classes, row, strict=True))
                for name, row in zip(self.classes, self.confusion.tolist(), strict=True)
            },
            "notes": list(self.notes),
        }

    def json(self) -> str:
        """The figures as JSON."""
        return json_text(self.figures())

    def text(self) -> str:
        """Tables and notes, for people."""
        rows = [
            (
                name,
                str(one.users),
                str(one.producers),
                str(one.f1),
                _number(one.mapped),
                f"{_number(one.area.value)} ±{_number(one.area.half)}".replace("±-", "±?"),
                one.references,
            )
            for name, one in self.classes.items()
        ]
        columns = ("class", "user's", "producer's", "F1", "mapped ha", "estimated ha", "references")
        counts = [(name, *row) for name, row in zip(self.classes, self.confusion.tolist(), strict=True)]
        return "\n\n".join(
            (
                f"Overall accuracy {self.overall}, 95 % intervals, {int(self.confusion.sum())} references",
                table(columns, rows),
                table(("map \\ reference", *self.classes), counts),
                *(f"warning: {note}" for note in self.notes),
            )
        )

    def csv(self) -> str:
        """One line a class: figures with half widths, then its row of the confusion matrix."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        keys = ("users", "producers", "f1", "area_ha")
        halves = [name for key in keys for name in (key, f"{key}_half")]
        writer.writerow(
            ("class", *halves, "mapped_ha", "references", *(f"as {name}" for name in self.classes))
        )
        for (name, one), row in zip(self.classes.items(), self.confusion.tolist(), strict=True):
            pairs = (one.users, one.producers, one.f1, one.area)
            numbers = [part for pair in pairs for part in (pair.value, pair.half)] + [one.mapped]
            writer.writerow((name, *(_plain(number) for number in numbers), one.references, *row))
        return file.getvalue()


def estimate(
    counts: NDArray[np.integer[Any]],
    areas: Sequence[float] | Array,
    names: Sequence[str],
    mapped: Mapping[str, float] | None = None,
) -> Accuracy:
    """Estimate accuracy and areas.

    Args:
        counts: references by stratum, class of the map and class of the reference, [H, K, K]; or [K, K],
            where the classes of the map are the strata.
        areas: the area of each stratum in any unit, [H].
        names: of the K classes.
        mapped: the area of each class on the map.

    Returns:
        The figures; areas in the unit of `areas`. A stratum without references is left out with a note, and
        with a single one its spread is not known.

    Raises:
        InputError: if shapes do not fit, there are no references, or an area is negative.
    """
    table_of = np.asarray(counts, dtype=np.int64)
    if table_of.ndim == 2:
        table_of = np.eye(len(table_of), dtype=np.int64)[:, :, None] * table_of
    sizes = np.asarray(areas, dtype=np.float64)
    if table_of.shape != (len(sizes), len(names), len(names)):
        raise InputError(
            f"{len(sizes)} strata and {len(names)} classes need such counts, got {list(table_of.shape)}"
        )
    if (sizes < 0).any() or (table_of < 0).any():
        raise InputError("areas and counts must not be negative")
    numbers = table_of.sum(axis=(1, 2))
    if not numbers.sum():
        raise InputError("there are no references")
    notes = _notes(numbers, sizes, table_of.sum(axis=(0, 1)), names)
    used = numbers > 0
    strata = _Strata(table_of[used], sizes[used], float(sizes[used].sum()))
    same = np.eye(len(names))
    ones = np.ones_like(same)
    found = {}
    for place, name in enumerate(names):
        is_map, is_reference = np.zeros_like(same), np.zeros_like(same)
        is_map[place], is_reference[:, place] = 1, 1
        both = is_map * is_reference
        share = strata.ratio(is_reference, ones)
        found[name] = ClassAccuracy(
            strata.ratio(both, is_map),
            strata.ratio(both, is_reference),
            strata.ratio(2 * both, is_map + is_reference),
            Estimate(share.value * strata.area, share.half * strata.area),
            math.nan if mapped is None else mapped.get(name, 0.0),
            int(table_of[:, :, place].sum()),
        )
    return Accuracy(strata.ratio(same, ones), found, table_of.sum(axis=0), tuple(notes))


@dataclass(frozen=True)
class _Strata:
    counts: NDArray[np.int64]
    sizes: Array
    area: float

    def ratio(self, top: Array, bottom: Array) -> Estimate:
        """Mean of `top` over mean of `bottom`, which say what a reference of each cell counts, [K, K]."""
        number = self.counts.sum(axis=(1, 2))
        weights = self.sizes / self.area
        means = [(self.counts * part).sum(axis=(1, 2)) / number for part in (top, bottom)]
        above, below = (float((weights * mean).sum()) for mean in means)
        if below == 0:
            return Estimate(math.nan, math.nan)
        value = above / below
        rest = top - value * bottom
        mean = (self.counts * rest).sum(axis=(1, 2)) / number
        squares = (self.counts * (rest - mean[:, None, None]) ** 2).sum(axis=(1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            # n - 1 from the spread, n from the mean; the part of the map that was sampled is negligible.
            each = weights**2 * squares / (number - 1) / number
        if (number < 2).any():
            return Estimate(value, math.nan)
        return Estimate(value, Z95 * math.sqrt(float(each.sum())) / below)


def sample_size(
    users: Sequence[float] | Array, shares: Sequence[float] | Array, target: float = 0.01
) -> float:
    """How many references a map needs (Olofsson et al. 2014, eq. 13).

    Args:
        users: expected user's accuracy of each class, 0 to 1.
        shares: part of the map that each class has; their sum is 1.
        target: wanted standard error of the overall accuracy.

    Returns:
        The number, not yet rounded.
    """
    accuracy = np.asarray(users, dtype=np.float64)
    spread = np.sqrt(accuracy * (1 - accuracy))
    return float((np.asarray(shares) * spread).sum() / target) ** 2


def _notes(numbers: Array, sizes: Array, references: Array, names: Sequence[str]) -> list[str]:
    notes = []
    if (missing := (numbers == 0) & (sizes > 0)).any():
        share = 100 * sizes[missing].sum() / sizes.sum()
        notes.append(
            f"{int(missing.sum())} strata with {share:.1f} % of the area have no reference; all figures are "
            "for the rest"
        )
    if (numbers == 1).any():
        notes.append(
            "a stratum has a single reference, so its spread, and with it every interval, is unknown"
        )
    few = [f"{name} ({int(count)})" for name, count in zip(names, references, strict=True) if count < FEW]
    if few:
        notes.append(f"too few references to say anything (below {FEW}): {', '.join(few)}")
    return notes


def _pair(one: Estimate) -> dict[str, float]:
    return {"value": one.value, "half": one.half}


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _plain(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
