"""The state of a scene on disk: a new date is added without reading the old ones again.

A folder holds `state.json` (model, grid, dates, season) and three arrays over the scene: the sums of each
temporal block and the number of dates at each place (a patch), and the number of dates at each pixel. An
update writes new arrays beside the old ones and then replaces `state.json`, so that an interrupted one
leaves the state as it was.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
import torch
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS

from geomix.encoder import Block
from geomix.errors import FormatError, InputError, MissingFileError, OutputExistsError, UnsupportedError
from geomix.files import make_folder, new_file
from geomix.memory import format_memory
from geomix.mixers import State
from geomix.progress import progress
from sits.data.inputs import days_of
from sits.dates import season_start
from sits.grid import Grid, Window
from sits.model import TSViPoM
from sits.predict import Scorer, Scores, blocks_of
from sits.series import Acquisition, Mask, TimeSeries, Values

log = logging.getLogger(__name__)

_FORMAT = 2  # 1 laid the places from the corner of the raster, not on the map
_FILE = "state.json"
_ARRAYS = ("sums", "places", "pixels")


@dataclass(frozen=True)
class SceneState:
    """What is known of a scene after some dates."""

    folder: Path
    model: str
    """Name or file by which the model was given."""
    digest: str | None
    """SHA-256 of the model file."""
    grid: Grid
    acquisitions: tuple[Acquisition, ...]
    season: date
    """The day from which days count."""
    version: int
    """Number of the arrays in use; each update makes the next."""

    @property
    def dates(self) -> tuple[date, ...]:
        """The dates that the state holds, rising."""
        return tuple(one.date for one in self.acquisitions)

    def array(self, name: str, version: int | None = None) -> Path:
        """Where an array lies."""
        return self.folder / f"{name}.{self.version if version is None else version}.npy"

    def series(self, bands: Sequence[str]) -> TimeSeries:
        """The dates and the grid as a series whose pixels are gone."""
        source = _Gone(self.folder)
        return TimeSeries(self.grid, self.acquisitions, tuple(bands), source, name=str(self.folder))


class _Gone:
    """Stands for images that a state has taken in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, steps: object, bands: object, window: Window) -> tuple[Values, Mask]:
        raise UnsupportedError(f"{self._folder}: is a state; the images themselves are not in it")


def create_state(
    series: TimeSeries,
    scorer: Scorer,
    folder: str | Path,
    model: str | Path,
    block: int,
    start: date | None = None,
    overwrite: bool = False,
) -> SceneState:
    """Take all dates of a series in and keep the state.

    Args:
        series: with the bands of the model.
        scorer: a causal model.
        folder: new folder of the state.
        model: name or file of the model, to be found again by an update.
        block: side of the blocks in pixels, a multiple of the model's unit.
        start: first day of the season; None for the one the first date belongs to.
        overwrite: replace a state that is there.

    Raises:
        UnsupportedError: if the model cannot keep a state.
        OutputExistsError: if the folder holds something and may not be replaced.
    """
    place = Path(folder)
    _network(scorer)
    old = _existing(place, overwrite)
    season = start or season_start(series.dates[0], scorer.inputs.season_start)
    state = SceneState(
        place,
        str(model),
        scorer.digest,
        series.grid,
        series.acquisitions,
        season,
        old.version + 1 if old else 0,
    )
    make_folder(place)
    _take_in(state, None, series, scorer, block)
    _write(state, old)
    return state


