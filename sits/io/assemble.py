"""From files whose bands and date are known to a series: one scale, one grid, scenes in order."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import rasterio
from rasterio.errors import RasterioError
from rasterio.windows import Window as RasterWindow

from geomix.errors import InputError
from sits.bands import BANDS
from sits.dates import date_in_name, format_dates
from sits.grid import Grid
from sits.io.header import RasterInfo
from sits.io.masks import MaskFile, looks_like_mask, mask_file, parse_rule, rule_for
from sits.io.options import ReadOptions
from sits.io.raster import RasterBand, RasterFile, Warp, unreadable
from sits.io.scenes import Scene, SceneSource, group_days, joined, one_grid
from sits.io.target import common_grid
from sits.radiometry import Evidence, Radiometry, decide_offset, guess_scale, undeclared_numbers
from sits.series import Acquisition, TimeSeries

log = logging.getLogger(__name__)

_COARSE = 1024
"""Most rows and columns that are looked at for undeclared fill."""
_FILLED = 0.01
"""Share of pixels that are 0 in all bands from which on 0 stands for nothing also in numbers with a sign."""


@dataclass(frozen=True)
class Part:
    """A file with its bands named; None stands for a band that is not of Sentinel-2."""

    info: RasterInfo
    names: tuple[str | None, ...]


@dataclass(frozen=True)
class Group:
    """The files of one acquisition."""

    name: str
    moment: datetime
    parts: tuple[Part, ...]
    evidence: Evidence
    masks: tuple[RasterInfo, ...] = ()
    """Files that hold masks beside its images."""


def assemble(groups: Sequence[Group], options: ReadOptions, name: str) -> TimeSeries:
    """Make a series of acquisitions.

    Raises:
        InputError: if bands are missing or grids differ.
        FormatError: if a file is damaged.
    """
    groups = [replace(group, parts=_finest(group.parts)) for group in groups]
    infos = [part.info for group in groups for part in group.parts]
    warp = _target(infos, options)
    scale = _scale(infos, options, name)
    scenes = [_scene(group, options, warp, scale) for group in sorted(groups, key=lambda group: group.name)]
    grid = warp.grid if warp else one_grid(scenes, name)
    notes = {"scale": _scale_note(scale, infos, options)}
    level = _level(infos)
    rules = dict.fromkeys(str(mask.rule) for scene in scenes for mask in scene.masks)
    _tell_of_masks(groups, rules, options, name)
    notes |= ({"level": level} if level else {}) | ({"mask": "; ".join(rules)} if rules else {})
    return _series_of(scenes, grid, name, notes, options.dilate)


def with_masks(groups: Sequence[Group], masks: Mapping[str, Sequence[RasterInfo]]) -> list[Group]:
    """Give each mask file to the acquisition of its name, or else to those of its date.

    Args:
        groups: the acquisitions.
        masks: headers of mask files by the name of their images, with the folder and without a suffix.
    """
    found, used = [], set()
    for group in groups:
        names = {group.name, str(group.parts[0].info.path.with_suffix("")), _stem(group)}
        own = [info for name in sorted(names) for info in masks.get(name, ())]
        used |= {info.path for info in own}
        found.append((group, own))
    left = [info for infos in masks.values() for info in infos if info.path not in used]
    for info in left:
        moment = date_in_name(info.path)
        same = [own for group, own in found if moment and group.moment.date() == moment.date()]
        for own in same:
            own.append(info)
        if not same:
            log.warning("%s: a mask without images of its name or date is passed over", info.path)
    return [replace(group, masks=tuple(own)) for group, own in found]


def _stem(group: Group) -> str:
    """The name of a group's images where it has a single one, of one band."""
    path = Path(group.name)
    return str(path.with_suffix("")) if path.suffix else group.name


