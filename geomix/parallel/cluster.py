"""Many inputs over the workers of a Dask cluster: on this machine (`--jobs`), or on many (`--scheduler`).

    dask scheduler                                            # says its address
    dask worker ADDRESS --nthreads 1 --nworkers auto          # on every machine, in geomix's environment

All machines see the same files under the same paths. A worker that dies costs no input: its task is run again
elsewhere, and may replace what it had written itself since the batch began.
"""

# mypy: disable-error-code="no-untyped-call"

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from geomix.errors import InputError
from geomix.memory import JOBS_VARIABLE
from geomix.parallel.outcome import Outcome, attempt, failure

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")
RETRIES = 2
"""How often a task is run again after an error that is not the input's fault."""
_PATIENCE = 10
"""Seconds to wait for the scheduler."""


def run_on_cluster(
    items: Sequence[T], work: Callable[[T], R], address: str
) -> Iterator[tuple[T, Outcome[R]]]:
    """Do the work for each item on a cluster, and tell what became of each in the order of the items.

    Args:
        items: names or paths.
        work: what is done; it travels, so it should hold names of models, not models.
        address: of the scheduler, such as `tcp://10.0.0.1:8786`.

    Raises:
        InputError: if no scheduler answers.
    """
    from distributed import as_completed

    with _connected(address) as client:
        start, folder = time.time(), os.getcwd()
        futures = [
            client.submit(attempt, work, item, folder, start, retries=RETRIES, pure=False) for item in items
        ]
        place = {future: number for number, future in enumerate(futures)}
        ready: dict[int, Outcome[R]] = {}
        told = 0
        # Fetched as soon as they are there: a result that waits on a worker is lost with it, and made again.
        finished = as_completed(futures, loop=client.loop, with_results=True, raise_errors=False)
        for future, result in finished:
            item = items[place[future]]
            ready[place[future]] = _lost(item, future.exception()) if future.status == "error" else result
            while told in ready:
                yield items[told], ready.pop(told)
                told += 1


@contextmanager
def workers_here(jobs: int) -> Iterator[str]:
    """Start worker processes on this machine and give the address of their scheduler.

    Args:
        jobs: how many; each works with one thread and its share of the memory.
    """
    import warnings

    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dask's own start and end
        # Without a limit of memory dask never stops a worker: geomix keeps to a budget of its own.
        with LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=None,
            env={JOBS_VARIABLE: str(jobs)},
        ) as running:
            yield running.scheduler_address


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


def _lost(item: object, error: BaseException) -> Outcome[R]:
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return Outcome(None, f"{item}: the workers that tried it died; look at their memory")
    return failure(item, error)