def read_state(folder: str | Path) -> SceneState:
    """Open the state in a folder.

    Raises:
        MissingFileError: if there is none.
        FormatError: if it is damaged or of a newer geomix.
    """
    file = Path(folder) / _FILE
    if not file.is_file():
        raise MissingFileError(f"{folder}: holds no state of a scene; make one with `segment --save-state`")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            way = "update geomix" if found["format"] > _FORMAT else "make the state anew"
            raise FormatError(f"{file}: was written by another version of geomix; {way}")
        crs = None if found["crs"] is None else CRS.from_wkt(found["crs"])
        state = SceneState(
            folder=Path(folder),
            model=found["model"],
            digest=found["digest"],
            grid=Grid(crs, Affine(*found["transform"]), *found["shape_yx"]),
            acquisitions=tuple(
                Acquisition(date.fromisoformat(one["date"]), tuple(one["names"]), one["offset"])
                for one in found["acquisitions"]
            ),
            season=date.fromisoformat(found["season"]),
            version=found["version"],
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{file}: is damaged ({error!r}); make the state anew") from None
    for name in _ARRAYS:
        if not state.array(name).is_file():
            raise MissingFileError(f"{state.array(name)}: is missing; make the state anew")
    return state


def update_state(state: SceneState, series: TimeSeries, scorer: Scorer, block: int) -> SceneState:
    """Take new dates in; none of the old ones is read.

    Args:
        state: what is known.
        series: the new images, with the bands of the model.
        scorer: the model of the state.
        block: side of the blocks in pixels.

    Returns:
        The state after all dates, which has taken the place of the old one.

    Raises:
        InputError: if the model or the grid is another, or a date does not follow the last one.
    """
    check_model(state, scorer)
    difference = state.grid.difference(series.grid)
    if difference is not None:
        raise InputError(
            f"{series.name}: lies on another grid than the state in {state.folder} ({difference}); "
            "bring it to that grid first"
        )
    _check_dates(state, series)
    after = SceneState(
        state.folder,
        state.model,
        state.digest,
        state.grid,
        state.acquisitions + series.acquisitions,
        state.season,
        state.version + 1,
    )
    _take_in(after, state, series, scorer, block)
    _write(after, state)
    return after


def check_model(state: SceneState, scorer: Scorer) -> None:
    """Stop where a model is not that of the state.

    Raises:
        InputError: if it is another file.
    """
    if state.digest != scorer.digest:
        raise InputError(
            f"{state.folder}: was made with another model file than {scorer.card.name}; give that one with "
            "--model, or make the state anew with `segment --save-state`"
        )


def score_state(state: SceneState, scorer: Scorer, block: int) -> Iterator[Scores]:
    """Score the scene from its state, block by block, as `score_blocks` does from images."""
    network, grid = _network(scorer), state.grid
    side = network.config.patch
    sums, places, pixels = (np.load(state.array(name), mmap_mode="r") for name in _ARRAYS)
    for window in progress(*blocks_of(scorer, grid, block, "Blocks")):
        outer = grid.whole if scorer.halo is None else window.pad(scorer.halo, grid.shape)
        origin = scorer.origin(grid, outer)
        at = _places(outer, side, grid.phase(side))
        counts = np.array(places[at], dtype=np.int64)
        known = _states(network, np.array(sums[at]), counts, scorer.device)
        seen = torch.from_numpy(counts > 0)[None].to(scorer.device)
        with torch.inference_mode():
            logits = network.read(known, seen, origin=origin)[0, :, origin[0] % side :, origin[1] % side :]
        rows, cols = window.within(outer)
        part: NDArray[np.float32] = logits[:, rows, cols].float().cpu().numpy()
        yield Scores(window, part, np.array(pixels[window.slices]))


def _take_in(
    state: SceneState, before: SceneState | None, series: TimeSeries, scorer: Scorer, block: int
) -> None:
    """Write the arrays of `state`: those of `before`, if any, with the dates of the series added."""
    network, grid = _network(scorer), state.grid
    side, days = network.config.patch, days_of(series.dates, scorer.inputs, state.season)
    phase = grid.phase(side)
    rows, columns = (slice_.stop for slice_ in _places(grid.whole, side, phase))
    width = sum(_widths(network))
    log.info("%s: the state takes %s", state.folder, format_memory(rows * columns * (4 * width + 2)))
    shapes = {"sums": (rows, columns, width), "places": (rows, columns), "pixels": grid.shape}
    kinds = {"sums": np.float32, "places": np.uint16, "pixels": np.uint16}
    with _NewArrays(state) as made:
        new = {name: made.open(name, shapes[name], kinds[name]) for name in _ARRAYS}
        old = {name: np.load(before.array(name), mmap_mode="r") for name in _ARRAYS} if before else None
        for window in progress(*blocks_of(scorer, grid, block, "Dates")):
            values, valid = series.read(window)
            at = _places(window, side, phase)
            known = None
            if old is not None:
                counts = np.array(old["places"][at], dtype=np.int64)
                known = _states(network, np.array(old["sums"][at]), counts, scorer.device)
            with torch.inference_mode():
                images = scorer.tensors(values, valid, days)
                after = network.observe(*images, known, origin=scorer.origin(grid, window))
            shape = new["places"][at].shape
            new["sums"][at] = torch.cat([one.total for one in after], 1).cpu().numpy().reshape(*shape, width)
            new["places"][at] = after[0].count.cpu().numpy().reshape(shape)
            earlier = 0 if old is None else old["pixels"][window.slices]
            new["pixels"][window.slices] = earlier + valid.sum(0)


def _network(scorer: Scorer) -> TSViPoM:
    """The model, if it can keep a state."""
    network = scorer.model
    if not isinstance(network, TSViPoM) or not network.config.causal:
        raise UnsupportedError(
            f"model {scorer.card.name} lets dates read later ones, so it keeps no state; "
            "train one with `causal: true`"
        )
    _widths(network)
    return network


def _widths(network: TSViPoM) -> list[int]:
    """Numbers that each temporal block keeps of a place."""
    widths = [cast(Block, block).mixer.state_width for block in network.temporal.blocks]
    if None in widths:
        raise UnsupportedError(
            "a block whose mixer has no state of fixed size keeps none; take a model of PoM alone"
        )
    return cast(list[int], widths)


def _states(
    network: TSViPoM, sums: NDArray[np.float32], counts: NDArray[np.int64], device: torch.device
) -> tuple[State, ...]:
    """The states of the blocks, of places row by row."""
    flat = torch.from_numpy(sums).flatten(0, 1).to(device)
    count = torch.from_numpy(counts).flatten().to(device)
    return tuple(State(part, count) for part in torch.split(flat, _widths(network), dim=1))


def _places(window: Window, side: int, phase: tuple[int, int]) -> tuple[slice, slice]:
    """The patches of a window in a scene whose first pixel lies `phase` pixels after a patch begins."""
    rows, cols = (
        slice((along.start + more) // side, -(-(along.stop + more) // side))
        for along, more in zip(window.slices, phase, strict=True)
    )
    return rows, cols


def _check_dates(state: SceneState, series: TimeSeries) -> None:
    remedy = "map all dates anew with `segment --save-state`"
    for day in series.dates:
        if day in state.dates:
            raise InputError(
                f"{series.name}: {day} is in the state of {state.folder} already, and what it once took in "
                f"cannot be taken out; leave it out (without images, `update` maps the state), or {remedy}"
            )
        if day < state.dates[-1]:
            raise InputError(
                f"{series.name}: {day} comes too late, the state of {state.folder} reaches to "
                f"{state.dates[-1]} and later dates have read the earlier ones; {remedy}"
            )


def _existing(folder: Path, overwrite: bool) -> SceneState | None:
    """The state that is to be replaced, if any."""
    if not folder.exists():
        return None
    if folder.is_dir() and not any(folder.iterdir()):
        return None
    if not (folder / _FILE).is_file():
        raise OutputExistsError(f"{folder}: is there and holds no state; choose a new folder")
    if not overwrite:
        raise OutputExistsError(
            f"{folder}: holds a state already; add dates with `update`, or replace it with --overwrite"
        )
    return read_state(folder)


def _write(state: SceneState, before: SceneState | None) -> None:
    """Put a state in force, then remove the arrays of the one before."""
    content: dict[str, Any] = {
        "format": _FORMAT,
        "model": state.model,
        "digest": state.digest,
        "crs": None if state.grid.crs is None else state.grid.crs.to_wkt(),
        "transform": list(state.grid.transform)[:6],
        "shape_yx": list(state.grid.shape),
        "season": state.season.isoformat(),
        "version": state.version,
        "acquisitions": [
            {"date": one.date.isoformat(), "names": list(one.names), "offset": one.offset}
            for one in state.acquisitions
        ],
    }
    with new_file(state.folder / _FILE, overwrite=True) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    if before is not None:
        for name in _ARRAYS:
            before.array(name).unlink(missing_ok=True)


class _NewArrays:
    """Arrays on disk that are removed again where they are not completed."""

    def __init__(self, state: SceneState) -> None:
        self._state = state
        self._open: list[np.memmap[Any, Any]] = []

    def open(self, name: str, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        """Make an array."""
        array = np.lib.format.open_memmap(self._state.array(name), "w+", dtype=kind, shape=shape)
        self._open.append(array)
        return array

    def __enter__(self) -> "_NewArrays":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for array in self._open:
            array.flush()
        self._open.clear()
        if kind is not None:
            for name in _ARRAYS:
                self._state.array(name).unlink(missing_ok=True)
