"""xarray in, xarray out: lazy where the input is lazy."""

from collections.abc import Hashable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import rioxarray  # noqa: F401 - gives xarray objects their .rio
import xarray as xr
from numpy.typing import NDArray
from torch import nn

from geomix.checkpoint import load_model
from geomix.device import choose_device
from sits.dates import format_dates
from sits.grid import Window
from sits.io.cubegrid import grid_mapping_name
from sits.io.cubesource import CubeSource
from sits.io.legend import NODATA
from sits.io.options import MapOptions
from sits.predict.blocks import Scorer, score_blocks
from sits.predict.files import open_scene
from sits.series import TimeSeries


def segment(
    dataset: xr.Dataset | xr.DataArray,
    *,
    model: str | Path | nn.Module,
    options: MapOptions | None = None,
) -> xr.DataArray:
    """Label every pixel of an image time series.

    Args:
        dataset: dimensions for time and space; bands are a dimension or variables, matched by name.
        model: name of a bundled model, a model file, or a model from `geomix.load_model`.
        options: how it is read and computed, and which dates the model may see.

    Returns:
        Class codes [y, x], uint8, 255 where no date shows a pixel; `flag_values` and `flag_meanings` name
        them. Coordinates and grid mapping are those of the input. Of a dask-backed input nothing is read
        until the result is computed, block by block; so no date of one number is found and left out.

    Raises:
        GeomixError: if the dataset cannot be understood or does not fit the model.
    """
    options = options or MapOptions()
    loaded = model if isinstance(model, nn.Module) else load_model(model, domain="sits")
    scorer = Scorer(loaded, choose_device(options.device))
    series = open_scene(dataset, scorer, options)
    source = series.source
    lazy = isinstance(source, CubeSource) and source.lazy
    side = scorer.block_size(series, options.bytes, options.block, at_once=lazy)
    if isinstance(source, CubeSource) and lazy:
        codes: Any = _lazily(scorer, series, source, side, options.season_start)
    else:
        codes = np.full(series.grid.shape, NODATA, dtype=np.uint8)
        for scores in score_blocks(scorer, series, side, options.season_start):
            codes[scores.window.slices] = scores.codes(scorer.legend)
    return _named(codes, dataset, scorer, series)


def _lazily(scorer: Scorer, series: TimeSeries, source: CubeSource, side: int, start: date | None) -> Any:
    """A dask array whose blocks are read and scored when they are computed."""
    import dask.array as da
    from dask.delayed import delayed

    days = scorer.days(series, start)
    _, y, x = source.dims
    shared = delayed(scorer)
    empty = replace(source, data=xr.Dataset())
    wanted = [source.bands[band].variable for band in series.bands]
    data = source.data[[*dict.fromkeys([*wanted, *(mask.variable for mask in source.masks)])]]
    rows: dict[int, list[Any]] = {}
    for window in series.grid.blocks(side, series.grid.phase(scorer.unit)):
        outer = series.grid.whole if scorer.halo is None else window.pad(scorer.halo, series.grid.shape)
        wide = outer.pad(source.dilate, series.grid.shape)
        part = data.isel({y: wide.slices[0], x: wide.slices[1]}).drop_vars([y, x], errors="ignore")
        origin = scorer.origin(series.grid, outer)
        task = delayed(_codes)(
            shared, part, empty, series.steps, series.bands, days, wide, outer, origin, window
        )
        block = da.from_delayed(task, (window.height, window.width), dtype=np.uint8)  # type: ignore[no-untyped-call]
        rows.setdefault(window.row, []).append(block)
    return da.block(list(rows.values()))  # type: ignore[no-untyped-call]


def _codes(
    scorer: Scorer,
    part: xr.Dataset,
    source: CubeSource,
    steps: tuple[int, ...] | None,
    bands: tuple[str, ...],
    days: NDArray[np.int64],
    wide: Window,
    outer: Window,
    origin: tuple[int, int],
    window: Window,
) -> NDArray[np.uint8]:
    """The codes of a window, from the part of the data that holds it and its context."""
    here = Window(outer.row - wide.row, outer.col - wide.col, outer.height, outer.width)
    chosen = tuple(range(len(source.steps))) if steps is None else steps
    values, valid = replace(source, data=part).read(chosen, bands, here)
    logits = scorer.run(values, valid, days, origin)
    rows, cols = window.within(outer)
    best = scorer.legend.codes[logits[:, rows, cols].argmax(axis=0)]
    return np.where(valid[:, rows, cols].any(axis=0), best, np.uint8(NODATA))


def _named(
    codes: Any, dataset: xr.Dataset | xr.DataArray, scorer: Scorer, series: TimeSeries
) -> xr.DataArray:
    """The codes with the coordinates of the input and the names of the classes."""
    data = dataset.to_dataset(name=dataset.name or "values") if isinstance(dataset, xr.DataArray) else dataset
    y, x = _space(series)
    coords = {dim: data.coords[dim] for dim in (y, x) if dim in data.coords}
    legend = scorer.legend.by_code
    result = xr.DataArray(
        codes,
        dims=(y, x),
        coords=coords,
        name="class",
        attrs={
            "long_name": "class",
            "flag_values": np.array([entry.id for entry in legend], dtype=np.uint8),
            "flag_meanings": " ".join("_".join(entry.name.replace(",", "").split()) for entry in legend),
            "model": scorer.card.name,
            "dates": format_dates(series.dates),
        },
    )
    key = grid_mapping_name(data)
    if key is not None:
        kept = data[key].reset_coords(drop=True)
        result = result.assign_coords({key: xr.DataArray(kept.variable)})
    else:
        key = "spatial_ref"
        result = result.rio.write_crs(series.grid.crs, grid_mapping_name=key)
    result.encoding["grid_mapping"] = key
    result.encoding["_FillValue"] = np.uint8(NODATA)
    return result


def _space(series: TimeSeries) -> tuple[Hashable, Hashable]:
    source = series.source
    if not isinstance(source, CubeSource):  # open_xarray gives no other
        raise TypeError(type(source).__name__)
    return source.dims[1], source.dims[2]
