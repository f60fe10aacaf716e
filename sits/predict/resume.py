"""A map that was interrupted goes on where it stopped: its blocks so far wait in a folder beside it."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from geomix.errors import InputError
from sits.grid import Grid, Window
from sits.io.cog import Sink

log = logging.getLogger(__name__)

_SECONDS = 60.0
"""How often the blocks are made safe on disk."""


@dataclass
class Unfinished:
    """The blocks of a map that are done, kept in `.<map>.unfinished` until the map is complete."""

    folder: Path
    block: int
    """Side of the blocks; a run that goes on keeps it."""
    done: set[Window] = field(default_factory=set)
    _pending: list[Window] = field(default_factory=list)
    _saved: float = field(default_factory=time.monotonic)

    def work(self, role: str) -> Path:
        """Where the blocks of one output wait."""
        return self.folder / f"{role}.tif"

    def wrote(self, window: Window, sinks: Iterable[Sink]) -> None:
        """Note a block that is written; every minute all of them are made safe."""
        self._pending.append(window)
        if time.monotonic() - self._saved > _SECONDS:
            for sink in sinks:
                sink.save()
            self.note()

    def note(self) -> None:
        """List the blocks that are safe."""
        with (self.folder / "done.txt").open("a", encoding="ascii") as file:
            file.writelines(f"{w.row} {w.col} {w.height} {w.width}\n" for w in self._pending)
        self.done.update(self._pending)
        self._pending.clear()
        self._saved = time.monotonic()


def begin(output: Path, roles: Iterable[str], grid: Grid, tags: Mapping[str, str], block: int) -> Unfinished:
    """Begin a map that can go on later, or find one that was begun.

    Args:
        output: the map.
        roles: the outputs that are filled.
        grid: its grid.
        tags: what tells runs apart: model, dates, offsets, bands.
        block: side of the blocks of a new run.

    Raises:
        InputError: if what was begun is another map.
    """
    folder = output.with_name(f".{output.name}.unfinished")
    told = {"tags": dict(tags), "roles": sorted(roles), "grid": [*map(float, grid.transform), *grid.shape]}
    mark = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    state = folder / "state.json"
    if not state.is_file():
        folder.mkdir(exist_ok=True)
        state.write_text(json.dumps({"mark": mark, "block": block}), encoding="ascii")
        return Unfinished(folder, block)
    kept = json.loads(state.read_text(encoding="ascii"))
    if kept["mark"] != mark:
        raise InputError(
            f"{folder}: holds a map that was begun with another input, model or set of outputs; "
            "remove the folder to begin anew"
        )
    listed = folder / "done.txt"
    lines = listed.read_text(encoding="ascii").splitlines() if listed.is_file() else []
    done = {Window(*map(int, line.split())) for line in lines if len(line.split()) == 4}
    log.info("%s: goes on after %d blocks", output, len(done))
    return Unfinished(folder, int(kept["block"]), done)


@contextmanager
def kept(unfinished: Unfinished | None) -> Iterator[None]:
    """Keep the blocks so far if the work inside fails or is stopped; remove them when it is done."""
    if unfinished is None:
        yield
        return
    try:
        yield
    except BaseException:
        # The files inside are closed by now, so what was written is safe.
        unfinished.note()
        raise
    shutil.rmtree(unfinished.folder)
