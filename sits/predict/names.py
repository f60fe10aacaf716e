"""What the results of several series are called: a folder of PASTIS patches, or cubes side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from geomix.errors import InputError
from sits.io import expand, open_series
from sits.io.find import Kind, kind_of
from sits.io.options import ReadOptions
from sits.io.pastis import PastisFolder, series_of_patch
from sits.predict.files import MapPaths
from sits.series import TimeSeries


def is_batch(output: Path) -> bool:
    """Whether an output is a folder, so that every input is a series of its own."""
    return output.is_dir() or output.suffix == ""


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


def paths_for(outputs: MapPaths, name: str) -> MapPaths:
    """Where the results of one series go, in folders for the results of all."""

    def inside(folder: Path | None, suffix: str) -> Path | None:
        return None if folder is None else folder / f"{name}{suffix}"

    return MapPaths(
        map=outputs.map / f"{name}.tif",
        proba=inside(outputs.proba, ".tif"),
        entropy=inside(outputs.entropy, ".tif"),
        count=inside(outputs.count, ".tif"),
        preview=inside(outputs.preview, ".png"),
        item=outputs.item,
    )
