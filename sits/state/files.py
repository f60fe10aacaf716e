"""From files to a state and a map, and from new files to the next ones."""

from collections.abc import Sequence
from pathlib import Path

from geomix.errors import InputError
from sits.io import open_series
from sits.io.options import MapOptions, UpdateOptions
from sits.predict import MapPaths, Scorer, load_scorer, warn_outside
from sits.predict.files import open_scene, tags_of, write_maps
from sits.series import TimeSeries
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
    options: MapOptions | None = None,
) -> MapPaths:
    """Turn an image series into a class map and keep the state of the scene for later dates.

    Args:
        inputs: as for `sits.open_series`.
        output: the map, or all results that are wanted.
        model: name of a bundled model or a model file; it must be causal.
        folder: new folder of the state.
        options: how it is read and computed, and which dates are taken in.

    Returns:
        What was written.

    Raises:
        GeomixError: if the input cannot be read, does not fit the model, or an output exists.
    """
    options = options or MapOptions()
    if options.resume:
        raise InputError("a map whose state is kept (--save-state) cannot be resumed")
    paths = _paths(output, options.overwrite)
    scorer = load_scorer(model, options.device)
    series = open_scene(inputs, scorer, options)
    side = _side(scorer, series, options)
    state = create_state(series, scorer, folder, model, side, options.season_start, options.overwrite)
    _map(state, scorer, paths, side, options.overwrite)
    return paths


def update_file(
    folder: str | Path,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | MapPaths | None = None,
    model: str | Path | None = None,
    options: UpdateOptions | None = None,
) -> MapPaths | None:
    """Take new images into the state of a scene, without reading the old ones, and map it anew.

    Args:
        folder: the state.
        inputs: the new images, all later than those in the state; none to map what the state holds.
        output: the map after all dates, or all results that are wanted; None to take the images in only.
        model: the model of the state, where it is not found by the name it once had.
        options: how they are read and computed.

    Returns:
        What was written beside the state.

    Raises:
        GeomixError: if an image is not later than those in the state, does not fit, or an output exists; then
            the state is as it was. If the images are in and the map cannot be written, it can be drawn
            later without them.
    """
    options = options or UpdateOptions()
    paths = None if output is None else _paths(output, options.overwrite)
    state = read_state(folder)
    scorer = load_scorer(state.model if model is None else model, options.device)
    if inputs:
        series = scorer.series(open_series(inputs, options.reading))
        side = _side(scorer, series, options)
        state = update_state(state, series, scorer, side)
    elif paths is None:
        raise InputError(f"{folder}: nothing to do; give new images, or a map to draw with --output")
    else:
        check_model(state, scorer)
        side = _side(scorer, state.series(scorer.inputs.bands), options)
    whole = state.series(scorer.inputs.bands)
    warn_outside(scorer.card, scorer.inputs, whole)
    if paths is not None:
        _map(state, scorer, paths, side, options.overwrite)
    return paths


def _side(scorer: Scorer, series: TimeSeries, options: UpdateOptions) -> int:
    """The side of the blocks; a scene that is its own context must fit into memory."""
    return scorer.block_size(series, options.bytes, options.block, at_once=True)


def _paths(output: str | Path | MapPaths, overwrite: bool) -> MapPaths:
    paths = output if isinstance(output, MapPaths) else MapPaths(Path(output))
    paths.check(overwrite)
    return paths


def _map(state: SceneState, scorer: Scorer, paths: MapPaths, side: int, overwrite: bool) -> None:
    series = state.series(scorer.inputs.bands)
    tags = tags_of(scorer, series, state.season)
    write_maps(paths, scorer.legend, series, score_state(state, scorer, side), tags, overwrite)
