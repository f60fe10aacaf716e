"""Many inputs over a Dask cluster: `--scheduler ADDRESS` of the batch verbs.

    dask scheduler                                            # says its address
    dask worker ADDRESS --nthreads 1 --nworkers auto          # on every machine, in geomix's environment

All machines see the same files under the same paths. A worker that dies costs no input: its task is run again
elsewhere, and may replace what it had written itself since the batch began.
"""

# mypy: disable-error-code="no-untyped-call"

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from geomix.errors import GeomixError, InputError
from geomix.files import rewriting_since
from geomix.progress import PACKAGES, progress

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")
RETRIES = 2
"""How often a task is run again after an error that is not the input's fault."""
_PATIENCE = 10
"""Seconds to wait for the scheduler."""


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of one input."""

    result: R | None
    error: str | None
    """Why there is no result, in words; None where there is one."""
    said: tuple[tuple[str, int, str], ...] = ()
    """What was logged meanwhile: logger, level, message."""


def run_on_cluster(
    items: Sequence[T], work: Callable[[T], R], address: str, description: str
) -> Iterator[tuple[T, Outcome[R]]]:
    """Do the work for each item on a cluster, and tell what became of each in the order of the items.

    Args:
        items: names or paths.
        work: what is done; it travels, so it should hold names of models, not models.
        address: of the scheduler, such as `tcp://10.0.0.1:8786`.
        description: the words before the bar.

    Raises:
        InputError: if no scheduler answers.
    """
    from distributed import as_completed

    with _connected(address) as client:
        start, folder = time.time(), os.getcwd()
        futures = [
            client.submit(_attempt, work, item, folder, start, retries=RETRIES, pure=False) for item in items
        ]
        place = {future: number for number, future in enumerate(futures)}
        ready: dict[int, Outcome[R]] = {}
        told = 0
        # Fetched as soon as they are there: a result that waits on a worker is lost with it, and made again.
        finished = as_completed(futures, loop=client.loop, with_results=True, raise_errors=False)
        for future, result in progress(finished, description, len(items)):
            item = items[place[future]]
            failed = future.status == "error"
            ready[place[future]] = Outcome(None, _explain(item, future.exception())) if failed else result
            while told in ready:
                yield items[told], ready.pop(told)
                told += 1


@contextmanager
def _connected(address: str) -> Iterator["Client"]:
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({error}); start one with `dask scheduler`"
        ) from None
    try:
        yield client
    finally:
        client.close()


def _explain(item: object, error: BaseException) -> str:
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return f"{item}: the workers that tried it died; look at their memory"
    return f"{item}: {type(error).__name__}: {error}"


def _attempt(work: Callable[[T], R], item: T, folder: str, start: float) -> Outcome[R]:
    """Run on a worker. What is wrong with the input is an answer; all else is raised, and so tried again."""
    if os.getcwd() != folder:
        os.chdir(folder)
    with _listening() as said, rewriting_since(start):
        try:
            result, error = work(item), None
        except GeomixError as wrong:
            result, error = None, str(wrong)
    return Outcome(result, error, tuple(said))


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


def repeat(outcome: Outcome[Any]) -> None:
    """Say here what was logged on the worker."""
    for name, level, message in outcome.said:
        logging.getLogger(name).log(level, "%s", message)
