"""Synthetic scenes on disk: a PASTIS folder, and dated GeoTIFFs with a label raster."""

import json
from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from pyproj import Transformer
from rasterio.errors import RasterioError

from geomix.errors import OutputExistsError
from geomix.files import make_folder, new_file
from sits.synthetic.phenology import BANDS
from sits.synthetic.scene import NODATA, Scene, make_scene
from sits.synthetic.weather import make_dates

UTM = "EPSG:32630"
ORIGIN_XY = (399960.0, 5400000.0)
"""Upper left corner of the first patch, metres in UTM zone 30N."""

MADE_UP = "made-up farmland (geomix)"
"""The description in every image that is written here, by which it is known again."""


def write_pastis(
    folder: str | Path, patches: int = 20, size: int = 128, dates: int = 30, seed: int = 0, tiles: int = 2
) -> Path:
    """Write a folder in the on-disk format of PASTIS.

    Args:
        folder: new folder.
        patches: number of patches; they take turns in the five folds.
        size: rows and columns of a patch, pixels of 10 m (128 in PASTIS).
        dates: acquisitions of the first tile; every further tile has two fewer.
        seed: seed of the source of chance.
        tiles: number of Sentinel-2 tiles; patches of a tile share their dates.

    Returns:
        The folder.

    Raises:
        OutputExistsError: if the folder exists and is not empty.

    Source: https://github.com/VSainteuf/pastis-benchmark (the format).
    """
    root = Path(folder)
    if root.exists() and any(root.iterdir()):
        raise OutputExistsError(f"{root}: the folder is not empty; choose another one")
    for name in ("DATA_S2", "ANNOTATIONS"):
        make_folder(root / name)
    rng = np.random.default_rng(seed)
    days = [make_dates(dates - 2 * tile, rng) for tile in range(tiles)]
    features = []
    values: dict[int, list[NDArray[np.float64]]] = {fold: [] for fold in range(1, 6)}
    for index in range(patches):
        patch, fold, tile = 10000 + index, index % 5 + 1, index % tiles
        scene = make_scene((size, size), seed * 100_003 + index, days[tile])
        np.save(root / "DATA_S2" / f"S2_{patch}.npy", scene.values)
        target = np.stack([scene.labels, np.zeros_like(scene.labels), np.zeros_like(scene.labels)])
        np.save(root / "ANNOTATIONS" / f"TARGET_{patch}.npy", target)
        np.save(root / "ANNOTATIONS" / f"ParcelIDs_{patch}.npy", scene.parcels)
        features.append(_feature(scene, patch, fold, f"t30uw{'vu'[tile % 2]}", index, size))
        values[fold].append(_moments(scene.values))
    collection = {
        "type": "FeatureCollection",
        "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::2154"}},
        "features": features,
    }
    (root / "metadata.geojson").write_text(json.dumps(collection))
    norms = {f"Fold_{fold}": _norm(parts) for fold, parts in values.items() if parts}
    (root / "NORM_S2_patch.json").write_text(json.dumps(norms))
    return root


def write_geotiffs(scene: Scene, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write one GeoTIFF a date, uint16 with nodata 0, and the labels as `labels.tif`.

    Args:
        scene: what to write.
        folder: where to.
        overwrite: replace what was written there before, also images of dates that this scene has not.

    Returns:
        The files of the dates in time order, without the labels.
    """
    root = Path(folder)
    make_folder(root)
    if overwrite:
        _remove_earlier(root)
    transform = Affine(10.0, 0.0, ORIGIN_XY[0], 0.0, -10.0, ORIGIN_XY[1])
    files = []
    for day, image in zip(scene.dates, scene.values, strict=True):
        file = root / f"S2_L2A_{day:%Y%m%d}.tif"
        counts = np.where(image == NODATA, 0, image).astype(np.uint16)
        _write(file, counts, transform, nodata=0, names=BANDS, overwrite=overwrite)
        files.append(file)
    _write(
        root / "labels.tif", scene.labels[None], transform, nodata=19, names=("class",), overwrite=overwrite
    )
    return files


def _remove_earlier(folder: Path) -> None:
    """Remove the images of another scene: beside those of this one they would be read as one series."""
    for file in (*folder.glob("S2_L2A_*.tif"), *folder.glob("labels.tif")):
        try:
            with rasterio.open(file) as source:
                own = source.tags().get("TIFFTAG_IMAGEDESCRIPTION") == MADE_UP
        except RasterioError:
            continue
        if own:
            file.unlink()
            # What a GIS has noted about it would be wrong of the next one.
            file.with_name(f"{file.name}.aux.xml").unlink(missing_ok=True)


def _write(
    file: Path,
    image: NDArray[np.uint16] | NDArray[np.uint8],
    transform: Affine,
    nodata: int,
    names: tuple[str, ...],
    overwrite: bool,
) -> None:
    bands, rows, columns = image.shape
    with (
        new_file(file, overwrite) as path,
        rasterio.open(
            path,
            "w",
            driver="GTiff",
            count=bands,
            height=rows,
            width=columns,
            dtype=image.dtype,
            crs=UTM,
            transform=transform,
            nodata=nodata,
            compress="deflate",
            predictor=2,
        ) as target,
    ):
        target.write(image)
        target.update_tags(TIFFTAG_IMAGEDESCRIPTION=MADE_UP)
        for band, name in enumerate(names, start=1):
            target.set_band_description(band, name)


def _feature(scene: Scene, patch: int, fold: int, tile: str, place: int, size: int) -> dict[str, object]:
    """One row of metadata.geojson: the footprint is a square in UTM, written in EPSG:2154."""
    side = 10.0 * size
    west = ORIGIN_XY[0] + side * (place % 8)
    north = ORIGIN_XY[1] - side * (place // 8)
    corners = [(west, north), (west + side, north), (west + side, north - side), (west, north - side)]
    to_lambert = Transformer.from_crs(UTM, "EPSG:2154", always_xy=True)
    ring = [list(to_lambert.transform(*corner)) for corner in [*corners, corners[0]]]
    return {
        "id": str(patch),
        "type": "Feature",
        "properties": {
            "id": str(patch),
            "Fold": fold,
            "ID_PATCH": patch,
            "N_Parcel": int(scene.parcels.max()),
            "Parcel_Cover": float((scene.parcels > 0).mean()),
            "TILE": tile,
            "dates-S2": {str(index): int(f"{day:%Y%m%d}") for index, day in enumerate(scene.dates)},
        },
        "geometry": {"type": "MultiPolygon", "coordinates": [[ring]]},
    }


def _moments(values: NDArray[np.int16]) -> NDArray[np.float64]:
    """Number, sum and sum of squares of each band, without nodata, [3, bands]."""
    bands = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1).astype(np.float64)
    seen = bands != NODATA
    bands = np.where(seen, bands, 0)
    return np.stack([seen.sum(1), bands.sum(1), (bands**2).sum(1)])


def _norm(parts: list[NDArray[np.float64]]) -> dict[str, list[float]]:
    count, total, squares = np.sum(parts, axis=0)
    mean = total / count
    return {"mean": mean.tolist(), "std": np.sqrt(squares / count - mean**2).tolist()}
