"""Series from xarray objects: NetCDF, Zarr and whatever the caller holds, lazy or not."""

import logging
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from geomix.errors import FormatError, InputError
from sits.bands import BANDS
from sits.dates import date_in_name, parse_datetime, read_date_table
from sits.io.check import checked
from sits.io.cubebands import find_bands, layers_in
from sits.io.cubegrid import axes_of, grid_of_cube
from sits.io.cubesource import CubeBand, CubeMask, CubeSource, load
from sits.io.masks import parse_rule, rule_for
from sits.io.options import ReadOptions
from sits.io.scenes import group_days, joined
from sits.io.target import with_crs
from sits.radiometry import (
    Evidence,
    Radiometry,
    baseline_in_name,
    decide_offset,
    guess_scale,
    level_in_name,
)
from sits.series import Acquisition, TimeSeries

log = logging.getLogger(__name__)

_TIMES = ("time", "t", "date", "dates", "datetime", "acquisition")


def read(paths: Sequence[Path], options: ReadOptions) -> TimeSeries:
    """Open a NetCDF file or a Zarr store as a series; `paths` names it alone.

    Raises:
        FormatError: if it cannot be read.
        InputError: if it has no dates, no bands that are known, or no coordinate system.
    """
    path = paths[0]
    try:
        if path.is_dir():
            data = xr.open_zarr(path, chunks=None, mask_and_scale=False, consolidated=_consolidated(path))
        else:
            data = xr.open_dataset(path, mask_and_scale=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path}: is damaged, truncated or no NetCDF or Zarr ({reason[:120]})") from error
    if not data.data_vars and path.is_dir():
        _refuse_groups(path)
    return checked(open_xarray(data, options, str(path)), options)


def _consolidated(store: Path) -> bool:
    """Whether a store keeps the metadata of all its arrays in one place."""
    listed = store / "zarr.json"
    return (store / ".zmetadata").is_file() or (
        listed.is_file() and "consolidated_metadata" in listed.read_text(encoding="utf-8")
    )


def _refuse_groups(store: Path) -> None:
    """Name the groups of a store that has no variables of its own."""
    markers = sorted({*store.rglob(".zarray"), *store.rglob("zarr.json")})
    groups = sorted({one.parent.parent.relative_to(store).as_posix() for one in markers} - {".", ".."})
    if groups:
        raise InputError(
            f"{store}: holds groups and no variables of its own; give one of {', '.join(groups)}, such as "
            f"{store / groups[0]}"
        )


def read_xarray(data: xr.Dataset | xr.DataArray, options: ReadOptions) -> TimeSeries:
    """Open an xarray object as a series; one that dask holds is not looked at before it is computed.

    Raises:
        InputError: if it has no dates, no bands that are known, or no coordinate system.
    """
    if options.mask not in ("auto", "none") and parse_rule(options.mask) is None:
        raise InputError("an xarray object takes no mask file; blank its values with `where` instead")
    series = open_xarray(data, options)
    lazy = isinstance(series.source, CubeSource) and series.source.lazy
    return series if lazy else checked(series, options)


def open_xarray(
    data: xr.Dataset | xr.DataArray, options: ReadOptions | None = None, name: str = "dataset"
) -> TimeSeries:
    """Read an xarray object as a series; its values stay where they are until a window is read.

    Args:
        data: with a dimension for time and two for space; bands are a dimension or variables.
        options: what the user says about it.
        name: what messages call it.

    Raises:
        InputError: if it has no dates, no bands that are known, or no coordinate system.
    """
    options = options or ReadOptions()
    if isinstance(data, xr.DataArray):
        data = data.to_dataset(name=data.name or "values")
    time, y, x = axes_of(data, _TIMES, name)
    moment = date_in_name(Path(name)) if time is None else None
    if time is None and moment is not None:
        log.info("%s: has no dimension for time; its date %s is that of its name", name, moment.date())
        data, time = data.expand_dims(time=[np.datetime64(moment, "ns")]), "time"
    if time is None:
        raise InputError(f"{name}: has no dimension for time ({', '.join(_TIMES[:3])}), so no dates")
    grid = with_crs(grid_of_cube(data, y, x, name), options.crs, name)
    if grid.crs is None:
        raise InputError(
            f"{name}: has no coordinate system (looked in grid_mapping, crs, spatial_ref and attributes); "
            "name it with --crs EPSG:..."
        )
    band_dim, found = find_bands(data, (time, y, x), options.band_names, name, options.known)
    log.info("%s: time is %r, rows %r, columns %r, bands %s", name, time, y, x, band_dim or "variables")
    bands = _with_radiometry(data, found, (time, y, x), options, name)
    moments = _moments(data, time, options, name)
    offsets, reasons = _offsets(data, time, bands, options, baseline_in_name(name))
    grouped = group_days(moments, [moment.isoformat() for moment in moments], grid)
    steps = tuple(places for _, places in grouped)
    acquisitions = tuple(
        Acquisition(
            day,
            tuple(moments[place].isoformat() for place in places),
            joined([reasons[place] for place in places]),
        )
        for day, places in grouped
    )
    masks = tuple(
        CubeMask(variable, place, rule)
        for text, variable, place in layers_in(data, (time, y, x), band_dim)
        if (rule := rule_for(text, options.mask)) is not None
    )
    source = CubeSource(data, (time, y, x), band_dim, bands, steps, offsets, name, masks, options.dilate)
    names = tuple(sorted(bands, key=lambda band: (BANDS.index(band) if band in BANDS else 99, band)))
    level = level_in_name(str(data.attrs.get("source", ""))) or level_in_name(name)
    notes = {"scale": ", ".join(sorted({f"{band.radiometry.scale:g}" for band in bands.values()}))}
    if level:
        notes["level"] = level
    if masks:
        notes["mask"] = "; ".join(dict.fromkeys(str(mask.rule) for mask in masks))
        log.info("%s: masked are %s (say otherwise with --mask)", name, notes["mask"])
    elif parse_rule(options.mask) is not None:
        raise InputError(f"{name}: has no layer {options.mask.partition('=')[0]} for --mask {options.mask}")
    return TimeSeries(grid, acquisitions, names, source, name, notes)


