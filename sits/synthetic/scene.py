"""One scene: parcels with crops, looked at on many days."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from sits.synthetic.fields import cut_parcels, make_blocks
from sits.synthetic.phenology import CLASSES, SHARES, VOID, spectra_of_parcel
from sits.synthetic.weather import add_clouds, cloud_cover, make_dates

NODATA = -10000
"""Value outside the swath, as MAJA writes it."""

SEASON_START = date(2018, 9, 1)


@dataclass(frozen=True)
class Scene:
    """An image time series and what grows on it."""

    values: NDArray[np.int16]
    """Reflectance times 10000, `NODATA` outside the swath, [T, bands, H, W]."""
    dates: tuple[date, ...]
    labels: NDArray[np.uint8]
    """Code of the class, 19 is void, [H, W]."""
    parcels: NDArray[np.int32]
    """Parcel of each pixel, 0 is none, [H, W]."""


def make_scene(
    shape_yx: tuple[int, int],
    seed: int,
    dates: tuple[date, ...] | int = 30,
    clouds: bool = True,
) -> Scene:
    """Make a scene; the same arguments give the same scene.

    Args:
        shape_yx: rows and columns, pixels of 10 m.
        seed: seed of the source of chance.
        dates: acquisition dates in time order, or how many to choose between September and November of the
            next year.
        clouds: clouds, their shadows and swath edges; without them every pixel of every date is clear.
    """
    rng = np.random.default_rng(seed)
    if isinstance(dates, int):
        dates = make_dates(dates, rng)
    days = np.array([(day - SEASON_START).days for day in dates], dtype=np.float32)
    parcels = cut_parcels(make_blocks(shape_yx, rng), rng)
    crops = _choose_crops(int(parcels.max()) + 1, rng)
    shift = days - rng.normal(0, 3)
    spectra = np.stack([spectra_of_parcel(code, shift, rng) for code in crops])
    values = np.empty((len(dates), spectra.shape[-1], *shape_yx), dtype=np.int16)
    gain = 1 + 0.03 * rng.standard_normal(shape_yx).astype(np.float32)
    for index in range(len(dates)):
        image = _blur(np.moveaxis(spectra[:, index][parcels] * gain[..., None], -1, 0))
        image += rng.normal(0, 25, image.shape)
        if clouds:
            add_clouds(image, cloud_cover(shape_yx, rng), rng)
        values[index] = np.clip(image, 1, 16000).astype(np.int16)
        if clouds and rng.random() < 0.08:
            _cut_swath(values[index], rng)
    return Scene(values, dates, _label(parcels, crops), parcels)


def _choose_crops(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose the class of each parcel; parcel 0, the tracks, and a sixth of the others carry none."""
    crops = rng.choice(len(CLASSES), count, p=SHARES)
    crops[rng.random(count) < 0.17] = 0
    crops[0] = 0
    return crops


def _label(parcels: NDArray[np.int32], crops: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Codes of the classes; slivers at the scene's edge are void: most of the parcel lies outside."""
    labels = crops[parcels].astype(np.uint8)
    edge = np.unique(np.concatenate([parcels[0], parcels[-1], parcels[:, 0], parcels[:, -1]]))
    sizes = np.bincount(parcels.ravel())
    for parcel in edge:
        if crops[parcel] > 0 and sizes[parcel] < 30:
            labels[parcels == parcel] = VOID
    return labels


def _blur(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mix each pixel with its neighbours, as the optics do: weights 1 2 1 along rows and columns."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = 0.25 * padded[:, :-2] + 0.5 * padded[:, 1:-1] + 0.25 * padded[:, 2:]
    mixed: NDArray[np.float32] = 0.25 * rows[:, :, :-2] + 0.5 * rows[:, :, 1:-1] + 0.25 * rows[:, :, 2:]
    return mixed


def _cut_swath(image: NDArray[np.int16], rng: np.random.Generator) -> None:
    """Set one side of the image to nodata along a slanted line, in place."""
    rows, columns = image.shape[1:]
    line = rng.uniform(0.2, 0.8) * columns + rng.uniform(-0.4, 0.4) * np.arange(rows)
    outside = np.arange(columns)[None] < line[:, None]
    image[:, outside if rng.random() < 0.5 else ~outside] = NODATA
