"""Days on which the satellite looked, and what hid the ground on them."""

from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from sits.synthetic.fields import smooth_noise

SEASON_DAYS = 430
"""Length of the imaged season: 1 September to early November of the next year, as in PASTIS."""


def make_dates(count: int, rng: np.random.Generator, start: date = date(2018, 9, 1)) -> tuple[date, ...]:
    """Choose acquisition dates: a revisit of 2 or 3 days with most passes lost, in time order.

    Args:
        count: number of dates.
        rng: the source of chance.
        start: first day of the season.
    """
    passes = np.cumsum(np.tile([2, 3], SEASON_DAYS // 5))
    # Summer skies are clearer: more of the passes of May to September are usable.
    clear = 1 + 0.8 * np.exp(-0.5 * ((passes - 315) / 70.0) ** 2)
    chosen = rng.choice(passes, count, replace=False, p=clear / clear.sum())
    return tuple(start + timedelta(days=int(day)) for day in np.sort(chosen))


def cloud_cover(shape_yx: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Opacity of the clouds of one date, 0 to 1, [H, W]; about half of the dates are clear."""
    share = float(rng.choice([0.0, rng.uniform(0.05, 0.5), rng.uniform(0.6, 1.0)], p=[0.55, 0.33, 0.12]))
    if share == 0.0:
        return np.zeros(shape_yx, dtype=np.float32)
    noise = smooth_noise(shape_yx, min(shape_yx) / 3, rng) + 0.35 * smooth_noise(shape_yx, 6, rng)
    edge = np.quantile(noise, 1 - share)
    opacity: NDArray[np.float32] = np.clip((noise - edge) / 0.35, 0, 1).astype(np.float32)
    return opacity


def add_clouds(values: NDArray[np.float32], opacity: NDArray[np.float32], rng: np.random.Generator) -> None:
    """Cover one date with clouds and their shadows, in place.

    Args:
        values: reflectance times 10000, [bands, H, W].
        opacity: as from `cloud_cover`, [H, W].
        rng: the source of chance.
    """
    if not opacity.any():
        return
    drop = (int(rng.integers(3, 9)), int(rng.integers(3, 9)))
    shadow = 1 - 0.55 * np.roll(opacity, drop, axis=(0, 1))
    brightness = rng.uniform(4500, 9000) * (0.75 + 0.25 * opacity)
    values *= shadow
    values += opacity * (brightness - values)
