"""A linear probe: the pretrained series encoder, frozen, and a discriminant fitted to the labels at hand.

Beside the embedding the discriminant sees the values of the steps of the season, which tell the level of each
band where the embedding tells the course of the year.

Source: Tseng et al., arXiv 2304.14065, section 4 (frozen features and a linear model).
"""


import torch
from pydantic import Field
from torch import Tensor, nn

from geomix.checkpoint import load_model
from geomix.config import Config
from geomix.errors import CheckpointError, InputError
from geomix.learn.linear import Linear, fit_discriminant
from sits.model.encoder import SeriesConfig, SeriesEncoder

BASE = "base"
"""Name of the bundled encoder."""
_AT_ONCE = 1 << 14
"""Dates that are encoded at a time."""


class ProbeConfig(Config):
    """What a probe is made of."""

    encoder: SeriesConfig
    bands: tuple[str, ...] = Field(min_length=1)
    """Bands of the series it is fed, in their order; the encoder takes those that it knows."""
    mean: tuple[float, ...] = ()
    """By which the bands were centred, and below divided; empty if they come as they are."""
    std: tuple[float, ...] = ()
    first_day: int = Field(0, ge=0, lt=366)
    """Day of the year on which day 0 of a series lies."""
    steps: int = Field(ge=0)
    """Numbers that tell the values of the steps."""
    classes: int = Field(gt=1)


class Probe(nn.Module):
    """Probabilities from the frozen encoder and one linear layer."""

    chosen: Tensor

    def __init__(self, config: ProbeConfig, encoder: SeriesEncoder | None = None) -> None:
        """Take an encoder, or make an empty one that a file fills."""
        super().__init__()
        self.config = config
        self.encoder = (encoder or SeriesEncoder(config.encoder)).requires_grad_(False)
        self.head = Linear(config.encoder.width + config.steps, config.classes)
        places = [_place(band, config.bands) for band in config.encoder.bands]
        self.register_buffer("chosen", torch.tensor(places), persistent=False)
        if not any(place >= 0 for place in places):
            raise InputError(
                f"none of the bands {', '.join(config.bands)} is known to the pretrained encoder; "
                f"it knows {', '.join(config.encoder.bands)}"
            )

    def forward(self, values: Tensor, days: Tensor, valid: Tensor, rows: Tensor) -> Tensor:
        """The probability of each class.

        Args:
            values: bands as the model is fed, [N, T, C].
            days: days since the season began, [T] or [N, T].
            valid: which dates were seen, [N, T], or which values, [N, T, C].
            rows: values of the steps, [N, S]; NaN where unknown.

        Returns:
            [N, K].
        """
        return self.head(self.features(values, days, valid, rows))  # type: ignore[no-any-return]

    def features(self, values: Tensor, days: Tensor, valid: Tensor, rows: Tensor) -> Tensor:
        """What the discriminant sees, [N, width + S]; arguments as in `forward`."""
        size = max(1, _AT_ONCE // max(values.shape[1], 1))
        days = days.expand(values.shape[:2]) + self.config.first_day
        parts = [
            self._embedded(
                values[start : start + size], days[start : start + size], valid[start : start + size]
            )
            for start in range(0, len(values), size)
        ]
        parts = parts or [rows.new_zeros(0, self.config.encoder.width)]
        return torch.cat([torch.cat(parts), rows], dim=1)

    def _embedded(self, values: Tensor, days: Tensor, valid: Tensor) -> Tensor:
        if self.config.mean:
            values = values * values.new_tensor(self.config.std) + values.new_tensor(self.config.mean)
        seen = valid[..., None].expand_as(values) if valid.ndim == 2 else valid
        held = self.chosen >= 0
        chosen = self.chosen.clamp(min=0)
        known = seen[..., chosen] & held
        with torch.no_grad():
            found: Tensor = self.encoder(values[..., chosen], days, known)
        return found


def fit_probe(
    values: Tensor,
    days: Tensor,
    valid: Tensor,
    rows: Tensor,
    labels: Tensor,
    classes: int,
    *,
    bands: tuple[str, ...],
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    first_day: int = 0,
    base: str = BASE,
) -> Probe:
    """Fit a probe on labelled series.

    Args:
        values: bands as the model will be fed, [N, T, C].
        days: days since the season began, [T] or [N, T].
        valid: which dates or values were seen, [N, T] or [N, T, C].
        rows: values of the steps, [N, S]; NaN where unknown.
        labels: class numbers from 0, [N].
        classes: how many classes there are, also where some have no sample.
        bands: names of the bands.
        mean: by which the bands were centred; empty if they come as they are.
        std: by which they were divided.
        first_day: day of the year on which day 0 lies.
        base: the pretrained encoder: a bundled name or a .safetensors file.

    Returns:
        The probe; fitting is exact, so there is no seed.

    Raises:
        CheckpointError: if `base` is no series encoder.
        InputError: if no band is known to the encoder, or the labels hold fewer than two classes.
    """
    encoder = load_model(base, domain="sits")
    if not isinstance(encoder, SeriesEncoder):
        raise CheckpointError(f"{base}: is no pretrained series encoder; use {BASE!r}")
    config = ProbeConfig(
        encoder=encoder.config,
        bands=bands,
        mean=mean,
        std=std,
        first_day=first_day,
        steps=rows.shape[1],
        classes=classes,
    )
    probe = Probe(config, encoder).eval()
    seen = probe.features(values, days, valid, rows)
    probe.head = fit_discriminant(seen.numpy(), labels.numpy(), classes)
    return probe


def _place(band: str, bands: tuple[str, ...]) -> int:
    return bands.index(band) if band in bands else -1
