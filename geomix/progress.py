"""What a long job says while it runs: a bar and log lines on stderr, never on stdout.

A library should not talk, so nothing is shown until `talk` is called, as the command line does.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from geomix.domains import DOMAINS

T = TypeVar("T")

PACKAGES = ("geomix", *DOMAINS)
"""Whose loggers speak to the user."""
_shown = False


class _CurrentStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the stderr of the moment: a caller may have replaced it since the handler was made."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _Line(logging.Formatter):
    """Information as it is; anything worse with its kind in front, like an error of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        kind = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return kind + super().format(record)


def talk(quiet: bool = False, debug: bool = False) -> None:
    """Show progress and log lines on stderr; when quiet, warnings alone; to debug, tracebacks too."""
    global _shown
    _shown = not quiet
    handler = _CurrentStderr()
    handler.setFormatter(_Line())
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)


def progress(items: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Pass the items on and show how many are done.

    Args:
        items: what is worked on.
        description: the words before the bar.
        total: how many items there are, where `items` has no length.
    """
    if not (_shown and sys.stderr.isatty()):
        yield from items
        return
    # Here, not above: rich takes a tenth of a second, which `geomix --help` should not pay.
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description, total, console=Console(stderr=True), transient=True)
