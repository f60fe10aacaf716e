"""Measurements as rows that can be compared: one figure, what it stands against, and where it was taken.

Needs nothing but torch, so that the mixer can be measured where nothing else is installed.
"""

import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from statistics import quantiles
from typing import Any

import torch


def _device_name() -> str:
    return (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else platform.processor() or platform.machine()
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        versions["cuda"] = str(torch.version.cuda)
    return versions


@dataclass(frozen=True)
class Row:
    """One measured figure. A `value` of None says that the case was not run, as a rival over its time cap."""

    case: str
    metric: str
    value: float | None
    unit: str
    versus: str = ""
    """What the figure stands against; empty where there is nothing to compare with."""
    ratio: float | None = None
    """How many times better than `versus`."""
    device: str = field(default_factory=_device_name)
    threads: int = field(default_factory=torch.get_num_threads)
    versions: dict[str, str] = field(default_factory=_versions)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, over several repeats."""

    median: float
    fast: float
    """The 20th percentile."""
    slow: float
    """The 80th percentile."""
    repeats: int
    peak_memory: int | None = None
    """Most bytes allocated during a call; only known on CUDA."""


def measure(
    call: Callable[[], object],
    *,
    device: str | torch.device = "cpu",
    min_seconds: float = 0.5,
    max_repeats: int = 100,
    cap_seconds: float | None = None,
) -> Timing | None:
    """Time a call: one warm-up, then repeats until `min_seconds` have gone by.

    Args:
        call: what is measured.
        device: where it runs; a CUDA device is waited for.
        min_seconds: how long to repeat.
        max_repeats: and how often at most.
        cap_seconds: a call whose warm-up takes longer is not repeated.

    Returns:
        The timing, or None where the warm-up took longer than the cap.
    """
    device = torch.device(device)
    if _seconds(call, device) > (cap_seconds or float("inf")):
        return None
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    times: list[float] = []
    while len(times) < max_repeats and (len(times) < 3 or sum(times) < min_seconds):
        times.append(_seconds(call, device))
    fifths = quantiles(times, n=10, method="inclusive")
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Timing(fifths[4], fifths[1], fifths[7], len(times), peak)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rows_table(rows: Iterable[Row]) -> str:
    """Write rows as aligned columns with the machine below them."""
    from geomix.report import table

    rows = list(rows)
    columns = ("case", "metric", "value", "unit", "versus", "ratio")
    body = [
        (r.case, r.metric, "not run" if r.value is None else r.value, r.unit, r.versus or "-", r.ratio)
        for r in rows
    ]
    where = {
        f"{r.device}, {r.threads} threads, " + ", ".join(f"{k} {v}" for k, v in r.versions.items())
        for r in rows
    }
    return "\n".join([table(columns, body), *sorted(where)])
