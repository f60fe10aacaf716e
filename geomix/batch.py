"""Many inputs in one call: a bad one is reported, the rest goes on."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from geomix.errors import GeomixError
from geomix.progress import progress

log = logging.getLogger(__name__)
T = TypeVar("T", str, Path)


def run_batch(inputs: Iterable[T], work: Callable[[T], object], description: str = "Files") -> int:
    """Do the work for each input and return the exit code: 1 if any of them failed.

    The error of an input should name it; it goes to stderr as one line.
    """
    items = list(inputs)
    failed = 0
    for item in progress(items, description):
        try:
            work(item)
        except GeomixError as error:
            failed += 1
            log.error("%s", one_line(error))
    if failed and len(items) > 1:
        log.error("%d of %d inputs failed", failed, len(items))
    return 1 if failed else 0


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())
