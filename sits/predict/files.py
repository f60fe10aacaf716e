"""From files to map files: one pass over the blocks fills every output that is asked for."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import rasterio
import xarray as xr
from numpy.typing import NDArray
from PIL import Image

import geomix
from geomix.checkpoint import find_model, kept_model
from geomix.device import choose_device
from geomix.errors import InputError, OutputExistsError
from geomix.files import is_taken, new_file
from sits.dates import format_dates
from sits.io import open_series
from sits.io.cog import Layer, new_cog
from sits.io.item import item_path, item_text
from sits.io.legend import LEARNED_TAG, NODATA, Legend
from sits.io.options import MapOptions
from sits.io.pam import pam_path, pam_text
from sits.io.preview import write_preview
from sits.io.qml import qml_path, qml_text
from sits.predict.blocks import Scorer, Scores, score_blocks
from sits.predict.limits import warn_outside
from sits.predict.resume import Unfinished, begin, kept
from sits.series import TimeSeries

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MapPaths:
    """Where the results of one scene go."""

    map: Path
    """Class codes, uint8, 255 for nothing; its names and colours go beside it."""
    proba: Path | None = None
    """Probability of each class in per cent, uint8, a band a class."""
    entropy: Path | None = None
    """How undecided the model is, per cent of the most it could be, uint8."""
    count: Path | None = None
    """How many dates show each pixel, uint16."""
    preview: Path | None = None
    """A picture with a legend."""
    item: bool = False
    """Whether a STAC item is written beside the map."""

    @property
    def rasters(self) -> dict[str, Path]:
        """The rasters that will be written, by what they show."""
        rasters = {"map": self.map, "proba": self.proba, "entropy": self.entropy, "count": self.count}
        return {role: path for role, path in rasters.items() if path is not None}

    @property
    def all(self) -> tuple[Path, ...]:
        """Every file that will be written."""
        optional = (self.proba, self.entropy, self.count, self.preview)
        named = [self.map, pam_path(self.map), qml_path(self.map), *(path for path in optional if path)]
        return (*named, item_path(self.map)) if self.item else tuple(named)

    def check(self, overwrite: bool) -> None:
        """Refuse at once what would be refused after hours.

        Raises:
            InputError: if two outputs share a name, or one has a suffix that does not fit.
            OutputExistsError: if a file exists and may not be replaced.
        """
        for path in self.rasters.values():
            if path.suffix.lower() not in (".tif", ".tiff"):
                raise InputError(f"{path}: maps are GeoTIFFs; name it .tif")
        if self.preview is not None and self.preview.suffix.lower() not in Image.registered_extensions():
            raise InputError(f"{self.preview}: is no picture; name it .png")
        twice = [path for path in self.all if self.all.count(path) > 1]
        if twice:
            raise InputError(f"{twice[0]}: is asked for twice; give each output its own name")
        for path in self.all:
            if is_taken(path, overwrite):
                raise OutputExistsError(
                    f"{path}: exists already; choose another name or allow overwriting (--overwrite)"
                )


def segment_file(
    inputs: str | Path | Sequence[str | Path] | TimeSeries,
    output: str | Path | MapPaths,
    model: str | Path | Scorer,
    options: MapOptions | None = None,
) -> MapPaths:
    """Turn an image series into a class map on exactly its grid.

    Args:
        inputs: as for `sits.open_series`, or a series that is open already.
        output: the map, or all results that are wanted.
        model: name of a bundled model, a model file, or one that is loaded already.
        options: how it is read and computed, and which dates the model may see.

    Returns:
        What was written.

    Raises:
        GeomixError: if the input cannot be read, does not fit the model, or an output exists. Then no
            output is left behind.
    """
    options = options or MapOptions()
    paths = output if isinstance(output, MapPaths) else MapPaths(Path(output))
    paths.check(options.overwrite)
    scorer = model if isinstance(model, Scorer) else load_scorer(model, options.device)
    series = open_scene(inputs, scorer, options)
    tags = tags_of(scorer, series, options.season_start)
    # GDAL keeps what it read; the rest of the budget is for the blocks.
    limit = options.bytes
    cache = min(256 * 2**20, (limit or 4 * 2**30) // 8)
    with rasterio.Env(GDAL_CACHEMAX=cache):
        side = scorer.block_size(series, None if limit is None else limit - cache, options.block)
        unfinished = begin(paths.map, paths.rasters, series.grid, tags, side) if options.resume else None
        side, done = (unfinished.block, unfinished.done) if unfinished else (side, set())
        rows, columns = series.grid.shape
        log.info(
            "%s: %d dates, %d x %d pixels, blocks of %d", series.name, len(series.dates), rows, columns, side
        )
        blocks = score_blocks(scorer, series, side, options.season_start, done)
        write_maps(paths, scorer.legend, series, blocks, tags, options.overwrite, unfinished)
    return paths


def open_scene(
    inputs: str | Path | Sequence[str | Path] | TimeSeries | xr.Dataset | xr.DataArray,
    scorer: Scorer,
    options: MapOptions,
) -> TimeSeries:
    """Open a series as a model wants it: its bands, up to the last date that it may see.

    What lies outside the limits of the model gives a warning.

    Raises:
        GeomixError: if the input cannot be read or does not fit the model.
    """
    reading = replace(options.reading, known=scorer.inputs.bands)
    series = scorer.series(inputs if isinstance(inputs, TimeSeries) else open_series(inputs, reading))
    if options.until is not None:
        series = series.between(last=options.until)
    warn_outside(scorer.card, scorer.inputs, series, options.season_start or scorer.season(series.dates))
    return series


def write_maps(
    paths: MapPaths,
    legend: Legend,
    series: TimeSeries,
    blocks: Iterable[Scores],
    tags: Mapping[str, str],
    overwrite: bool = False,
    unfinished: Unfinished | None = None,
) -> None:
    """Fill all outputs from scored blocks; nothing gets its name before everything is complete."""
    with kept(unfinished), ExitStack() as stack:
        # The map is entered first, so it gets its name last: whoever sees it sees the rest too.
        sinks = {
            role: stack.enter_context(
                new_cog(path, series.grid, layer, overwrite, unfinished.work(role) if unfinished else None)
            )
            for role, path, layer in _layers(paths, legend, tags)
        }
        for scores in blocks:
            for role, sink in sinks.items():
                sink.write(_values(role, scores, legend), scores.window)
            if unfinished is not None:
                unfinished.wrote(scores.window, sinks.values())
        for sink in sinks.values():
            sink.finish()
        for path, content in _side_files(paths, legend, series, tags):
            stack.enter_context(new_file(path, overwrite)).write_bytes(content)
        if paths.preview is not None:
            picture = stack.enter_context(new_file(paths.preview, overwrite))
            write_preview(sinks["map"].path, picture, legend, _title(series, tags))


def load_scorer(model: str | Path, device: str = "auto") -> Scorer:
    """Load a model by name or file; maps made with it name the file's hash.

    Raises:
        MissingFileError: if there is no such model.
        CheckpointError: if the file is not a model for image series.
    """
    file = find_model(model, "sits")
    loaded = kept_model(file, choose_device(device), "sits")
    return Scorer(loaded, choose_device(device), hashlib.sha256(file.read_bytes()).hexdigest())


def tags_of(scorer: Scorer, series: TimeSeries, start: date | None = None) -> dict[str, str]:
    """What a map says about its making: model and its hash, classes, dates, offsets, software."""
    days = scorer.days(series, start)
    tags = {
        "TIFFTAG_SOFTWARE": f"geomix {geomix.__version__}",
        "GEOMIX_MODEL": scorer.card.name,
        "GEOMIX_CLASSES": scorer.legend.to_json(),
        "GEOMIX_DATES": format_dates(series.dates),
        "GEOMIX_DAYS": " ".join(map(str, days.tolist())),
        "GEOMIX_OFFSETS": "; ".join(f"{one.date} {one.offset}" for one in series.acquisitions),
        "GEOMIX_BANDS": " ".join(series.bands),
        "GEOMIX_INPUT": series.name,
    }
    if scorer.digest is not None:
        tags["GEOMIX_MODEL_SHA256"] = scorer.digest
    # So that references which took part in the training can be told from others.
    shapes = [
        key for one in scorer.card.data if isinstance(one.split, dict) for key in one.split.get("shapes", ())
    ]
    if shapes:
        tags[LEARNED_TAG] = " ".join(shapes)
    return tags | {f"GEOMIX_{key.upper()}": value for key, value in series.notes.items()}


def _layers(paths: MapPaths, legend: Legend, tags: Mapping[str, str]) -> Iterator[tuple[str, Path, Layer]]:
    yield "map", paths.map, Layer("uint8", NODATA, ("class",), tags, legend.colormap, "mode")
    per_cent = {**tags, "GEOMIX_UNIT": "per cent"}
    if paths.proba is not None:
        yield "proba", paths.proba, Layer("uint8", NODATA, legend.names, per_cent, overviews="average")
    if paths.entropy is not None:
        yield "entropy", paths.entropy, Layer("uint8", NODATA, ("entropy",), per_cent, overviews="average")
    if paths.count is not None:
        yield "count", paths.count, Layer("uint16", None, ("valid dates",), tags)


def _values(role: str, scores: Scores, legend: Legend) -> NDArray[np.generic]:
    if role == "map":
        return scores.codes(legend)[None]
    if role == "count":
        return scores.dates[None]
    shares = scores.probabilities() if role == "proba" else scores.entropy()[None]
    return np.where(scores.dates > 0, np.rint(100 * shares), NODATA).astype(np.uint8)


def _side_files(
    paths: MapPaths, legend: Legend, series: TimeSeries, tags: Mapping[str, str]
) -> Iterator[tuple[Path, bytes]]:
    yield pam_path(paths.map), pam_text(legend)
    yield qml_path(paths.map), qml_text(legend)
    if paths.item:
        others = {role: path for role, path in paths.rasters.items() if role != "map"}
        if paths.preview is not None:
            others["preview"] = paths.preview
        told = {
            key.lower().replace("_", ":", 1): value
            for key, value in tags.items()
            if key.startswith("GEOMIX_")
        }
        told.pop("geomix:classes", None)
        yield (
            item_path(paths.map),
            item_text(paths.map, series.grid, legend, series.dates, told, others).encode(),
        )


def _title(series: TimeSeries, tags: Mapping[str, str]) -> str:
    first, last = series.dates[0], series.dates[-1]
    return f"{tags.get('GEOMIX_MODEL', 'map')}, {len(series.dates)} dates {first} to {last}"
