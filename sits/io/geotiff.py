"""Series from raster files: one file of many bands a date, or one file a band."""

import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from geomix.errors import InputError
from sits.bands import BandLabel, call_bands, name_bands, strangers
from sits.dates import read_date_table
from sits.io.assemble import Group, Part, assemble, with_masks
from sits.io.check import checked
from sits.io.find import rasters_in
from sits.io.header import RasterInfo, date_of, read_header
from sits.io.masks import rule_for
from sits.io.options import ReadOptions
from sits.io.target import with_crs
from sits.series import TimeSeries

log = logging.getLogger(__name__)

_RESOLUTION = re.compile(r"[_.-]\d{2}m$", re.IGNORECASE)
_MASK = re.compile(r"^(?P<first>[A-Z0-9]+)[._-]|[._-](?P<last>[A-Z0-9]+(?:_PIXEL)?)$", re.IGNORECASE)
_FOLDER = re.compile(r"R\d{2}m", re.IGNORECASE)
_BAND = re.compile(
    r"(?:^|(?:_SR)?[_.-])(?:S2-L[12][AC]-)?B(?:AND)?[_-]?0?(?:1[0-2]|8A|[1-9])$", re.IGNORECASE
)


def read(paths: Sequence[Path], options: ReadOptions) -> TimeSeries:
    """Open dated raster files, or the folders that hold them, as one series.

    Args:
        paths: files and folders; files of one date and name may hold one band each. In a folder, a file
            whose bands have no names is passed over.
        options: what the user says about them.

    Raises:
        MissingFileError: if a folder holds no raster.
        InputError: if a file has no date, bands cannot be named or are missing, or grids differ.
        FormatError: if a file is damaged.
    """
    files, chosen = rasters_in(paths)
    files, masks = _without_masks(files, options)
    name = str(paths[0]) if len(paths) == 1 else f"{files[0].parent} ({len(files)} files)"
    parts = _named(files, options, chosen)
    if not parts:
        raise InputError(f"{name}: no file has a band with a name that is known; say what they are: --bands")
    together: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        together[_key(part)].append(part)
    groups = with_masks(_dated(together, options), masks)
    return checked(assemble(groups, options, name), options)


def _key(part: Part) -> str:
    """What the files of one acquisition have in common: the name without band and resolution."""
    path = part.info.path
    if len(part.names) > 1:
        return str(path)
    return str(_folder(path) / _BAND.sub("", _RESOLUTION.sub("", path.stem)))


def _without_masks(
    files: Sequence[Path], options: ReadOptions
) -> tuple[list[Path], dict[str, list[RasterInfo]]]:
    """The files that are no masks, and the headers of those that are, by the name that their images have."""
    images, masks = [], defaultdict(list)
    for file in files:
        stem = _RESOLUTION.sub("", file.stem)
        layers = [one for one in _MASK.finditer(stem) if rule_for(one["first"] or one["last"], options.mask)]
        if not layers:
            images.append(file)
            continue
        header, layer = read_header(file), layers[-1]
        name = stem[: layer.start()] + stem[layer.end() :]
        label = BandLabel(layer["first"] or layer["last"])
        masks[str(_folder(file) / name)].append(replace(header, labels=(label,) * len(header.labels)))
    return images, masks


def _folder(path: Path) -> Path:
    """The folder of a scene: R10m, R20m and R60m of a product hold the bands of one."""
    return path.parent.parent if _FOLDER.fullmatch(path.parent.name) else path.parent


def _named(files: Sequence[Path], options: ReadOptions, chosen: set[Path]) -> list[Part]:
    parts = []
    passed: list[Path] = []
    unknown: dict[str, None] = {}
    for file in files:
        info = read_header(file)
        info = replace(info, grid=with_crs(info.grid, options.crs, str(file)))
        named = options.band_names is not None or any(call_bands(info.labels, options.known))
        if not named and (file not in chosen or (len(info.labels) == 1 and len(files) > 1)):
            passed.append(file)
        else:
            names = name_bands(info.labels, options.band_names, str(file), options.known)
            parts.append(Part(info, names))
            unknown |= dict.fromkeys(strangers(info.labels, names))
    if unknown:
        log.warning(
            "%s: bands with a name that is not known are left out: %s (say what they are with --bands)",
            parts[0].info.path,
            ", ".join(unknown),
        )
    if passed:
        more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
        first = ", ".join(map(str, passed[:3]))
        log.warning("%s%s: holds no band with a name that is known and is passed over", first, more)
    return parts


def _dated(together: dict[str, list[Part]], options: ReadOptions) -> list[Group]:
    table = read_date_table(options.dates) if options.dates else None
    in_folder: dict[Path, int] = defaultdict(int)
    for parts in together.values():
        in_folder[parts[0].info.path.parent] += 1
    groups = []
    for key, parts in together.items():
        info = parts[0].info
        moment = date_of(info, table, alone=in_folder[info.path.parent] == 1)
        if moment is None:
            raise InputError(
                f"{info.path}: has no acquisition date; put it into the name (..._20210614.tif), or give a "
                "table: --dates dates.csv with the columns file,date"
            )
        name = str(info.path) if len(parts) == 1 else key
        groups.append(Group(name, moment, tuple(parts), info.evidence))
    return groups
