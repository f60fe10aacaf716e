"""Small series, scenes and models for the tests of this domain."""

from datetime import date
from pathlib import Path

import numpy as np
import rasterio
import torch
import xarray as xr
from rasterio.crs import CRS
from rasterio.transform import Affine

from geomix.checkpoint import Card, ClassInfo, save_model
from sits.grid import Grid
from sits.model import build_model
from sits.series import TimeSeries

BANDS = ("B2", "B3", "B4", "B8")
DATES = (date(2019, 3, 10), date(2019, 5, 2), date(2019, 6, 21))
# Not square, not on round metres, as real cut-outs are.
TRANSFORM = Affine(9.994792, 0.0, 465181.052231, 0.0, -9.997448, 5080254.633496)
CLASSES = tuple(
    ClassInfo(id=code, name=name, color=color)
    for code, name, color in (
        (0, "Meadow", "#aec7e8"),
        (1, "Corn", "#ffbb78"),
        (8, "Fruits, vegetables", "#e377c2"),
    )
)
ROOMS = {
    "bands": len(BANDS),
    "classes": len(CLASSES),
    "dim": 16,
    "temporal": {"depth": 1, "mlp_ratio": 2},
    "spatial": {"depth": 2, "mlp_ratio": 2},
    "window": 3,
}


def numbers(dates=3, bands=4, shape=(30, 26), seed=0):
    """Digital numbers of a made-up series, uint16 [T, C, H, W], never 0."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(200, 6000, (dates, bands, -(-shape[0] // 5), -(-shape[1] // 5)))
    image = np.kron(coarse, np.ones((5, 5), dtype=np.int64))[..., : shape[0], : shape[1]]
    return (image + rng.integers(0, 50, image.shape)).astype(np.uint16)


def grid(shape=(30, 26), crs="EPSG:32633", transform=TRANSFORM):
    return Grid(CRS.from_string(crs) if crs else None, transform, *shape)


def write_tif(path, image, place=None, *, names=BANDS, nodata=0, tags=None, scales=None, offsets=None):
    """Write [C, H, W] as a GeoTIFF with band names and tags."""
    place = place or grid(image.shape[1:])
    profile = {"driver": "GTiff", "count": len(image), "dtype": image.dtype, "nodata": nodata}
    size = {"height": place.height, "width": place.width, "crs": place.crs, "transform": place.transform}
    with rasterio.open(path, "w", **profile, **size) as dataset:
        dataset.write(image)
        for index, name in enumerate(names or (), 1):
            dataset.set_band_description(index, name)
        dataset.update_tags(**(tags or {}))
        if scales is not None:
            dataset.scales = scales
        if offsets is not None:
            dataset.offsets = offsets
    return Path(path)


def write_folder(folder, values=None, dates=DATES, **how):
    """A dated GeoTIFF for each step of [T, C, H, W]; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    values = numbers() if values is None else values
    return [
        write_tif(folder / f"S2_{day:%Y%m%d}.tif", image, **how)
        for day, image in zip(dates, values, strict=True)
    ]


def dataset(values=None, dates=DATES, place=None, names=BANDS, attrs=None):
    """The same series as an xarray Dataset with a band dimension."""
    values = numbers() if values is None else values
    place = place or grid(values.shape[2:])
    a, _, c, _, e, f = tuple(place.transform)[:6]
    return xr.Dataset(
        {
            "reflectance": (
                ("time", "band", "y", "x"),
                values,
                {"grid_mapping": "spatial_ref", "_FillValue": 0} if attrs is None else attrs,
            ),
            "spatial_ref": ((), 0, {"crs_wkt": place.crs.to_wkt()}),
        },
        coords={
            "time": np.array([np.datetime64(day, "ns") for day in dates]),
            "band": list(names),
            "y": f + (np.arange(place.height) + 0.5) * e,
            "x": c + (np.arange(place.width) + 0.5) * a,
        },
    )


def series(values=None, dates=DATES, bands=BANDS, valid=None):
    """The same series in memory."""
    values = numbers() if values is None else values
    return TimeSeries.from_arrays(values * np.float32(1e-4), dates, bands, grid(values.shape[2:]), valid)


def card(name="fake", rooms=None, **inputs):
    return Card(
        domain="sits",
        name=name,
        model=ROOMS if rooms is None else rooms,
        classes=CLASSES,
        inputs={"bands": BANDS, "mean": (0.3,) * 4, "std": (0.2,) * 4, "patch": 2, **inputs},
    )


def model(rooms=None, seed=0, **inputs):
    """A model with weights by chance, and its card."""
    torch.manual_seed(seed)
    rooms = {**ROOMS, **(rooms or {})}
    built = build_model(rooms).eval()
    object.__setattr__(built, "card", card(rooms=rooms, **inputs))
    return built


def model_file(folder, rooms=None, **inputs):
    """The same model in a file."""
    built = model(rooms, **inputs)
    path = Path(folder) / "fake.safetensors"
    save_model(built, built.card, path)
    return path
