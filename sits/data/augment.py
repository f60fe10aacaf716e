"""Random changes to training samples, each a small function of a sample and a source of chance."""

import numpy as np
from pydantic import Field

from geomix.config import Config
from sits.data.labelled import Sample


class Augment(Config):
    """Which changes are made; all are off by default."""

    flips: bool = False
    """Mirror and turn by quarters: fields have no upper side."""
    drop_dates: float = Field(0.0, ge=0, lt=1)
    """Largest share of the dates that is hidden at random, as clouds would."""
    cut_off: float = Field(0.0, ge=0, le=1)
    """How often all dates after a random one are hidden, so that the model learns to judge early."""
    earliest: float = Field(0.2, gt=0, le=1)
    """Least share of the dates that a cut leaves."""
    shift_days: int = Field(0, ge=0)
    """Largest number of days by which the whole season is moved, early or late years."""
    gain: float = Field(0.0, ge=0)
    """Spread of a factor and an offset a band, in the band's standard deviations: haze, other sensors."""


def augment(sample: Sample, rng: np.random.Generator, changes: Augment) -> Sample:
    """Apply the chosen changes in a fixed order."""
    if changes.flips:
        sample = flip(sample, rng)
    if changes.drop_dates:
        sample = drop_dates(sample, changes.drop_dates, rng)
    if changes.cut_off and rng.random() < changes.cut_off:
        sample = cut_off(sample, changes.earliest, rng)
    if changes.shift_days:
        sample = shift_days(sample, changes.shift_days, rng)
    if changes.gain:
        sample = change_gain(sample, changes.gain, rng)
    return sample


def flip(sample: Sample, rng: np.random.Generator) -> Sample:
    """Mirror the columns or not, then turn by 0 to 3 quarters."""
    mirrored, quarters = bool(rng.integers(2)), int(rng.integers(4))

    def turn(image: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.rot90(image[..., ::-1] if mirrored else image, quarters, (-2, -1)))

    return sample._replace(values=turn(sample.values), valid=turn(sample.valid), labels=turn(sample.labels))


def drop_dates(sample: Sample, most: float, rng: np.random.Generator) -> Sample:
    """Hide up to the share `most` of the dates; at least one stays."""
    hidden = rng.random(len(sample.days)) < rng.uniform(0, most)
    hidden[int(rng.integers(len(hidden)))] = False
    return sample._replace(valid=sample.valid & ~hidden[:, None, None])


def cut_off(sample: Sample, earliest: float, rng: np.random.Generator) -> Sample:
    """Hide all dates after a random one: the first `earliest` of them at least stay."""
    dates = len(sample.days)
    kept = int(rng.integers(max(1, round(earliest * dates)), dates + 1))
    return sample._replace(valid=sample.valid & (np.arange(dates) < kept)[:, None, None])


def shift_days(sample: Sample, most: int, rng: np.random.Generator) -> Sample:
    """Move all days by the same number."""
    return sample._replace(days=sample.days + int(rng.integers(-most, most + 1)))


def change_gain(sample: Sample, spread: float, rng: np.random.Generator) -> Sample:
    """Scale and lift each band by a random amount that all dates share; invalid pixels stay 0."""
    bands = sample.values.shape[1]
    gain = rng.normal(1, spread, (bands, 1, 1)).astype(np.float32)
    lift = rng.normal(0, spread, (bands, 1, 1)).astype(np.float32)
    values = np.where(sample.valid[:, None], sample.values * gain + lift, np.float32(0))
    return sample._replace(values=values)
