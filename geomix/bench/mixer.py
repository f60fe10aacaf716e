"""`geomix bench mixer`: time and memory of the mixer against attention and the plain formula.

    python -m geomix.bench.mixer --device cuda --json

needs nothing but torch and triton. Results are checked against the float64 reference first: a wrong one is an
error, and nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import geomix
from geomix.bench import Row, rows_table
from geomix.errors import GeomixError, UnsupportedError


def run(cap_seconds: float = 20.0, device: str = "auto") -> list[Row]:
    """Measure the mixer.

    Args:
        cap_seconds: a rival whose single run takes longer is not timed.
        device: `cpu`, `cuda`, or `auto` for CUDA if it works.

    Raises:
        WrongResultError: if a result is not that of the reference.
        UnsupportedError: if CUDA is asked for and not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = versions()
    return [replace(row, versions=row.versions | found) for row in _rows(cap_seconds, device)]


def _rows(cap_seconds: float, device: str) -> Iterator[Row]:
    if device == "cpu":
        from geomix.bench import mixer_cpu

        yield from mixer_cpu.rows(cap_seconds)
        return
    if not torch.cuda.is_available():
        raise UnsupportedError("there is no CUDA device; measure the CPU with --device cpu")
    from geomix.bench import mixer_cuda

    yield from mixer_cuda.rows(cap_seconds)


def versions() -> dict[str, str]:
    """Versions of this package and of what computes, and the commit of a checkout."""
    found = {"geomix": geomix.__version__}
    with suppress(PackageNotFoundError):
        found["triton"] = version("triton")
    head = Path(__file__).parents[2] / ".git" / "HEAD"
    if head.is_file():
        word = head.read_text(encoding="utf-8").split()
        ref = head.parent / word[-1]
        found["commit"] = (ref.read_text(encoding="utf-8").strip() if ref.is_file() else word[-1])[:12]
    return found


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m geomix.bench.mixer", description="Measure the mixer.")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cap", type=float, default=20.0, help="seconds that one run of a rival may take")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    try:
        rows = run(arguments.cap, arguments.device)
    except GeomixError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if arguments.json:
        from geomix.report import json_text

        sys.stdout.write(json_text([row.as_dict() for row in rows]) + "\n")
    else:
        sys.stdout.write(rows_table(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
