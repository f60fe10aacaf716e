"""One embedding of one series of a pixel or parcel, whatever its dates, bands and sensors.

A date is one token: its bands, which of them were seen, and its day. Polynomial mixers let the dates read
each other; mean and spread over the dates are the embedding. Nothing depends on how many dates there are, on
their order or on a regular step, and a missing band is told as missing, so five-day series of ten bands and
monthly series of four are fed alike.

Sources: Picard et al., arXiv 2604.06129 (mixer); Tseng et al., arXiv 2304.14065 (Presto, the teacher).
"""

import math
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from geomix.config import Config
from geomix.encoder import Encoder
from geomix.errors import InputError
from geomix.segments import Segments

BANDS = ("VV", "VH", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B11", "B12")
"""Sentinel-1 in decibels, then Sentinel-2 as reflectance."""

_MEAN = (-11.25, -18.0, 0.08, 0.10, 0.09, 0.13, 0.23, 0.27, 0.28, 0.29, 0.21, 0.14)
_STD = (5.0, 5.0, 0.09, 0.09, 0.10, 0.10, 0.10, 0.11, 0.12, 0.12, 0.10, 0.09)
_YEAR = 365.25
_SLOW = (0.4, 0.62)
"""Waves that tell the first year of a series from the second, cycles a year."""
_FLOOR = 1e-4
"""Added to the variance over the dates, for the slope of the root at 0."""


class SeriesConfig(Config):
    """Architecture of a series encoder."""

    kind: Literal["series"] = "series"
    bands: tuple[str, ...] = BANDS
    """What a date may show; any of them may be missing."""
    mean: tuple[float, ...] = _MEAN
    """Typical value of each band, by which it is centred."""
    std: tuple[float, ...] = _STD
    """Typical spread of each band, by which it is divided."""
    dim: int = Field(128, gt=0)
    """Channels of a token."""
    depth: int = Field(2, ge=0)
    mixer: dict[str, Any] = Field({"name": "pom"})
    mlp_ratio: float = Field(2.0, gt=0)
    width: int = Field(128, gt=0)
    """Channels of the embedding."""
    harmonics: int = Field(8, gt=0)
    """Waves of the day of the year: once a year, twice, and so on."""

    @model_validator(mode="after")
    def _check(self) -> "SeriesConfig":
        if not self.bands or not len(self.bands) == len(self.mean) == len(self.std):
            raise ValueError(f"give a mean and a std for each of the {len(self.bands)} bands")
        return self


class SeriesEncoder(nn.Module):
    """Series of bands to embeddings."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: SeriesConfig) -> None:
        super().__init__()
        self.config = config
        inputs = 2 * len(config.bands) + 2 * config.harmonics + 2 * len(_SLOW)
        self.register_buffer("mean", torch.tensor(config.mean), persistent=False)
        self.register_buffer("std", torch.tensor(config.std), persistent=False)
        self.embed = nn.Sequential(
            nn.Linear(inputs, 2 * config.dim), nn.GELU(), nn.Linear(2 * config.dim, config.dim)
        )
        self.encoder = Encoder(config.dim, config.depth, config.mixer, mlp_ratio=config.mlp_ratio)
        self.out = nn.Sequential(nn.Linear(2 * config.dim, config.width), nn.LayerNorm(config.width))

    def forward(self, values: Tensor, days: Tensor, valid: Tensor) -> Tensor:
        """Embed series.

        Args:
            values: decibels and reflectance, bands in the order of `config.bands`, [N, T, C].
            days: the day of the year of each date; a second year may go on counting, [T] or [N, T].
            valid: which values were seen, bool, [N, T, C].

        Returns:
            [N, width]; that of a series without any date is one and the same for all.

        Raises:
            InputError: if the shapes do not fit.
        """
        self._check(values, days, valid)
        known = valid.any(-1)
        numbers = torch.where(valid, (values - self.mean) / self.std, 0.0)
        code = code_of_days(days.expand(known.shape), known, self.config.harmonics).to(numbers.dtype)
        tokens = torch.cat([numbers, valid.to(numbers.dtype), code], dim=-1)[known]
        ends = nn.functional.pad(known.sum(1).cumsum(0), (1, 0))
        segments = Segments.packed(ends)
        tokens = self.encoder(self.embed(tokens), segments)
        mean = _mean(tokens, segments, known)
        spread = (_mean(tokens.square(), segments, known) - mean.square()).clamp(min=0)
        found: Tensor = self.out(torch.cat([mean, (spread + _FLOOR).sqrt()], dim=-1))
        return found

    def _check(self, values: Tensor, days: Tensor, valid: Tensor) -> None:
        bands = len(self.config.bands)
        if values.ndim != 3 or values.shape[2] != bands:
            raise InputError(f"values must be [N, T, {bands}], got {list(values.shape)}")
        number, dates, _ = values.shape
        if days.shape not in ((dates,), (number, dates)):
            raise InputError(f"days must be [{dates}] or [{number}, {dates}], got {list(days.shape)}")
        if valid.dtype != torch.bool or valid.shape != values.shape:
            raise InputError(
                f"valid must be bool {list(values.shape)}, got {valid.dtype} {list(valid.shape)}"
            )


def code_of_days(days: Tensor, known: Tensor, harmonics: int) -> Tensor:
    """Waves of the day of the year, and slow waves about the middle of each series.

    Args:
        days: [N, T].
        known: dates that count for the middle, which lies halfway between the first and the last, [N, T].
        harmonics: how many waves of the year.

    Returns:
        Float64, [N, T, 2 * harmonics + 4].
    """
    days = days.double()
    first = torch.where(known, days, torch.inf).amin(1, keepdim=True)
    last = torch.where(known, days, -torch.inf).amax(1, keepdim=True)
    middle = torch.nan_to_num((first + last) / 2)
    waves = torch.arange(1, harmonics + 1, dtype=torch.float64, device=days.device)
    slow = torch.tensor(_SLOW, dtype=torch.float64, device=days.device)
    year = 2 * math.pi / _YEAR * days[..., None] * waves
    along = 2 * math.pi / _YEAR * (days - middle)[..., None] * slow
    return torch.cat([year.sin(), year.cos(), along.sin(), along.cos()], dim=-1)


def _mean(tokens: Tensor, segments: Segments, known: Tensor) -> Tensor:
    """The mean of the tokens of each series, [N, D]; 0 where there is none."""
    total = tokens.new_zeros(len(known), tokens.shape[1])
    total = total.index_add(0, segments.sequence_of_token, tokens)
    return total / known.sum(1, keepdim=True).clamp(min=1)
