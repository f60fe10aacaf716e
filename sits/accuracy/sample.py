"""Random points of a map, to be looked at by people: stratified by class, with a form for QGIS."""

import logging
from collections.abc import Mapping
from pathlib import Path

import geopandas as gpd
import numpy as np
from lxml import etree
from numpy.typing import NDArray

from geomix.errors import InputError
from geomix.files import new_file
from sits.accuracy.areas import areas_of, strips
from sits.grid import place
from sits.io.legend import Legend, read_legend
from sits.io.raster import grid_of, open_raster

log = logging.getLogger(__name__)

_RARE = 0.1
"""A class with a smaller part of the map gets a fixed number of points."""
_FIXED = (100, 75, 50)


def allocate(shares: Mapping[int, float], total: int) -> dict[int, int]:
    """Deal points out over the classes of a map, as Olofsson et al. 2014, section 5.1.1, recommend.

    Rare classes, with at most a tenth of the map, get 100, 75 or 50 points each, the most that leaves three
    quarters of all points to the others, which share them by area and get no fewer than a rare one.

    Args:
        shares: part of the map that each class has.
        total: points in all.

    Returns:
        Points of each class; their sum is `total`.

    Raises:
        InputError: if there are fewer than two points for each class.
    """
    if total < 2 * len(shares):
        raise InputError(
            f"{total} points are too few for {len(shares)} classes; give at least {2 * len(shares)}"
        )
    rare = [code for code, share in shares.items() if share <= _RARE]
    common = [code for code in shares if code not in rare]
    if not common:
        return _by_share(dict.fromkeys(shares, 1.0), total)
    fixed = next((one for one in _FIXED if one * len(rare) <= total / 4), None)
    if fixed is None:
        fixed = max(2, min(_FIXED[-1], total // 2 // max(len(rare), 1)))
    least = fixed if fixed * len(shares) <= total else 2
    rest = _by_share({code: shares[code] for code in common}, total - fixed * len(rare), least)
    return {code: rest.get(code, fixed) for code in shares}


def sample_map(map_file: Path, output: Path, total: int, seed: int = 0, overwrite: bool = False) -> Path:
    """Draw stratified random points of a map and write them as a GeoPackage with a form for QGIS.

    The points stand in a random order and do not say what the map shows, so that whoever looks at them is
    not led. Fill in `reference` (the form offers the classes), then give the file to `evaluate --reference`.

    Args:
        map_file: a class map.
        output: the GeoPackage.
        total: number of points.
        seed: another seed draws other points.
        overwrite: whether an existing file may be replaced.

    Raises:
        InputError: if the output is no .gpkg, or there are too few points.
        OutputExistsError: if the file exists and may not be replaced.
    """
    if output.suffix.lower() != ".gpkg":
        raise InputError(f"{output}: points are written to a GeoPackage; name it .gpkg")
    areas = areas_of(map_file)
    whole = sum(areas.values())
    wanted = allocate({code: area / whole for code, area in areas.items()}, total)
    rows, columns = _drawn(map_file, wanted, np.random.default_rng(seed))
    with open_raster(str(map_file)) as dataset:
        grid = grid_of(dataset)
    spots = [
        place(grid.transform, column + 0.5, row + 0.5) for row, column in zip(rows, columns, strict=True)
    ]
    table = {
        "point": np.arange(1, len(spots) + 1),
        "reference": np.full(len(spots), None, dtype=object),
        "remark": np.full(len(spots), None, dtype=object),
    }
    crs = None if grid.crs is None else grid.crs.to_wkt()
    frame = gpd.GeoDataFrame(table, geometry=gpd.points_from_xy(*zip(*spots, strict=True)), crs=crs)
    # Columns of nothing would be dropped or become numbers.
    frame = frame.astype({"reference": "string", "remark": "string"})
    legend = read_legend(map_file)
    with new_file(output, overwrite) as temporary:
        frame.to_file(temporary, layer=output.stem, engine="pyogrio", index=False)
    with new_file(output.with_suffix(".qml"), overwrite=True) as temporary:
        temporary.write_bytes(_form(legend))
    names = {entry.id: entry.name for entry in legend.classes}
    log.info(
        "%s: %s",
        output,
        ", ".join(f"{names.get(code, code)} {count}" for code, count in sorted(wanted.items())),
    )
    return output


def _by_share(shares: Mapping[int, float], total: int, least: int = 2) -> dict[int, int]:
    """Whole numbers by share, at least `least` each, whose sum is the total."""
    whole = sum(shares.values())
    found = {code: max(least, int(total * share / whole)) for code, share in shares.items()}
    by_size = sorted(shares, key=lambda code: (-shares[code], code))
    for step in range(total - sum(found.values())):
        found[by_size[step % len(by_size)]] += 1
    while sum(found.values()) > total:
        found[max(found, key=lambda code: found[code])] -= 1
    return found


def _drawn(
    map_file: Path, wanted: Mapping[int, int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of random pixels of each class, in a random order."""
    with open_raster(str(map_file)) as dataset:
        width = dataset.width
        counts = np.zeros(256, dtype=np.int64)
        for _, codes in strips(dataset):
            counts += np.bincount(codes.ravel(), minlength=256)
        ranks = {}
        for code, number in wanted.items():
            there = int(counts[code])
            if number > there:
                log.warning("%s: class %d has %d pixels only; all of them are drawn", map_file, code, there)
            ranks[code] = np.sort(rng.choice(there, min(number, there), replace=False))
        before, found = dict.fromkeys(wanted, 0), []
        for top, codes in strips(dataset):
            flat = codes.ravel()
            for code, chosen in ranks.items():
                members = np.flatnonzero(flat == code)
                here = chosen[(chosen >= before[code]) & (chosen < before[code] + len(members))]
                found.append(members[here - before[code]] + top * width)
                before[code] += len(members)
    places = rng.permutation(np.sort(np.concatenate(found)))
    return places // width, places % width


def _form(legend: Legend) -> bytes:
    """A QGIS style whose form offers the classes for `reference`."""
    root = etree.Element("qgis", styleCategories="Forms|Fields")
    fields = etree.SubElement(root, "fieldConfiguration")
    widget = etree.SubElement(
        etree.SubElement(fields, "field", name="reference"), "editWidget", type="ValueMap"
    )
    options = etree.SubElement(etree.SubElement(widget, "config"), "Option", type="Map")
    listed = etree.SubElement(options, "Option", name="map", type="List")
    for entry in legend.by_code:
        one = etree.SubElement(listed, "Option", type="Map")
        etree.SubElement(one, "Option", name=entry.name, type="QString", value=entry.name)
    return etree.tostring(
        root, xml_declaration=True, encoding="UTF-8", doctype="<!DOCTYPE qgis>", pretty_print=True
    )
