"""What a model is fed: which bands, in which units and from which day on.

Training, evaluation and prediction all come through here, so that none can differ from the others.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from geomix.config import Config
from geomix.errors import InputError
from sits.dates import DEFAULT_SEASON, days_since, season_start


class Inputs(Config):
    """Everything between the numbers of a file and the model; the card keeps it under `inputs`."""

    bands: tuple[str, ...]
    """Names of the bands in the order of the model, for example B2."""
    level: Literal["L1C", "L2A", "any"] = "any"
    """Processing level of the images that the model was trained on."""
    mean: tuple[float, ...] = ()
    """Mean reflectance of each band over the training data; filled in by training."""
    std: tuple[float, ...] = ()
    """Standard deviation of the reflectance of each band over the training data."""
    season_start: str = Field(DEFAULT_SEASON, pattern=r"^\d\d-\d\d$")
    """Month and day from which days are counted."""
    days: Literal["season", "year"] = "season"
    """Count days from the start of the season, or take the day of the year (published TSViT)."""

    @model_validator(mode="after")
    def _check(self) -> "Inputs":
        if len(set(self.bands)) != len(self.bands) or not self.bands:
            raise ValueError(f"bands must be different names, got {list(self.bands)}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, len(self.bands)):
            raise ValueError(
                f"mean and std need one value for each of the {len(self.bands)} bands, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        season_start(date(2001, 1, 1), self.season_start)  # 2001: 29 February starts no season
        return self

    @classmethod
    def of_card(cls, inputs: Mapping[str, Any]) -> "Inputs":
        """Read the `inputs` of a card, which may hold more than this class knows."""
        return cls(**{key: value for key, value in inputs.items() if key in cls.model_fields})


def days_of(dates: Sequence[date], inputs: Inputs, start: date | None = None) -> NDArray[np.int64]:
    """The number that tells the model when each image was taken, [T].

    Args:
        dates: acquisition dates in time order.
        inputs: how the model counts.
        start: first day of the season; by default the one to which `dates[0]` belongs. A state on disk keeps
            its own, so that images added later count from the same day.

    Raises:
        InputError: if there are no dates or they are not in time order.
    """
    if not dates:
        raise InputError("the series holds no dates")
    if any(later < earlier for earlier, later in pairwise(dates)):
        raise InputError("the dates must be in time order; sort the series by date first")
    if inputs.days == "year":
        return np.array([day.timetuple().tm_yday for day in dates], dtype=np.int64)
    return np.array(days_since(dates, start or season_start(dates[0], inputs.season_start)), dtype=np.int64)


def prepare(values: NDArray[np.float32], valid: NDArray[np.bool_], inputs: Inputs) -> NDArray[np.float32]:
    """Normalise the bands; invalid pixels become 0 and stay invalid.

    Args:
        values: reflectance as `TimeSeries.read` gives it, bands in the order of `inputs.bands`, [T, C, h, w].
        valid: which pixels were seen, [T, h, w].
        inputs: mean and standard deviation of the model.

    Returns:
        Values of about unit spread, [T, C, h, w].

    Raises:
        InputError: if the number of bands is not the model's, or training has left no mean.
    """
    if values.shape[1] != len(inputs.bands):
        raise InputError(f"the model takes {len(inputs.bands)} bands, got {values.shape[1]}")
    if not inputs.mean:
        raise InputError("the inputs carry no mean and std; train first or take them from a card")
    mean = np.asarray(inputs.mean, dtype=np.float32)[:, None, None]
    std = np.asarray(inputs.std, dtype=np.float32)[:, None, None]
    return np.where(valid[:, None], (values - mean) / std, np.float32(0)).astype(np.float32, copy=False)
