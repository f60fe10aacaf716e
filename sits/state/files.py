"""From files to a state and a map, and from new files to the next ones."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from geomix.errors import InputError
from geomix.memory import parse_memory
from sits.io import open_series
from sits.io.options import ReadOptions
from sits.predict import MapPaths, Scorer, load_scorer, warn_outside
from sits.predict.files import tags_of, write_maps
from sits.state.store import (
    SceneState,
    check_model,
    create_state,
    read_state,
    score_state,
    update_state,
)


def segment_and_keep(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path | MapPaths,
    model: str | Path,
    folder: str | Path,
    *,
    options: ReadOptions | None = None,
    device: str = "auto",
    memory: str | None = None,
    block: int | None = None,
    until: date | None = None,
    season_start: date | None = None,
    overwrite: bool = False,
) -> MapPaths:
    """Turn an image series into a class map and keep the state of the scene for later dates.

    Args:
        inputs: as for `sits.open_series`.
        output: the map, or all results that are wanted.
        model: name of a bundled model or a model file; it must be causal.
        folder: new folder of the state.
        options: what is to be said about the input.
        device: `auto`, `cpu` or `cuda`.
        memory: most memory to use, such as `4GB`; half of what is free if not given.
        block: side of the blocks in pixels; None for the largest that fit into memory.
        until: last date that is taken in.
        season_start: the day from which days count, instead of the one that the first date suggests.
        overwrite: whether existing files and an existing state may be replaced.

    Returns:
        What was written.

    Raises:
        GeomixError: if the input cannot be read, does not fit the model, or an output exists.
    """
    paths = _paths(output, overwrite)
    scorer = load_scorer(model, device)
    series = scorer.series(open_series(inputs, options))
    if until is not None:
        series = series.between(last=until)
    warn_outside(scorer.card, scorer.inputs, series)
    limit = None if memory is None else parse_memory(memory)
    side = scorer.block_size(series, limit, block, at_once=True)
    state = create_state(series, scorer, folder, model, side, season_start, overwrite)
    _map(state, scorer, paths, side, overwrite)
    return paths


def update_file(
    folder: str | Path,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | MapPaths | None = None,
    *,
    model: str | Path | None = None,
    options: ReadOptions | None = None,
    device: str = "auto",
    memory: str | None = None,
    block: int | None = None,
    overwrite: bool = False,
) -> MapPaths | None:
    """Take new images into the state of a scene, without reading the old ones, and map it anew.

    Args:
        folder: the state.
        inputs: the new images, all later than those in the state; none to map what the state holds.
        output: the map after all dates, or all results that are wanted; None to take the images in only.
        model: the model of the state, where it is not found by the name it once had.
        options: what is to be said about the input.
        device: `auto`, `cpu` or `cuda`.
        memory: most memory to use; half of what is free if not given.
        block: side of the blocks in pixels; None for the largest that fit into memory.
        overwrite: whether existing maps may be replaced.

    Returns:
        What was written beside the state.

    Raises:
        GeomixError: if an image is not later than those in the state, does not fit, or an output exists; then
            the state is as it was. If the images are in and the map cannot be written, it can be drawn
            later without them.
    """
    paths = None if output is None else _paths(output, overwrite)
    state = read_state(folder)
    scorer = load_scorer(state.model if model is None else model, device)
    limit = None if memory is None else parse_memory(memory)
    if inputs:
        series = scorer.series(open_series(inputs, options))
        side = scorer.block_size(series, limit, block, at_once=True)
        state = update_state(state, series, scorer, side)
    elif paths is None:
        raise InputError(f"{folder}: nothing to do; give new images, or a map to draw with --output")
    else:
        check_model(state, scorer)
        side = scorer.block_size(state.series(scorer.inputs.bands), limit, block, at_once=True)
    whole = state.series(scorer.inputs.bands)
    warn_outside(scorer.card, scorer.inputs, whole)
    if paths is not None:
        _map(state, scorer, paths, side, overwrite)
    return paths


def _paths(output: str | Path | MapPaths, overwrite: bool) -> MapPaths:
    paths = output if isinstance(output, MapPaths) else MapPaths(Path(output))
    paths.check(overwrite)
    return paths


def _map(state: SceneState, scorer: Scorer, paths: MapPaths, side: int, overwrite: bool) -> None:
    series = state.series(scorer.inputs.bands)
    tags = tags_of(scorer, series, state.season)
    write_maps(paths, scorer.legend, series, score_state(state, scorer, side), tags, overwrite)
