"""The log of a run: one line of figures per epoch, as JSON lines, as CSV and, on request, for TensorBoard."""

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

from geomix.errors import MissingPackageError
from geomix.files import new_file


class RunLog:
    """Write `log.jsonl` and `log.csv` of a run folder, and event files for TensorBoard in `tensorboard/`.

    Args:
        folder: the run folder.
        tensorboard: whether to write event files; it needs the package `tensorboard`.

    Raises:
        MissingPackageError: if that package is needed and not installed.
    """

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self._folder = folder
        self._writer: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise MissingPackageError(
                    "train.tensorboard: needs the package tensorboard; install it, or leave this out: "
                    "log.csv holds the same figures"
                ) from None
            self._writer = SummaryWriter(str(folder / "tensorboard"))

    def add(self, line: dict[str, Any]) -> None:
        """Append the figures of an epoch, after dropping those of epochs that a resumed run repeats."""
        file = self._folder / "log.jsonl"
        old = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        lines = [known for known in map(json.loads, old) if known["epoch"] < line["epoch"]] + [line]
        _replace(file, "".join(json.dumps(one) + "\n" for one in lines))
        # Epochs without validation have fewer figures: their cells stay empty.
        columns = list(dict.fromkeys(name for one in lines for name in one))
        text = StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        _replace(self._folder / "log.csv", text.getvalue())
        if self._writer is not None:
            for name, value in line.items():
                if name != "epoch":
                    self._writer.add_scalar(name, value, line["epoch"])
            self._writer.flush()


def _replace(file: Path, text: str) -> None:
    with new_file(file, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
