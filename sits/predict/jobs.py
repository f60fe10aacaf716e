"""Several series in one call, each into a map of its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from geomix.files import make_folder
from geomix.parallel.jobs import run_jobs
from sits.io.options import MapOptions
from sits.predict.files import MapPaths, load_scorer, segment_file
from sits.predict.names import paths_for, series_in


def segment_each(
    inputs: Sequence[str | Path],
    outputs: MapPaths,
    model: str | Path,
    options: MapOptions | None = None,
) -> tuple[list[Path], int]:
    """Turn each input into a map of its own; one that fails is reported, and the rest goes on.

    Args:
        inputs: folders, cubes, collections, patches or PASTIS folders; loose rasters are one series.
        outputs: folders for the results, one file per series in each.
        model: name of a bundled model or a model file.
        options: how they are read and computed, and which dates the model may see.

    Returns:
        The files that were written, and the exit code: 1 if an input failed.
    """
    options = options or MapOptions()
    if options.bytes is not None:
        options = replace(options, memory=str(options.bytes // options.jobs))
    load_scorer(model, options.device)  # a wrong name is one error, not one per series
    items = series_in(inputs, options.reading)
    for folder in (outputs.map, outputs.proba, outputs.entropy, outputs.count, outputs.preview):
        if folder is not None:
            make_folder(folder)
    written: list[Path] = []

    def work(name: str) -> tuple[Path, ...]:
        paths = paths_for(outputs, name)
        segment_file(items[name](), paths, load_scorer(model, options.device), options)
        return paths.all

    code = run_jobs(
        list(items),
        work,
        options,
        outputs=lambda name: paths_for(outputs, name).all,
        done=written.extend,
        description="Series",
    )
    return written, code
