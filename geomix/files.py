"""Output files that are either complete or absent, and patterns for input files."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from glob import glob, has_magic
from pathlib import Path
from uuid import uuid4

from geomix.errors import MissingFileError, OutputExistsError

_own_since: ContextVar[float | None] = ContextVar("_own_since", default=None)


@contextmanager
def rewriting_since(start: float) -> Iterator[None]:
    """Let a task replace files written after `start`, in seconds since 1970: its own lost ones."""
    token = _own_since.set(start)
    try:
        yield
    finally:
        _own_since.reset(token)


def is_taken(path: str | Path, overwrite: bool = False) -> bool:
    """Whether a file that may not be replaced is in the way of an output."""
    start, target = _own_since.get(), Path(path)
    if overwrite or not target.exists():
        return False
    return start is None or target.stat().st_mtime < start


def expand(inputs: Iterable[str | Path]) -> list[Path]:
    """Replace each pattern, such as `'S2_*.tif'` or `'scans/**/*.laz'`, by the files that it matches.

    Every other name stays as it is, also one that does not exist: what reads it says so. An existing file
    whose own name holds brackets is no pattern, nor is a URL.

    Raises:
        MissingFileError: if a pattern matches nothing.
    """
    paths: list[Path] = []
    for entry in inputs:
        path, text = Path(entry), str(entry)
        if path.exists() or not has_magic(text) or "://" in text:
            paths.append(path)
            continue
        matches = sorted(glob(text, recursive=True))
        if not matches:
            raise MissingFileError(f"{text}: no file matches this pattern")
        paths += map(Path, matches)
    return paths


def make_folder(path: str | Path) -> Path:
    """Make a folder for results, and its parents, if they do not exist.

    Raises:
        OutputExistsError: if a file is in the way.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OutputExistsError(
            f"{path}: a file is in the way of this folder; choose another folder"
        ) from None
    return Path(path)


@contextmanager
def new_file(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; its file replaces `path` when the block succeeds.

    The temporary name keeps the suffix, because writers choose the format by it. Side files that a writer
    names after it, such as `map.tif.aux.xml` of GDAL, move with it. If the block raises, all are removed.

    Raises:
        OutputExistsError: if `path` exists and `overwrite` is false, at the start or at the end.
        MissingFileError: if the folder of `path` does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFileError(f"{target}: the folder {target.parent} does not exist; make it first")
    _refuse_existing(target, overwrite)
    temporary = target.with_name(f".{target.stem}.{uuid4().hex[:8]}{target.suffix}")
    try:
        yield temporary
        _refuse_existing(target, overwrite)
        # The file itself goes last, so that it never appears without its side files.
        for written in sorted(_written(temporary), key=lambda file: len(file.name), reverse=True):
            os.replace(written, target.with_name(target.name + written.name.removeprefix(temporary.name)))
    finally:
        for left in _written(temporary):
            left.unlink()


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise OutputExistsError(f"{target}: is a folder; give the name of a file")
    if is_taken(target, overwrite):
        raise OutputExistsError(
            f"{target}: exists already; choose another name or allow overwriting (--overwrite)"
        )


def _written(temporary: Path) -> list[Path]:
    return [file for file in temporary.parent.iterdir() if file.name.startswith(temporary.name)]