def _with_radiometry(
    data: xr.Dataset,
    found: Mapping[str, tuple[Hashable, int | None]],
    dims: tuple[Hashable, Hashable, Hashable],
    options: ReadOptions,
    name: str,
) -> dict[str, CubeBand]:
    guessed: dict[Hashable, float] = {}
    bands = {}
    for band, (variable, place) in found.items():
        array = data[variable]
        scale = options.scale or _stated_scale(array)
        if scale is None:
            kind = array.dtype
            if kind not in guessed:
                guessed[kind] = guess_scale(kind, _high(array, dims), name)
            scale = guessed[kind]
        shift = _number(array.attrs.get("add_offset"))
        bands[band] = CubeBand(
            variable=variable,
            place=place,
            radiometry=Radiometry(scale, shift / scale if shift else 0.0, _nodata(array, options)),
            unsigned=str(array.attrs.get("_Unsigned", array.encoding.get("_Unsigned", ""))).lower() == "true",
        )
    return bands


def _stated_scale(array: xr.DataArray) -> float | None:
    if "scale_factor" in array.encoding and np.issubdtype(array.dtype, np.floating):
        return 1.0  # xarray has scaled it while it read
    stated = _number(array.attrs.get("scale_factor"))
    # rioxarray writes GDAL's 1, which stands for nothing said.
    if stated is not None and stated != 1:
        return stated
    whole = _number(array.attrs.get("quantification") or array.attrs.get("quantification_value"))
    return 1.0 / whole if whole else None


def _nodata(array: xr.DataArray, options: ReadOptions) -> float | None:
    if options.nodata is not None:
        return options.nodata
    for key in ("_FillValue", "missing_value", "nodata", "nodatavals"):
        value = array.attrs.get(key)
        if value is not None:
            first = _number(np.ravel(value)[0])
            if first is not None and np.isfinite(first):
                return first
    return None


def _high(array: xr.DataArray, dims: tuple[Hashable, Hashable, Hashable]) -> float | None:
    """The 99th percentile of a sample; None for integers, which need none."""
    if not np.issubdtype(array.dtype, np.floating):
        return None
    time, y, x = dims
    middle = {dim: slice(max(array.sizes[dim] // 2 - 32, 0), array.sizes[dim] // 2 + 32) for dim in (y, x)}
    for step in range(array.sizes[time]):
        numbers = load(array.isel({time: step, **middle}), str(array.name))
        known = numbers[np.isfinite(numbers) & (np.abs(numbers) < 1e30)]
        if known.size:
            return float(np.percentile(known, 99))
    return 0.0


def _moments(data: xr.Dataset, time: Hashable, options: ReadOptions, name: str) -> list[datetime]:
    if options.dates is not None:
        table = read_date_table(options.dates)
        if len(table) != data.sizes[time]:
            raise InputError(
                f"{options.dates}: lists {len(table)} dates for the {data.sizes[time]} of {name}"
            )
        return list(table.values())
    if time not in data.coords:
        raise InputError(
            f"{name}: its dimension {time!r} has no coordinates, so no dates; "
            "give one line a step: --dates dates.csv with the columns file,date"
        )
    values = data[time].values
    if np.issubdtype(values.dtype, np.datetime64):
        if np.isnat(values).any():
            raise InputError(f"{name}: step {int(np.isnat(values).argmax())} of {time!r} has no date")
        seconds = values.astype("datetime64[s]")
        return [datetime.fromisoformat(str(moment)) for moment in seconds]
    if np.issubdtype(values.dtype, np.number):
        raise InputError(
            f"{name}: its dimension {time!r} counts {values[:2]}... without units such as "
            "'days since 2018-09-01', so has no dates"
        )
    try:
        return [parse_datetime(str(value)) for value in values]
    except InputError as error:
        raise InputError(f"{name}: dimension {time!r}: {error}") from error


def _offsets(
    data: xr.Dataset,
    time: Hashable,
    bands: Mapping[str, CubeBand],
    options: ReadOptions,
    named: str | None,
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The offset of each step in digital numbers, and the reasons."""
    stated = next((band.radiometry.offset for band in bands.values() if band.radiometry.offset), None)
    if stated is not None and options.offset == "auto":
        reason = f"{stated:g} (stated with the bands)"
        return (0.0,) * data.sizes[time], (reason,) * data.sizes[time]
    decided = []
    scale = next(iter(bands.values())).radiometry.scale
    for step in range(data.sizes[time]):
        keys = ("s2:processing_baseline", "processing:version", "processing_baseline")
        baseline = _at(data, time, step, *keys) or named
        applied = _at(data, time, step, "earthsearch:boa_offset_applied")
        evidence = Evidence(
            baseline=None if baseline is None else str(baseline),
            applied=None if applied is None else str(applied).lower() in ("true", "1"),
        )
        decided.append(decide_offset(evidence, options.offset_choice, scale))
    return tuple(offset for offset, _ in decided), tuple(reason for _, reason in decided)


def _at(data: xr.Dataset, time: Hashable, step: int, *names: str) -> Any:
    """What a coordinate or an attribute of one of these names says of a step."""
    for key in names:
        if key in data.coords:
            coordinate = data[key]
            return coordinate.values[step] if coordinate.dims == (time,) else coordinate.values.item()
        if key in data.attrs:
            return data.attrs[key]
    return None


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
