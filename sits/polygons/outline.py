"""A class map as polygons, strip by strip, so that a map of any size takes little memory."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import rasterio
import shapely
from numpy.typing import NDArray
from rasterio.features import shapes, sieve
from rasterio.windows import Window as RasterWindow
from shapely.affinity import affine_transform
from shapely.geometry import shape

from geomix.errors import InputError
from geomix.files import new_file
from geomix.progress import progress
from sits.io.legend import read_legend
from sits.io.raster import open_raster

log = logging.getLogger(__name__)

_ROWS = 1024
Pieces = list[tuple[int, Any]]


def polygonize_file(
    map_file: Path, output: Path, smallest: int = 0, overwrite: bool = False, rows: int = _ROWS
) -> Path:
    """Write the connected areas of each class as polygons to a GeoPackage.

    Args:
        map_file: a class map.
        output: the GeoPackage; its layer is named after it. Columns are `class_id`, `class_name`, and
            `area_ha` where the map is in metres or feet.
        smallest: areas of fewer pixels first fall to their largest neighbour; this reads the whole map.
        overwrite: whether an existing file may be replaced.
        rows: rows of the map that are worked on at a time.

    Raises:
        InputError: if the output is no .gpkg, or the map has no coordinate system.
        OutputExistsError: if the file exists and may not be replaced.
    """
    if output.suffix.lower() != ".gpkg":
        raise InputError(f"{output}: polygons are written to a GeoPackage; name it .gpkg")
    names = {entry.id: entry.name for entry in read_legend(map_file).classes}
    with open_raster(str(map_file)) as dataset, new_file(output, overwrite) as temporary:
        if dataset.crs is None:
            raise InputError(f"{map_file}: has no coordinate system")
        a, b, c, d, e, f = tuple(dataset.transform)[:6]
        factor = dataset.crs.linear_units_factor[1] if dataset.crs.is_projected else None
        count = 0
        for pieces in _closed(_strips(dataset, smallest, rows), -(-dataset.height // rows)):
            polygons = [affine_transform(piece, [a, b, d, e, c, f]) for _, piece in pieces]
            codes = [code for code, _ in pieces]
            table = {"class_id": codes, "class_name": [names.get(code, str(code)) for code in codes]}
            frame = gpd.GeoDataFrame(table, geometry=polygons, crs=dataset.crs.to_wkt())
            if factor is not None:
                frame["area_ha"] = frame.geometry.area * factor**2 / 1e4
            frame.to_file(
                temporary, layer=output.stem, engine="pyogrio", mode="a" if count else "w", index=False
            )
            count += len(pieces)
        if count == 0:
            raise InputError(f"{map_file}: shows no class at all, so there is nothing to outline")
    log.info("%s: %d polygons", output, count)
    return output


def _strips(dataset: Any, smallest: int, rows: int) -> Iterator[tuple[int, NDArray[np.uint8], int]]:
    """First row, codes and nodata of each strip of the map."""
    nodata = 255 if dataset.nodata is None else int(dataset.nodata)
    whole = None
    if smallest > 1:
        codes = dataset.read(1)
        whole = sieve(codes, smallest, mask=codes != nodata)
    for top in range(0, dataset.height, rows):
        height = min(rows, dataset.height - top)
        if whole is not None:
            yield top, whole[top : top + height], nodata
        else:
            yield top, dataset.read(1, window=RasterWindow(0, top, dataset.width, height)), nodata


def _closed(strips: Iterator[tuple[int, NDArray[np.uint8], int]], total: int) -> Iterator[Pieces]:
    """The polygons, in pixels, that nothing in later strips can grow; those of each strip together."""
    open_pieces: Pieces = []
    for top, codes, nodata in progress(strips, "Strips", total):
        bottom = top + len(codes)
        moved = rasterio.Affine(1, 0, 0, 0, 1, top)
        found = [
            (int(code), shape(geometry))
            for geometry, code in shapes(codes, mask=codes != nodata, transform=moved)
        ]
        at_top = [piece for piece in found if piece[1].bounds[1] == top]
        rest = [piece for piece in found if piece[1].bounds[1] != top]
        pieces = rest + _joined(open_pieces, at_top)
        open_pieces = [piece for piece in pieces if piece[1].bounds[3] == bottom]
        done = [piece for piece in pieces if piece[1].bounds[3] != bottom]
        if done:
            yield done
    if open_pieces:
        yield open_pieces


def _joined(above: Pieces, below: Pieces) -> Pieces:
    """Unite the pieces of one class that share a border."""
    if not above:
        return below
    joined: Pieces = []
    for code in {code for code, _ in (*above, *below)}:
        union = shapely.union_all([piece for other, piece in (*above, *below) if other == code])
        # Corners that the cut between strips has left lie on straight lines.
        joined += [(code, shapely.simplify(part, 0)) for part in shapely.get_parts(union)]
    return joined