def _tell_of_masks(groups: Sequence[Group], rules: Collection[str], options: ReadOptions, name: str) -> None:
    """Say which masks are used, and which layers look like masks and are not understood."""
    if rules:
        log.info("%s: masked are %s (say otherwise with --mask)", name, "; ".join(rules))
    labels = {label.text for group in groups for part in group.parts for label in part.info.labels}
    unknown = sorted(text for text in labels if looks_like_mask(text))
    if options.mask == "auto" and unknown and not rules:
        log.warning(
            "%s: layer %s looks like a mask and is not understood; say which of its values hide the ground, "
            "such as --mask %s=1",
            name,
            ", ".join(unknown),
            unknown[0],
        )
    elif parse_rule(options.mask) is not None and not rules:
        raise InputError(f"{name}: has no layer {options.mask.partition('=')[0]} for --mask {options.mask}")


def _series_of(
    scenes: Sequence[Scene], grid: Grid, name: str, notes: Mapping[str, str], dilate: int
) -> TimeSeries:
    """Join scenes to a series; those of one day become one acquisition."""
    found = group_days([scene.moment for scene in scenes], [scene.name for scene in scenes], grid)
    grouped = [(day, tuple(scenes[place] for place in places)) for day, places in found]
    bands = _shared_bands(scenes, name)
    for day, group in grouped:
        if len(group) > 1:
            log.info("%s: %d scenes of %s are fused, first valid pixel first", name, len(group), day)
    acquisitions = tuple(
        Acquisition(
            date=day,
            names=tuple(scene.name for scene in group),
            offset=joined([scene.offset for scene in group]),
        )
        for day, group in grouped
    )
    for offset in dict.fromkeys(one.offset for one in acquisitions):
        days = [one.date for one in acquisitions if one.offset == offset]
        log.info("%s: offset %s: %s", name, offset, format_dates(days))
    source = SceneSource(tuple(group for _, group in grouped), grid, name, dilate)
    return TimeSeries(grid, acquisitions, bands, source, name, notes)


def _shared_bands(scenes: Sequence[Scene], name: str) -> tuple[str, ...]:
    """The bands that every scene has, by wavelength; those that some lack are named in a warning.

    Raises:
        InputError: if no band is in all scenes.
    """
    everywhere = set.intersection(*(set(scene.bands) for scene in scenes))
    anywhere = set.union(*(set(scene.bands) for scene in scenes))
    for band in sorted(anywhere - everywhere):
        without = [scene.name for scene in scenes if band not in scene.bands]
        log.warning("%s: band %s is missing in %s (and so is left out)", name, band, ", ".join(without[:3]))
    if not everywhere:
        raise InputError(f"{name}: no band is in all of its {len(scenes)} scenes")
    return tuple(sorted(everywhere, key=lambda band: (BANDS.index(band) if band in BANDS else 99, band)))


