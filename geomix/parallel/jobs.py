"""Many inputs in one call: a bad one is reported in one line, the rest goes on."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from geomix.options import BatchOptions
from geomix.parallel.outcome import Outcome, failure
from geomix.progress import progress

log = logging.getLogger(__name__)
T = TypeVar("T", str, Path)
R = TypeVar("R")
Outputs = Callable[[T], Sequence[Path]]
"""The files that the work for an input writes."""


def run_jobs(
    inputs: Iterable[T],
    work: Callable[[T], R],
    options: BatchOptions = BatchOptions(),
    *,
    outputs: Outputs[T] | None = None,
    done: Callable[[R], object] | None = None,
    description: str = "Files",
) -> int:
    """Do the work for each input and return the exit code: 1 if any of them failed.

    Whatever the work for an input raises is one line on stderr that names the input; `--debug` adds the
    traceback. Each other input gets one line with the time that is left.

    Args:
        inputs: names or paths.
        work: what is done with each, here or in another process; there it should load models by name.
        options: from the command line.
        outputs: the files of an input, for `--skip-existing` and `--resume`.
        done: called here with what `work` returns, in the order of the inputs: to print it, for instance.
        description: the words before the bar.

    Raises:
        InputError: if `options` name a scheduler that does not answer.
    """
    every = list(inputs)
    items = every if outputs is None else _left(every, outputs, options)
    clock, failed = time.monotonic(), 0
    with ExitStack() as stack:
        outcomes = _outcomes(items, work, options, stack)
        for number, (item, outcome) in enumerate(progress(outcomes, description, len(items)), 1):
            outcome.repeat()
            if outcome.error is not None:
                failed += 1
                log.error("%s", outcome.error)
                log.debug("%s", outcome.trace)
                continue
            if done is not None:
                done(outcome.result)  # type: ignore[arg-type]
            if len(items) > 1:
                _tell(item, number, len(items), time.monotonic() - clock)
    if failed and len(every) > 1:
        log.error("%d of %d inputs failed", failed, len(every))
    return 1 if failed else 0


def _left(items: list[T], outputs: Outputs[T], options: BatchOptions) -> list[T]:
    """The inputs that still have to be worked on."""
    if not (options.skip_existing or options.resume):
        return items
    left = [item for item in items if not _is_done(item, outputs(item), options)]
    if len(left) < len(items):
        log.info("%d of %d inputs are done already", len(items) - len(left), len(items))
    return left


def _is_done(item: str | Path, files: Sequence[Path], options: BatchOptions) -> bool:
    """Whether all outputs are there; to resume, they must also be newer than the input."""
    if not files or not all(file.exists() for file in files):
        return False
    source = Path(item)
    if options.skip_existing or not source.exists():
        return True
    return min(file.stat().st_mtime for file in files) >= source.stat().st_mtime


def _outcomes(
    items: list[T], work: Callable[[T], R], options: BatchOptions, stack: ExitStack
) -> Iterator[tuple[T, Outcome[R]]]:
    if options.scheduler is None and min(options.jobs, len(items)) <= 1:
        return _one_by_one(items, work)
    from geomix.parallel.cluster import run_on_cluster, workers_here

    address = options.scheduler
    if address is None:
        address = stack.enter_context(workers_here(min(options.jobs, len(items))))
    return run_on_cluster(items, work, address)


def _one_by_one(items: list[T], work: Callable[[T], R]) -> Iterator[tuple[T, Outcome[R]]]:
    for item in items:
        try:
            outcome = Outcome(work(item))
        except Exception as error:  # noqa: BLE001 - a bug met with one input must not stop the others
            outcome = failure(item, error)
        yield item, outcome


def _tell(item: object, number: int, total: int, spent: float) -> None:
    left = spent / number * (total - number)
    more = f", about {_duration(left)} left" if number < total else f", {_duration(spent)} in all"
    log.info("%d of %d: %s%s", number, total, item, more)


def _duration(seconds: float) -> str:
    """Write a time as people say it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
