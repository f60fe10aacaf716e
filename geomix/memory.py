"""How much memory the work may use, and how much it has used."""

import os
import re
import sys
from pathlib import Path

import psutil

from geomix.errors import InputError

JOBS_VARIABLE = "GEOMIX_JOBS"
"""The environment variable that tells a worker of `--jobs` how many there are."""
_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def parse_memory(text: str) -> int:
    """Turn a size such as `4GB`, `512MiB` or `1.5g` into bytes.

    Raises:
        InputError: if the text is not a size above zero.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[(match[2] or "").lower()]) if match else 0
    if size <= 0:
        raise InputError(f"memory {text!r} is not a size; write it like 4GB or 512MiB")
    return size


def format_memory(size: float) -> str:
    """Write a number of bytes as people read it: `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def available_memory() -> int:
    """Bytes that can be allocated now, within the limit of the container where there is one."""
    free = int(psutil.virtual_memory().available)
    limit = _container_limit()
    if limit is not None:
        free = min(free, max(limit - int(psutil.Process().memory_info().rss), 0))
    return free


def default_budget() -> int:
    """Bytes that a job may use by default: half of the free memory, shared between the jobs."""
    return available_memory() // 2 // int(os.environ.get(JOBS_VARIABLE, "1"))


def peak_memory() -> int:
    """The most bytes this process has held in memory so far."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        # On Linux the figure of getrusage starts with the memory that the parent held at the fork.
        return int(found[1]) * 1024
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _container_limit() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None
