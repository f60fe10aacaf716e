"""Where labelled series come from and how they are divided into training, validation and test."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geomix.checkpoint import ClassInfo
from geomix.config import Config
from geomix.errors import InputError, MissingFileError
from geomix.learn.splits import Splits
from geomix.memory import default_budget
from geomix.parallel.ranks import in_turn
from sits.bands import require_bands
from sits.data.inputs import Inputs
from sits.data.labelled import IGNORE, LabelledSeries, measure, number_labels
from sits.data.parcels import ParcelData, fold_of, read_parcels
from sits.grid import Grid, Window
from sits.io.find import RASTERS
from sits.io.options import ReadOptions
from sits.io.pastis import BANDS, ROTATION, VOID, PastisFolder, Patch, series_of_patch
from sits.io.raster import grid_of, open_raster
from sits.series import ArraySource, TimeSeries
from sits.synthetic import write_pastis

Side = Literal["top", "bottom", "left", "right"]


class PastisData(Config):
    """Patches in the PASTIS format, divided by the published rotation of the folds."""

    kind: Literal["pastis"] = "pastis"
    experiment: Literal[1, 2, 3, 4, 5] = 1
    """Number in the published rotation: 1 trains on folds 1 2 3, validates on 4 and tests on 5."""


class SyntheticData(Config):
    """Made-up patches in the PASTIS format, written to the run folder and used as such."""

    kind: Literal["synthetic"] = "synthetic"
    patches: int = Field(40, ge=5)
    size: int = Field(64, ge=8)
    """Rows and columns of a patch, pixels."""
    dates: int = Field(24, ge=3)
    seed: int = Field(0, ge=0)


class SceneData(Config):
    """One image series with a label raster on the same grid, of which a side is held out for the test."""

    kind: Literal["scene"] = "scene"
    images: str
    """Pattern of the image files inside the data folder."""
    labels: str
    """Name of the label raster inside the data folder."""
    unlabelled: tuple[int, ...] = (0,)
    """Codes of the label raster that mean no label."""
    held_out: Side | None = "bottom"
    """The third of the scene that is the test; None trains on all of it."""
    gap: int = Field(16, ge=0)
    """Pixels between training and test that belong to neither."""
    reading: ReadOptions = ReadOptions()
    """What is said about the images, as on the command line of `segment`."""


AnyData = PastisData | SyntheticData | SceneData | ParcelData
DataConfig = Annotated[AnyData, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class SitsSplits(Splits[LabelledSeries]):
    """Labelled series by what they are for."""

    inputs: Inputs
    """How they are prepared, with mean and standard deviation of the training part."""


def open_splits(
    data: AnyData,
    path: Path | None,
    inputs: Inputs,
    classes: Sequence[ClassInfo],
    scratch: Path | None = None,
) -> SitsSplits:
    """Open labelled data.

    Args:
        data: kind of data and how they are divided.
        path: their folder; synthetic data need none.
        inputs: bands that the model wants; mean and standard deviation are measured where they are missing.
        classes: the classes in the order of the model; `id` is the code in a label raster.
        scratch: folder for data that are made.

    Raises:
        MissingFileError: if a folder is needed and not given, or a file is absent.
    """
    ids = [one.id for one in classes]
    if isinstance(data, SyntheticData):
        return _open_pastis(PastisData(), _make(data, path, scratch), inputs, ids)
    if path is None:
        raise MissingFileError(f"data of kind {data.kind} lie in a folder; name it with --data")
    if isinstance(data, SceneData):
        return _open_scene(data, path, inputs, ids)
    if isinstance(data, ParcelData):
        return _open_parcels(data, path, inputs, [one.name for one in classes])
    return _open_pastis(data, path, inputs, ids)


def _splits(
    inputs: Inputs,
    train: list[LabelledSeries],
    val: Sequence[LabelledSeries] = (),
    test: Sequence[LabelledSeries] = (),
    norm: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> SitsSplits:
    """The splits, with what the inputs learn from the training part; `norm` as the data's authors give it."""
    if not inputs.mean:
        mean, std = norm or measure(train)
        inputs = inputs.model_copy(update={"mean": mean, "std": std})
    return SitsSplits(train, val, test, inputs=inputs)


def _make(data: SyntheticData, path: Path | None, scratch: Path | None) -> Path:
    """The folder of the synthetic patches: the given one, or one that is made."""
    if path is not None:
        return path
    if scratch is None:
        raise MissingFileError("synthetic data need a folder to be written to; name one with --data")
    folder = scratch / "synthetic"
    with in_turn():
        if not (folder / "metadata.geojson").exists():
            # Without its metadata it is what an interrupted run left.
            shutil.rmtree(folder, ignore_errors=True)
            write_pastis(folder, data.patches, data.size, data.dates, data.seed)
    return folder


def _open_pastis(data: PastisData, path: Path, inputs: Inputs, ids: Sequence[int]) -> SitsSplits:
    folder = PastisFolder(path)
    train, val, test = ROTATION[data.experiment]
    require_bands(inputs.bands, BANDS, str(path))
    norm = None
    if all(fold in folder.published_norms for fold in train):
        channels = [BANDS.index(band) for band in inputs.bands]
        mean, std = np.mean([folder.published_norms[fold] for fold in train], axis=0)[:, channels] / 10000
        norm = tuple(mean.tolist()), tuple(std.tolist())

    def series(*folds: int) -> list[LabelledSeries]:
        return [_patch(folder, patch, inputs.bands, ids) for patch in folder.of_folds(folds)]

    return _splits(inputs, series(*train), series(val), series(test), norm)


