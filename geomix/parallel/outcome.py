"""What becomes of one input of many: its result, or why there is none, and what was said meanwhile."""

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from geomix.errors import GeomixError, one_line
from geomix.files import rewriting_since
from geomix.progress import PACKAGES

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of one input."""

    result: R | None
    error: str | None = None
    """Why there is no result, in one line; None where there is one."""
    trace: str = ""
    """The traceback of the error."""
    said: tuple[tuple[str, int, str], ...] = ()
    """What was logged meanwhile in another process: logger, level, message."""

    def repeat(self) -> None:
        """Log here what was logged in the other process."""
        for name, level, message in self.said:
            logging.getLogger(name).log(level, "%s", message)


def failure(item: object, error: BaseException) -> Outcome[R]:
    """The outcome of an input whose work raised an error; the line names the input."""
    line = str(error)
    if isinstance(error, OSError) and error.strerror and not isinstance(error, GeomixError):
        line = f"{error.filename or item}: {error.strerror}"
    elif not isinstance(error, GeomixError):
        line = f"{type(error).__name__}: {error}"
    if os.path.basename(str(item)) not in line:
        line = f"{item}: {line}"
    return Outcome(None, one_line(line), "".join(traceback.format_exception(error)))


def attempt(work: Callable[[T], R], item: T, folder: str, start: float) -> Outcome[R]:
    """Do the work in another process. What is wrong with the input is an answer; all else is raised.

    Args:
        work: what is done.
        item: with what.
        folder: the working folder of the user.
        start: files written since then, seconds since 1970, may be replaced: those of a lost attempt.
    """
    if os.getcwd() != folder:
        os.chdir(folder)
    outcome: Outcome[R]
    with _listening() as said, rewriting_since(start):
        try:
            outcome = Outcome(work(item))
        except GeomixError as error:
            outcome = failure(item, error)
    return Outcome(outcome.result, outcome.error, outcome.trace, tuple(said))


@contextmanager
def _listening() -> Iterator[list[tuple[str, int, str]]]:
    """Keep what this thread logs, to be said where the user is."""
    keeper = _Keeper(threading.get_ident())
    levels = {logger: logger.level for logger in map(logging.getLogger, PACKAGES)}
    for logger in levels:
        logger.addHandler(keeper)
        logger.setLevel(logging.INFO)
    try:
        yield keeper.said
    finally:
        for logger, level in levels.items():
            logger.removeHandler(keeper)
            logger.setLevel(level)


class _Keeper(logging.Handler):
    def __init__(self, thread: int) -> None:
        super().__init__(logging.INFO)
        self.thread = thread
        self.said: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread:
            self.said.append((record.name, record.levelno, record.getMessage()))
