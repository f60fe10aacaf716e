"""A linear probe: the pretrained series encoder, frozen, and a discriminant fitted to the labels at hand.

Beside the embedding the discriminant sees the values of the steps of the season, which tell the level of each
band where the embedding tells the course of the year.

Source: Tseng et al., arXiv 2304.14065, section 4 (frozen features and a linear model).
"""

from datetime import date

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from geomix.checkpoint import load_model
from geomix.config import Config
from geomix.errors import CheckpointError, InputError
from geomix.learn.linear import Linear, fit_discriminant
from sits.data.inputs import Inputs
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
        if max(places) < 0:
            raise InputError(
                f"none of the bands {', '.join(config.bands)} is known to the pretrained encoder; "
                f"it knows {', '.join(config.encoder.bands)}"
            )
        self.register_buffer("chosen", torch.tensor(places), persistent=False)

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
        found: Tensor = self.head(torch.cat([self.embed(values, days, valid), rows], dim=1))
        return found

    @torch.no_grad()
    def embed(self, values: Tensor, days: Tensor, valid: Tensor) -> Tensor:
        """The embeddings of series, [N, width]; arguments as in `forward`."""
        size = max(1, _AT_ONCE // max(values.shape[1], 1))
        days = days.expand(values.shape[:2]) + self.config.first_day
        found = values.new_zeros(len(values), self.config.encoder.width)
        for start in range(0, len(values), size):
            part = slice(start, start + size)
            found[part] = self.encoder(*self._told(values[part], valid[part], days[part]))
        return found

    def _told(self, values: Tensor, valid: Tensor, days: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bands in the units and the order of the encoder."""
        if self.config.mean:
            values = values * values.new_tensor(self.config.std) + values.new_tensor(self.config.mean)
        seen = valid[..., None].expand_as(values) if valid.ndim == 2 else valid
        chosen = self.chosen.clamp(min=0)
        return values[..., chosen], days, seen[..., chosen] & (self.chosen >= 0)

    def fitted(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> "Probe":
        """A probe with the same encoder, fitted to labels; exact, so there is no seed.

        Args:
            rows: embeddings, and behind them the values of the steps, [N, width + S]; NaN where unknown.
            labels: class numbers from 0, [N].

        Raises:
            InputError: if the labels hold fewer than two classes.
        """
        found = Probe(self.config, self.encoder)
        found.head = fit_discriminant(rows, labels, self.config.classes)
        return found.eval()


def new_probe(inputs: Inputs, steps: int, classes: int, base: str = BASE) -> Probe:
    """A probe on the pretrained encoder that knows no classes yet.

    Args:
        inputs: what the series will be fed as.
        steps: numbers that tell the values of the steps.
        classes: how many classes there are.
        base: the pretrained encoder: a bundled name or a .safetensors file.

    Raises:
        CheckpointError: if `base` is no series encoder.
        InputError: if no band is known to the encoder.
    """
    encoder = load_model(base, domain="sits")
    if not isinstance(encoder, SeriesEncoder):
        raise CheckpointError(f"{base}: is no pretrained series encoder; use {BASE!r}")
    config = ProbeConfig(
        encoder=encoder.config,
        bands=inputs.bands,
        mean=inputs.mean,
        std=inputs.std,
        first_day=_first_day(inputs),
        steps=steps,
        classes=classes,
    )
    return Probe(config, encoder).eval()


def _first_day(inputs: Inputs) -> int:
    """Day of the year of day 0."""
    if inputs.days == "year":
        return 0
    month, day = map(int, inputs.season_start.split("-"))
    return date(2001, month, day).timetuple().tm_yday


def _place(band: str, bands: tuple[str, ...]) -> int:
    return bands.index(band) if band in bands else -1