def _finest(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Of a band that comes in several resolutions, as in a product's folders, keep the finest."""
    best: dict[str, tuple[float, Part]] = {}
    for part in parts:
        size = abs(part.info.grid.transform.a) + abs(part.info.grid.transform.b)
        for name in part.names:
            if name is not None and (name not in best or size < best[name][0]):
                best[name] = (size, part)
    kept = {id(part) for _, part in best.values()}
    return tuple(part for part in parts if id(part) in kept)


def _target(infos: Sequence[RasterInfo], options: ReadOptions) -> Warp | None:
    if options.resample is None and options.like is None:
        return None
    grid = common_grid([info.grid for info in infos], options.like)
    return Warp(grid, options.resample or "bilinear")


def _scale(infos: Sequence[RasterInfo], options: ReadOptions, name: str) -> float | None:
    """The scale for bands that state none; None where every band states its own."""
    if options.scale is not None:
        return options.scale
    silent = [info for info in infos if None in info.scales]
    if not silent:
        return None
    info = silent[0]
    return guess_scale(info.dtypes[0], _high(info), name)


def _high(info: RasterInfo) -> float:
    """The 99th percentile of a sample of a raster's first band."""
    height, width = min(info.grid.height, 256), min(info.grid.width, 256)
    middle = RasterWindow((info.grid.width - width) // 2, (info.grid.height - height) // 2, width, height)
    try:
        with rasterio.open(info.path) as dataset:
            numbers = dataset.read(1, window=middle)
    except (RasterioError, OSError) as error:
        raise unreadable(str(info.path), error) from error
    known = numbers[Radiometry(1.0, nodata=info.nodata[0]).valid(numbers)]
    return float(np.percentile(known.astype(np.float64), 99)) if known.size else 0.0


def _scene(group: Group, options: ReadOptions, warp: Warp | None, scale: float | None) -> Scene:
    first = group.parts[0].info
    own_scale = options.scale or first.scales[0] or scale or 1.0
    offset, reason = decide_offset(group.evidence, options.offset_choice, own_scale)
    files = []
    taken: set[str] = set()
    for part in group.parts:
        needed = warp is not None and warp.grid.difference(part.info.grid) is not None
        declared = part.info.nodata
        if needed and options.nodata is None:
            declared = _with_fill(part.info)
        difference = None if warp else first.grid.difference(part.info.grid)
        if difference:
            raise InputError(
                f"{part.info.path}: lies on another grid than {first.path}: {difference}; "
                "bring all to one grid with --resample bilinear"
            )
        bands = {}
        for index, band in enumerate(part.names):
            if band is None or band in taken:
                continue
            taken.add(band)
            own = part.info.scales[index] if options.scale is None else None
            nodata = declared[index] if options.nodata is None else options.nodata
            step = own if own is not None else scale if scale is not None else 1.0
            bands[band] = RasterBand(index + 1, Radiometry(step, offset, nodata))
        if bands:
            files.append(RasterFile(str(part.info.path), bands, warp if needed else None))
    masks = _masks(group, warp.grid if warp else first.grid, options)
    return Scene(group.moment, group.name, tuple(files), first.grid, reason, masks)


def _masks(group: Group, target: Grid, options: ReadOptions) -> tuple[MaskFile, ...]:
    """The mask layers inside the images and beside them."""
    infos = [*(part.info for part in group.parts), *group.masks]
    return tuple(
        mask_file(info.path, index, info.grid, target, rule)
        for info in infos
        for index, label in enumerate(info.labels, 1)
        if (rule := rule_for(label.text, options.mask)) is not None
    )


def _with_fill(info: RasterInfo) -> tuple[float | None, ...]:
    """The nodata of each band, found where none is declared, so that resampling blends it with no data.

    Fill is looked for in a coarse reading: 0 of unsigned numbers, or what writers use without saying so.
    """
    if None not in info.nodata:
        return info.nodata
    try:
        with rasterio.open(info.path) as dataset:
            shape = min(info.grid.height, _COARSE), min(info.grid.width, _COARSE)
            numbers = dataset.read(out_shape=(len(info.labels), *shape))
    except (RasterioError, OSError) as error:
        raise unreadable(str(info.path), error) from error
    zero = (numbers == 0).all(axis=0).mean()
    kind = numbers.dtype
    usual = {value: (numbers == np.array(value, kind)).mean() for value in undeclared_numbers(kind)}
    if np.issubdtype(kind, np.unsignedinteger) or zero > _FILLED:
        usual[0.0] = zero
    fill = max(usual, key=lambda value: usual[value], default=None)
    if fill is None or not usual[fill]:
        return info.nodata
    log.warning(
        "%s: no nodata value is declared; %g is taken for missing before it is resampled (say otherwise "
        "with --nodata)",
        info.path,
        fill,
    )
    return tuple(fill if value is None else value for value in info.nodata)


def _scale_note(scale: float | None, infos: Sequence[RasterInfo], options: ReadOptions) -> str:
    if options.scale is not None:
        return f"{options.scale:g} (as asked)"
    stated = sorted({value for info in infos for value in info.scales if value is not None})
    words = [f"{value:g} (stated)" for value in stated]
    return ", ".join([*words, f"{scale:g} (guessed)"] if scale is not None else words)


def _level(infos: Sequence[RasterInfo]) -> str | None:
    levels = {info.level for info in infos if info.level}
    if len(levels) > 1:
        log.warning("levels are mixed: %s", ", ".join(sorted(levels)))
    return levels.pop() if len(levels) == 1 else None
