"""Several series in one call: a folder of PASTIS patches, or cubes side by side, into a folder of maps."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from geomix.errors import InputError
from geomix.files import make_folder
from geomix.options import BatchOptions
from geomix.parallel.jobs import run_jobs
from sits.io import expand, open_series
from sits.io.find import Kind, kind_of
from sits.io.options import ReadOptions
from sits.io.pastis import PastisFolder, series_of_patch
from sits.predict.files import MapPaths, load_scorer, segment_file
from sits.series import TimeSeries


def is_batch(output: Path) -> bool:
    """Whether an output is a folder, so that every input is a series of its own."""
    return output.is_dir() or output.suffix == ""


def segment_each(
    inputs: Sequence[str | Path],
    outputs: MapPaths,
    model: str | Path,
    *,
    options: ReadOptions | None = None,
    device: str = "auto",
    memory: str | None = None,
    block: int | None = None,
    until: date | None = None,
    season_start: date | None = None,
    overwrite: bool = False,
    resume: bool = False,
    scheduler: str | None = None,
) -> tuple[list[Path], int]:
    """Turn each input into a map of its own; one that fails is reported, and the rest goes on.

    Args:
        inputs: folders, cubes, collections, patches or PASTIS folders; loose rasters are one series.
        outputs: folders for the results, one file a series in each.
        model: name of a bundled model or a model file.
        options: what is to be said about the inputs.
        device: `auto`, `cpu` or `cuda`.
        memory: most memory to use.
        block: side of the blocks in pixels.
        until: last date that the model may see.
        season_start: the day from which days count.
        overwrite: whether existing files may be replaced.
        resume: keep interrupted maps and go on with them the next time.
        scheduler: address of a Dask scheduler whose workers share the series.

    Returns:
        The files that were written, and the exit code: 1 if an input failed.
    """
    load_scorer(model, device)  # a wrong name is one error, not one a series
    items = series_in(inputs, options)
    for folder in (outputs.map, outputs.proba, outputs.entropy, outputs.count, outputs.quicklook):
        if folder is not None:
            make_folder(folder)
    written: list[Path] = []

    def work(name: str) -> tuple[Path, ...]:
        paths = _paths(outputs, name)
        segment_file(
            items[name](),
            paths,
            load_scorer(model, device),
            memory=memory,
            block=block,
            until=until,
            season_start=season_start,
            overwrite=overwrite,
            resume=resume,
        )
        return paths.all

    return written, run_jobs(
        list(items), work, BatchOptions(scheduler=scheduler), done=written.extend, description="Series"
    )


def series_in(
    inputs: Sequence[str | Path], options: ReadOptions | None = None
) -> dict[str, Callable[[], TimeSeries]]:
    """What opens each series that the inputs hold, by the name that its map gets.

    Raises:
        InputError: if two would share a name.
    """
    found: dict[str, Callable[[], TimeSeries]] = {}
    loose: list[Path] = []
    for path in expand(inputs):
        kind: Kind = kind_of([path])
        if kind == "rasters" and path.is_file():
            loose.append(path)
            continue
        if kind == "pastis":
            folder = PastisFolder(path)
            more = {
                f"S2_{patch.id}": partial(series_of_patch, folder, patch, options)
                for patch in folder.patches.values()
            }
        else:
            more = {path.stem: partial(open_series, path, options)}
        for name, series in more.items():
            if name in found:
                raise InputError(f"{path}: two inputs would become {name}.tif; map them one at a time")
            found[name] = series
    if loose:
        found[loose[0].parent.name or "map"] = partial(open_series, loose, options)
    return found


def _paths(outputs: MapPaths, name: str) -> MapPaths:
    def inside(folder: Path | None, suffix: str) -> Path | None:
        return None if folder is None else folder / f"{name}{suffix}"

    return MapPaths(
        map=outputs.map / f"{name}.tif",
        proba=inside(outputs.proba, ".tif"),
        entropy=inside(outputs.entropy, ".tif"),
        count=inside(outputs.count, ".tif"),
        quicklook=inside(outputs.quicklook, ".png"),
        item=outputs.item,
    )
