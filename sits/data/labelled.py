"""An image time series with labels, read by windows, and the sample that training sees of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from sits.data.inputs import Inputs, days_of, prepare
from sits.grid import Window
from sits.series import TimeSeries

IGNORE = -1
"""Label of pixels that are neither trained on nor scored."""


class Sample(NamedTuple):
    """A window of a labelled series, ready for the model."""

    values: NDArray[np.float32]
    """Normalised bands, [T, C, h, w]."""
    valid: NDArray[np.bool_]
    """Which pixels were seen, [T, h, w]."""
    days: NDArray[np.int64]
    """When, as the model's inputs count, [T]."""
    labels: NDArray[np.int64]
    """Class numbers, `IGNORE` where there is none, [h, w]."""
    name: str = ""
    """Where it comes from, for messages."""


@dataclass(frozen=True)
class LabelledSeries:
    """A series whose pixels have classes."""

    series: TimeSeries
    """With the bands of the model, in its order."""
    labels: NDArray[np.int64]
    """Class numbers, `IGNORE` where there is none, [H, W]."""
    within: Window | None = None
    """The part from which crops are taken; None for all of it."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.series.name

    @property
    def dates(self) -> tuple[date, ...]:
        """When the images were taken, rising."""
        return self.series.dates

    @property
    def part(self) -> Window:
        """The part from which crops are taken."""
        return self.within or self.whole

    @property
    def whole(self) -> Window:
        """The window of all pixels."""
        return Window(0, 0, *self.labels.shape)

    def sample(self, window: Window, inputs: Inputs) -> Sample:
        """Cut a window out and prepare it just as prediction does."""
        values, valid = self.series.read(window)
        return Sample(
            values=prepare(values, valid, inputs),
            valid=valid,
            days=days_of(self.dates, inputs),
            labels=self.labels[window.slices],
            name=f"{self.name} at row {window.row}, column {window.col}",
        )


def number_labels(
    codes: NDArray[np.integer], ids: Sequence[int], unlabelled: Sequence[int], where: str
) -> NDArray[np.int64]:
    """Turn the codes of a label raster into class numbers, the places in `ids`.

    Args:
        codes: label raster, [H, W].
        ids: the code of each class.
        unlabelled: codes that mean no label.
        where: the file, for the message.

    Raises:
        InputError: if the raster holds a code that is neither.
    """
    found = np.unique(codes)
    unknown = sorted(set(found.tolist()) - set(ids) - set(unlabelled))
    if unknown:
        raise InputError(
            f"{where}: holds code {unknown[0]}, which is neither a class ({', '.join(map(str, ids))}) nor "
            f"unlabelled ({', '.join(map(str, unlabelled)) or 'none'})"
        )
    numbers = np.full(codes.shape, IGNORE, dtype=np.int64)
    for number, code in enumerate(ids):
        numbers[codes == code] = number
    return numbers


def measure(series: Sequence[LabelledSeries]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the reflectance of each band over all valid pixels and dates.

    Raises:
        InputError: if no pixel is valid.
    """
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for one in series:
        values, valid = one.series.read(one.part)
        seen = np.moveaxis(values, 1, -1)[valid].astype(np.float64)
        count += len(seen)
        total = total + seen.sum(0)
        squares = squares + (seen**2).sum(0)
    if count == 0:
        raise InputError("the training data hold no valid pixel")
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-12))
    return tuple(mean.tolist()), tuple(std.tolist())


def count_classes(series: Sequence[LabelledSeries], classes: int) -> NDArray[np.int64]:
    """The labelled pixels of each class in the parts that crops are taken from, [K]."""
    counts = np.zeros(classes, dtype=np.int64)
    for one in series:
        labels = one.labels[one.part.slices]
        counts += np.bincount(labels[labels != IGNORE], minlength=classes)
    return counts
