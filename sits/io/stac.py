"""Series from STAC: an item collection, or one item, whose assets lie on this machine."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pystac

from geomix.errors import FormatError, InputError, MissingFileError
from sits.bands import BandLabel, identify
from sits.io.assemble import Group, Part, assemble
from sits.io.check import checked
from sits.io.find import read_json
from sits.io.header import RasterInfo, read_header
from sits.io.masks import rule_for
from sits.io.options import ReadOptions
from sits.io.products import sensor_of
from sits.io.target import with_crs
from sits.radiometry import Evidence
from sits.series import TimeSeries

log = logging.getLogger(__name__)

# Pictures for people and layers that are no bands, whatever they are called.
_NO_DATA = {"thumbnail", "overview", "metadata", "visual"}


def read(paths: Sequence[Path], options: ReadOptions) -> TimeSeries:
    """Open a STAC item collection, or one item, whose assets are local files; `paths` names it alone.

    Names, offsets, scales and nodata come from the items, before what the files say.

    Raises:
        FormatError: if the file is no STAC.
        InputError: if assets are remote, or no asset is a band that is known.
        MissingFileError: if an asset is not there.
    """
    path = paths[0]
    groups = [_group(item, path, options) for item in read_items(path)]
    return checked(assemble(groups, options, str(path)), options)


def read_items(path: Path) -> list[pystac.Item]:
    """The items of a collection, or a single one, of any STAC version.

    Raises:
        FormatError: if the file is no STAC item or item collection.
    """
    content = read_json(path)
    features = content.get("features") if content.get("type") == "FeatureCollection" else [content]
    if not features:
        raise InputError(f"{path}: lists no items")
    items = []
    for feature in features:
        try:
            items.append(pystac.Item.from_dict(feature, migrate=True, preserve_dict=False))
        except (
            pystac.STACError,
            pystac.STACTypeError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            raise FormatError(f"{path}: is no STAC item or item collection ({error})") from error
    return items


def evidence_of(item: pystac.Item, fields: Mapping[str, Any], file: Evidence) -> Evidence:
    """What an item and one of its assets say about the offset.

    A band offset is in reflectance and becomes one in digital numbers by the band's own scale. What the item
    leaves open is as the file itself says.
    """
    properties = item.properties
    applied = properties.get("earthsearch:boa_offset_applied")
    baseline = next(
        (
            str(properties[key])
            for key in ("s2:processing_baseline", "processing:version", "sentinel2:processing_baseline")
            if properties.get(key)
        ),
        None,
    )
    offset, scale = fields.get("offset"), fields.get("scale")
    in_numbers = None if offset is None else float(offset) / float(scale or 1.0)
    if baseline is None and in_numbers is None:
        baseline, in_numbers = file.baseline, file.offset
    return Evidence(baseline, None if applied is None else bool(applied), in_numbers, scale)


def _group(item: pystac.Item, path: Path, options: ReadOptions) -> Group:
    parts: list[Part] = []
    masks: list[RasterInfo] = []
    fields: Mapping[str, Any] = {}
    remote = 0
    for key, asset in item.assets.items():
        band = _band_of(key, asset, sensor_of(item.properties))
        is_mask = band is None and rule_for(key, options.mask) is not None
        if band is None and not is_mask:
            continue
        file = _local(asset.href, path)
        if file is None:
            remote += band is not None
            if is_mask:
                log.warning("%s: mask %s of %s is remote and is passed over", path, key, item.id)
            continue
        if not file.is_file():
            raise MissingFileError(f"{path}: asset {key} of {item.id} is not there: {file}")
        if band is None:
            header = read_header(file)
            masks.append(replace(header, labels=(BandLabel(key),) * len(header.labels)))
            continue
        own = _raster_fields(asset)
        fields = fields or own
        parts.append(Part(_informed(read_header(file), own, item, options), (band,)))
    if not parts:
        reason = (
            f"its {remote} bands are remote; download them and point the items at the files"
            if remote
            else ("none of its assets is a band that is known")
        )
        raise InputError(f"{path}: item {item.id} cannot be read: {reason}")
    if item.datetime is None:
        raise InputError(f"{path}: item {item.id} has no datetime")
    moment = item.datetime.replace(tzinfo=None)
    evidence = evidence_of(item, fields, parts[0].info.evidence)
    return Group(item.id, moment, tuple(parts), evidence, tuple(masks))


def _informed(
    info: RasterInfo, fields: Mapping[str, Any], item: pystac.Item, options: ReadOptions
) -> RasterInfo:
    """The file's header with what the item states about its numbers."""
    count = len(info.labels)
    scale = fields.get("scale")
    nodata = fields.get("nodata")
    return replace(
        info,
        grid=with_crs(info.grid, options.crs, str(info.path)),
        scales=info.scales if scale is None else (float(scale),) * count,
        tags={**info.tags, "PRODUCT_URI": str(item.properties.get("s2:product_uri") or item.id)},
        nodata=info.nodata if nodata is None or nodata == "nan" else (float(nodata),) * count,
    )


def _band_of(key: str, asset: pystac.Asset, sensor: str) -> str | None:
    if set(asset.roles or ()) & _NO_DATA or key in _NO_DATA or ("jp2" in key and "-" in key):
        return None
    if asset.media_type is not None and not any(kind in asset.media_type for kind in ("tiff", "jp2", "vrt")):
        return None
    listed = asset.extra_fields.get("eo:bands") or asset.extra_fields.get("bands") or []
    if len(listed) > 1:
        return None  # a picture of several bands
    fields = listed[0] if listed else {}
    wavelength = fields.get("center_wavelength") or fields.get("eo:center_wavelength")
    common = fields.get("common_name") or fields.get("eo:common_name") or ""
    named = identify(BandLabel(fields.get("name") or key, common, wavelength, sensor))
    return named or identify(BandLabel(key, sensor=sensor))


def _raster_fields(asset: pystac.Asset) -> dict[str, Any]:
    """Scale, offset and nodata of an asset, as STAC 1.0 and 1.1 write them."""
    extra = asset.extra_fields
    bands = extra.get("raster:bands") or extra.get("bands") or [{}]
    found: dict[str, Any] = {}
    for key in ("scale", "offset", "nodata"):
        for place, name in (
            (bands[0], key),
            (bands[0], f"raster:{key}"),
            (extra, f"raster:{key}"),
            (extra, key),
        ):
            if place.get(name) is not None:
                found.setdefault(key, place[name])
    return found


def _local(href: str, path: Path) -> Path | None:
    """The file of an asset beside its item; None for an address on the net."""
    parts = urlparse(href)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and len(parts.scheme) > 1:  # one letter is a drive
        return None
    target = Path(href)
    return target if target.is_absolute() else path.parent / target
