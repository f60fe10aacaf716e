"""What a model expects of a series: its bands, their scale and statistics, and when its season begins."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from geomix.config import Config
from sits.dates import DEFAULT_SEASON
from sits.series import Mask, Values


class Inputs(Config):
    """The whole preprocessing of a model, as its card's `inputs` holds it."""

    bands: tuple[str, ...]
    """The bands in the order of the model's channels, by their Sentinel-2 names (B2, B8A, B11)."""

    mean: tuple[float, ...]
    """The mean of each band over the training series, in units of reflectance times `scale`."""

    std: tuple[float, ...]
    """The standard deviation of each band, in the same units, above 0."""

    scale: float = 10000.0
    """What a reflectance of 1 is in the units of `mean` and `std`: 10000 for digital numbers."""

    season_start: str = DEFAULT_SEASON
    """The first day of the season as MM-DD; days count from the last one on or before the first date."""

    level: str | None = None
    """The product level of the training series, L1C (top of the atmosphere) or L2A (at the ground)."""

    @model_validator(mode="after")
    def _one_statistic_a_band(self) -> Self:
        if not len(self.bands) == len(self.mean) == len(self.std):
            raise ValueError(
                f"bands, mean and std must have one entry a band, got {len(self.bands)}, {len(self.mean)}, {len(self.std)}"
            )
        if not self.bands:
            raise ValueError("bands must name at least one band")
        if min(self.std) <= 0 or self.scale <= 0:
            raise ValueError("std and scale must be above 0")
        return self

    def normalise(self, values: Values, valid: Mask) -> NDArray[np.float32]:
        """Centre and scale each band; 0, the mean, where there are no data.

        Args:
            values: reflectance [..., T, C, H, W] in the order of `bands`.
            valid: where there are data [..., T, H, W].
        """
        factor = np.array([self.scale / std for std in self.std], dtype=np.float32)
        shift = np.array([mean / std for mean, std in zip(self.mean, self.std, strict=True)], dtype=np.float32)
        normal = values * factor[:, None, None] - shift[:, None, None]
        return np.where(np.expand_dims(valid, -3), normal, np.float32(0))