def _patch(folder: PastisFolder, patch: Patch, bands: Sequence[str], ids: Sequence[int]) -> LabelledSeries:
    labels = number_labels(folder.labels(patch), ids, (VOID,), f"{folder.path}, patch {patch.id}")
    return LabelledSeries(series_of_patch(folder, patch).select(bands), labels)


def _open_scene(data: SceneData, path: Path, inputs: Inputs, ids: Sequence[int]) -> SitsSplits:
    from sits.io import open_series

    files = sorted(path.glob(data.images))
    if not files:
        raise MissingFileError(f"{path}: no file matches {data.images}")
    series = open_series(files, replace(data.reading, known=inputs.bands)).select(inputs.bands)
    label_file = path / data.labels
    if not label_file.is_file():
        raise MissingFileError(f"{label_file}: there is no such label raster")
    codes = _read_codes(label_file, series.grid, data.unlabelled)
    labels = number_labels(codes, ids, data.unlabelled, str(label_file))
    scene = LabelledSeries(_in_memory(series), labels)
    if data.held_out is None:
        return _splits(inputs, [scene])
    kept, tested = divide(scene.whole, data.held_out, data.gap)
    trained = replace(scene, labels=_only(labels, kept), within=kept)
    return _splits(inputs, [trained], test=[replace(scene, labels=_only(labels, tested))])


def _read_codes(file: Path, grid: Grid, unlabelled: Sequence[int]) -> NDArray[np.int64]:
    """The codes of a label raster [H, W]; its own nodata and NaN become the first code of `unlabelled`.

    Raises:
        InputError: if it is no raster, lies on another grid, or holds numbers that are not whole.
    """
    if file.suffix.lower() not in RASTERS:
        raise InputError(
            f"{file}: is no raster of labels; polygons and points train a model by `geomix sits train fields "
            "--images ... --labels FILE --field COLUMN`"
        )
    with open_raster(str(file)) as source:
        difference = grid.difference(grid_of(source))
        if difference is not None:
            raise InputError(
                f"{file}: lies on another grid than the images: {difference}; bring it to theirs by nearest "
                "neighbour first (gdalwarp -r near)"
            )
        codes, nodata = source.read(1), source.nodata
    missing = np.zeros(codes.shape, dtype=bool) if nodata is None else codes == nodata
    if np.issubdtype(codes.dtype, np.floating):
        missing |= np.isnan(codes)
    whole = np.where(missing, unlabelled[0] if unlabelled else -1, codes)
    if (whole != np.rint(whole)).any():
        raise InputError(f"{file}: holds numbers that are not whole, so no codes of classes")
    if missing.any() and not unlabelled:
        raise InputError(f"{file}: has pixels without a label; name a code for them in data.unlabelled")
    return whole.astype(np.int64)


def _in_memory(series: TimeSeries) -> TimeSeries:
    """The series with its numbers in memory, where that allows: crops are drawn again and again."""
    if 5 * math.prod(series.shape) > default_budget():
        return series
    values, valid = series.read()
    return replace(series, source=ArraySource(values, valid, series.bands), steps=None)


def _open_parcels(data: ParcelData, path: Path, inputs: Inputs, names: Sequence[str]) -> SitsSplits:
    parcels = read_parcels(path, data, inputs.bands, names)
    if data.test_fold is None:
        return _splits(inputs, parcels)
    folds = fold_of([int(one.labels[0, 0]) for one in parcels], data.folds, data.seed)
    tested = folds == data.test_fold
    return _splits(
        inputs,
        [one for one, out in zip(parcels, tested, strict=True) if not out],
        test=[one for one, out in zip(parcels, tested, strict=True) if out],
    )


def divide(whole: Window, side: Side, gap: int) -> tuple[Window, Window]:
    """Hold out the third of a scene on one side.

    Returns:
        The window to train on and the window to test on, `gap` pixels apart.

    Raises:
        InputError: if nothing is left to train on.
    """
    rows, columns = whole.height, whole.width
    third = (rows if side in ("top", "bottom") else columns) // 3
    windows = {
        "top": (Window(third + gap, 0, rows - third - gap, columns), Window(0, 0, third, columns)),
        "bottom": (Window(0, 0, rows - third - gap, columns), Window(rows - third, 0, third, columns)),
        "left": (Window(0, third + gap, rows, columns - third - gap), Window(0, 0, rows, third)),
        "right": (Window(0, 0, rows, columns - third - gap), Window(0, columns - third, rows, third)),
    }
    kept, tested = windows[side]
    if min(kept.height, kept.width) < 1 or third < 1:
        raise InputError(f"{rows} x {columns} pixels are too few to hold out a third with a gap of {gap}")
    return kept, tested


def _only(labels: NDArray[np.int64], window: Window) -> NDArray[np.int64]:
    inside = np.full_like(labels, IGNORE)
    inside[window.slices] = labels[window.slices]
    return inside
