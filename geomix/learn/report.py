"""What `evaluate` tells: the confusion matrix with names, and the figures of each class."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from geomix.errors import InputError
from geomix.learn.metrics import scores
from geomix.report import json_text, table

FEW = 30
"""With fewer references than this a class says little."""


@dataclass(frozen=True)
class Report:
    """A confusion matrix and the names of its classes."""

    names: tuple[str, ...]
    matrix: Tensor
    """Counts, int64, [K, K]; rows are the truth, columns the prediction."""
    unit: str = "pixels"
    """What is counted: pixels, points, characters."""

    def __post_init__(self) -> None:
        if self.matrix.shape != (len(self.names), len(self.names)):
            raise InputError(
                f"{len(self.names)} names of classes, but a confusion matrix of {list(self.matrix.shape)}"
            )

    def figures(self) -> dict[str, Any]:
        """All figures by name, for JSON.

        Returns:
            `oa`, `miou`, `macro_f1` as in `geomix.learn.metrics.scores`; the count under the name of the
            unit; `classes`: name -> `precision`, `recall`, `f1`, `iou`, `support` (times in the truth) and
            `predicted`; `confusion`: true name -> predicted name -> count.
        """
        found = scores(self.matrix)
        truth, called = self.matrix.sum(1).tolist(), self.matrix.sum(0).tolist()
        each = ("precision", "recall", "f1", "iou")
        return {
            "oa": found["oa"],
            "miou": found["miou"],
            "macro_f1": found["macro_f1"],
            self.unit: int(self.matrix.sum()),
            "classes": {
                name: {key: found[key][place] for key in each}  # type: ignore[index]
                | {"support": truth[place], "predicted": called[place]}
                for place, name in enumerate(self.names)
            },
            "confusion": {
                name: dict(zip(self.names, row, strict=True))
                for name, row in zip(self.names, self.matrix.tolist(), strict=True)
            },
        }

    def warnings(self, fewest: int = FEW) -> list[str]:
        """A line for each class with too few references, and for each that has none at all."""
        lines = []
        for name, count in zip(self.names, self.matrix.sum(1).tolist(), strict=True):
            if count == 0:
                lines.append(f"class {name!r} does not occur in the truth, so nothing is known of it")
            elif count < fewest:
                lines.append(
                    f"class {name!r} has {count} {self.unit} only, too few to say anything (below {fewest})"
                )
        return lines

    def text(self) -> str:
        """Figures, table of classes, confusion matrix and warnings, for people."""
        figures = self.figures()
        each = ("precision", "recall", "f1", "iou", "support", "predicted")
        rows = [(name, *(values[key] for key in each)) for name, values in figures["classes"].items()]
        parts = [
            table(
                ("metric", "value"), [(key, figures[key]) for key in ("oa", "miou", "macro_f1", self.unit)]
            ),
            table(("class", *each), rows),
            table(("truth \\ predicted", *self.names), self._counts()),
            *(f"warning: {line}" for line in self.warnings()),
        ]
        return "\n\n".join(parts)

    def json(self) -> str:
        """The figures as JSON."""
        return json_text(self.figures())

    def csv(self) -> str:
        """One line a class: its figures, then its row of the confusion matrix."""
        figures, file = self.figures(), io.StringIO()
        each = ("precision", "recall", "f1", "iou", "support", "predicted")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("class", *each, *(f"as {name}" for name in self.names)))
        for (name, values), row in zip(figures["classes"].items(), self.matrix.tolist(), strict=True):
            writer.writerow((name, *(_number(values[key]) for key in each), *row))
        return file.getvalue()

    def _counts(self) -> list[Sequence[Any]]:
        return [(name, *row) for name, row in zip(self.names, self.matrix.tolist(), strict=True)]


def _number(value: float) -> str:
    return "" if isinstance(value, float) and math.isnan(value) else f"{value:.6g}"
