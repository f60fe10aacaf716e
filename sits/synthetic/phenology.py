"""How each crop looks on each day: cover of soil, leaves, straw and flowers, and their spectra."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BANDS = ("B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B11", "B12")
"""Sentinel-2 bands in the order of the PASTIS files."""

CLASSES = (
    "Background",
    "Meadow",
    "Soft winter wheat",
    "Corn",
    "Winter barley",
    "Winter rapeseed",
    "Spring barley",
    "Sunflower",
    "Grapevine",
    "Beet",
)
"""The first ten PASTIS classes; the code is the place in this list."""

VOID = 19
"""Label of parcels that lie mostly outside a patch, as in PASTIS."""

SHARES = (0.0, 0.2, 0.16, 0.15, 0.1, 0.1, 0.09, 0.08, 0.06, 0.06)
"""How often a parcel carries each class; the background has its own land."""

# Surface reflectance times 10000, one value a band of BANDS.
_SOIL = (900, 1150, 1450, 1650, 1800, 1950, 2050, 2200, 2900, 2450)
_LEAF = (300, 620, 350, 950, 2900, 3700, 3900, 4100, 1850, 850)
_STRAW = (750, 1050, 1350, 1750, 2250, 2450, 2650, 2800, 3300, 2300)
_FLOWER = (420, 1350, 1150, 1750, 3000, 3500, 3700, 3900, 2000, 1000)
ENDMEMBERS = np.array([_SOIL, _LEAF, _STRAW, _FLOWER], dtype=np.float32)
"""Spectra of soil, leaf, straw and flower, [4, bands]."""

# Land without crops: needle wood, leaf wood, village, water.
_NEEDLE_WOOD = (220, 380, 240, 620, 1750, 2150, 2350, 2500, 1150, 520)
_VILLAGE = (1350, 1500, 1650, 1800, 2000, 2100, 2200, 2300, 2400, 2100)
_WATER = (450, 430, 280, 230, 190, 180, 160, 150, 90, 60)
LAND = np.array([_NEEDLE_WOOD, _VILLAGE, _WATER], dtype=np.float32)


@dataclass(frozen=True)
class Crop:
    """The year of one crop; days are counted from 1 September.

    Crops share leaves, soil and straw and differ in their dates, so that no single date and no mean over
    the year tells them apart.
    """

    rise: float
    """Day on which half of the leaves are out."""
    fall: float
    """Day on which half of the leaves are dry."""
    harvest: float
    """Day on which the straw is gone."""
    cover: float = 0.9
    """Greatest share of the ground under leaves."""
    autumn: float = 0.0
    """Share under leaves between sowing in autumn and spring."""
    flower: float | None = None
    """Day of full yellow flower."""


CROPS: dict[str, Crop] = {
    "Soft winter wheat": Crop(rise=195, fall=295, harvest=322, autumn=0.18),
    "Corn": Crop(rise=290, fall=385, harvest=408),
    "Winter barley": Crop(rise=188, fall=272, harvest=300, autumn=0.22),
    "Winter rapeseed": Crop(rise=182, fall=283, harvest=308, autumn=0.5, flower=226),
    "Spring barley": Crop(rise=228, fall=298, harvest=325),
    "Sunflower": Crop(rise=281, fall=350, harvest=378),
    "Grapevine": Crop(rise=240, fall=400, harvest=440, cover=0.45),
    "Beet": Crop(rise=272, fall=430, harvest=440),
}


def cover_of_crop(name: str, days: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Shares of soil, leaf, straw and flower of one parcel on each day, [T, 4]; each row sums to 1."""
    if name == "Meadow":
        return _cover_of_meadow(days, rng)
    crop = CROPS[name]
    moved = days - rng.normal(0, 6)
    cover = crop.cover * rng.uniform(0.88, 1.05)
    leaf = cover * _step(moved, crop.rise, 9) * (1 - _step(moved, crop.fall, 7))
    leaf += crop.autumn * _step(moved, 60, 10) * (1 - _step(moved, crop.rise, 9))
    straw = 0.8 * cover * _step(moved, crop.fall, 7) * (1 - 0.8 * _step(moved, crop.harvest, 3))
    flower = np.zeros_like(days)
    if crop.flower is not None:
        flower = 0.75 * leaf * np.exp(-0.5 * ((moved - crop.flower) / 9) ** 2)
    # What stood before and what is sown after: stubble and volunteers, alike under all crops.
    straw += 0.35 * (1 - _step(moved, 35, 8)) + 0.2 * _step(moved, crop.harvest + 8, 6)
    return _shares(leaf - flower, straw, flower)


def _cover_of_meadow(days: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    summer = np.exp(-0.5 * ((days - 265) / 75) ** 2)
    leaf = rng.uniform(0.42, 0.6) + 0.3 * summer
    for mown in rng.uniform(255, 390, rng.integers(1, 4)):
        leaf = leaf - 0.4 * (days >= mown) * np.exp(-np.maximum(days - mown, 0) / 16)
    straw = (0.12 + 0.15 * np.exp(-0.5 * ((days - 335) / 30) ** 2)).astype(np.float32)
    return _shares(np.clip(leaf, 0.05, 0.95).astype(np.float32), straw, np.zeros_like(days))


def spectra_of_background(days: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Reflectance of one piece of land without crops on each day, [T, bands]."""
    kind = rng.integers(0, 4)
    if kind == 3:
        leaf = 0.15 + 0.75 * _step(days, 235, 8) * (1 - _step(days, 410, 12))
        cover = _shares(leaf, 0.3 * (1 - leaf), np.zeros_like(days))
        return (0.72 * cover @ ENDMEMBERS).astype(np.float32)
    season = 1 + 0.08 * np.cos(2 * np.pi * (days - 290) / 365.25)
    seen: NDArray[np.float32] = (LAND[kind] * rng.uniform(0.8, 1.2) * season[:, None]).astype(np.float32)
    return seen


def spectra_of_parcel(code: int, days: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Reflectance of one parcel on each day, times 10000.

    Args:
        code: class of the parcel, its place in `CLASSES`.
        days: days since 1 September, [T].
        rng: the source of chance: sowing, soil and vigour differ from parcel to parcel.

    Returns:
        One spectrum a day in the order of `BANDS`, [T, bands].
    """
    if code == 0:
        return spectra_of_background(days, rng)
    cover = cover_of_crop(CLASSES[code], days, rng)
    members = ENDMEMBERS * rng.normal(1, [[0.16], [0.07], [0.1], [0.05]])
    wetness = 1 - 0.12 * rng.uniform(0, 1, (len(days), 1)) * cover[:, :1]
    return (cover @ members * wetness).astype(np.float32)


def _step(days: NDArray[np.float32], middle: float, width: float) -> NDArray[np.float32]:
    step: NDArray[np.float32] = 1 / (1 + np.exp(-np.clip((days - middle) / width, -30, 30)))
    return step


def _shares(
    leaf: NDArray[np.float32], straw: NDArray[np.float32], flower: NDArray[np.float32]
) -> NDArray[np.float32]:
    green = np.clip(np.stack([leaf, straw, flower], axis=-1), 0, 1)
    total = green.sum(-1, keepdims=True)
    green = green / np.maximum(total, 1)
    soil = 1 - green.sum(-1, keepdims=True)
    return np.concatenate([soil, green[:, :1], green[:, 1:2], green[:, 2:]], axis=-1).astype(np.float32)
