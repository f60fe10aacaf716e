"""Many inputs in one call: a bad one is reported, the rest goes on."""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from geomix.errors import GeomixError, one_line
from geomix.progress import progress

log = logging.getLogger(__name__)
T = TypeVar("T", str, Path)
R = TypeVar("R")


def run_jobs(
    inputs: Iterable[T],
    work: Callable[[T], R],
    description: str = "Files",
    *,
    done: Callable[[R], object] | None = None,
    scheduler: str | None = None,
) -> int:
    """Do the work for each input and return the exit code: 1 if any of them failed.

    The error of an input should name it; it goes to stderr as one line.

    Args:
        inputs: names or paths.
        work: what is done with each, here or on a machine of a cluster.
        description: the words before the bar.
        done: called here with what `work` returns, in the order of the inputs: to print it, for instance.
        scheduler: address of a Dask scheduler; None: one after another in this process.
    """
    items = list(inputs)
    failed = 0
    outcomes = (
        _here(items, work, description) if scheduler is None else _there(items, work, description, scheduler)
    )
    for result, error in outcomes:
        if error is not None:
            failed += 1
            log.error("%s", error)
        elif done is not None:
            done(result)  # type: ignore[arg-type]
    if failed and len(items) > 1:
        log.error("%d of %d inputs failed", failed, len(items))
    return 1 if failed else 0


def _here(items: list[T], work: Callable[[T], R], description: str) -> Iterator[tuple[R | None, str | None]]:
    for item in progress(items, description):
        try:
            result = work(item)
        except GeomixError as error:
            yield None, one_line(error)
        else:
            yield result, None


def _there(
    items: list[T], work: Callable[[T], R], description: str, scheduler: str
) -> Iterator[tuple[R | None, str | None]]:
    from geomix.parallel.cluster import repeat, run_on_cluster

    for _, outcome in run_on_cluster(items, work, scheduler, description):
        repeat(outcome)
        yield outcome.result, None if outcome.error is None else " ".join(outcome.error.split())
