"""Progress of a long job: a bar and log lines on stderr, never on stdout.

A library should be silent, so nothing is shown until the command line calls `talk`.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from geomix.domains import DOMAINS

T = TypeVar("T")

PACKAGES = ("geomix", *DOMAINS)
"""The packages whose loggers speak to the user."""
_shown = False


class _CurrentStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current stderr: a caller may have replaced it since the handler was made."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _Line(logging.Formatter):
    """Information as it is; warnings and errors with their kind in front."""

    def format(self, record: logging.LogRecord) -> str:
        kind = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return kind + super().format(record)


def talk(quiet: bool = False, debug: bool = False) -> None:
    """Show progress and log lines on stderr; only warnings if quiet; also tracebacks to debug."""
    global _shown
    _shown = not quiet
    handler = _CurrentStderr()
    handler.setFormatter(_Line())
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)


def progress(items: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Yield the items and show how many are done.

    Args:
        items: what is worked on.
        description: the words before the bar.
        total: the number of items, if `items` has no length.
    """
    if not (_shown and sys.stderr.isatty()):
        yield from items
        return
    # Imported here, because rich takes a tenth of a second that `geomix --help` does not need.
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description, total, console=Console(stderr=True), transient=True)
