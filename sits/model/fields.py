"""Own fields, own map: learners on regular steps of the season, blended into one model.

Forests, boosted trees and networks are each good at something; cross-validation says what each is worth on
the labels at hand. All of them judge single pixels, so the map does not depend on blocks or on the scene.
"""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from geomix.config import Config
from geomix.learn.trees import Trees, TreesConfig
from sits.model.config import ModelConfig
from sits.model.probe import Probe, ProbeConfig
from sits.model.tsvipom import TSViPoM

_TINY = 1e-7
"""Least probability whose logarithm is given."""


class Steps(Config):
    """Equal steps of the season, to which any dates of any year are brought."""

    first: int = Field(ge=0)
    """The first step that counts, from the start of the season."""
    count: int = Field(gt=0)
    days: float = Field(365.25 / 12, gt=0)
    """Length of a step; a month if not told."""


class TreesLearner(Config):
    """A forest or boosted trees on the values of the steps."""

    kind: Literal["trees"] = "trees"
    name: str
    """What tables call it: `forest`, `boosting`."""
    weight: float = Field(ge=0)
    """Its share in the blend."""
    trees: TreesConfig


class NetworkLearner(Config):
    """A network without spatial context on the dates as they come."""

    kind: Literal["network"] = "network"
    name: str = "network"
    weight: float = Field(ge=0)
    network: ModelConfig


class ProbeLearner(Config):
    """A linear layer on the pretrained encoder and the values of the steps."""

    kind: Literal["probe"] = "probe"
    name: str = "base"
    weight: float = Field(ge=0)
    probe: ProbeConfig


Learner = Annotated[TreesLearner | NetworkLearner | ProbeLearner, Field(discriminator="kind")]


class FieldsConfig(Config):
    """What a model of own fields is made of."""

    kind: Literal["fields"] = "fields"
    bands: int = Field(gt=0)
    classes: int = Field(gt=1)
    steps: Steps
    learners: tuple[Learner, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "FieldsConfig":
        if not sum(one.weight for one in self.learners) > 0:
            raise ValueError("the weights of the learners must not all be 0")
        return self


class FieldsModel(nn.Module):
    """The weighted mean of the probabilities of its learners, pixel by pixel."""

    patch = 1
    halo = 0
    surveys = False

    def __init__(self, config: FieldsConfig, learners: list[nn.Module] | None = None) -> None:
        """Take fitted learners, or make empty ones that a file fills."""
        super().__init__()
        self.config = config
        steps = config.steps
        self.season_days = (steps.first * steps.days, (steps.first + steps.count) * steps.days)
        """The days of the season that were learned, from and to."""
        self.learners = nn.ModuleList(learners or [_empty(one) for one in config.learners])
        # A forest alone has no parameters, and callers ask a parameter for the device.
        self.device_of = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(
        self, values: Tensor, days: Tensor, valid: Tensor, origin: tuple[int, int] | None = None
    ) -> Tensor:
        """The logarithm of the probability of each class.

        Args:
            values: normalised bands, [B, T, C, h, w].
            days: days since the season began, [T] or [B, T].
            valid: which pixels were seen, [B, T, h, w].
            origin: where the window lies; no learner looks beyond its pixel.

        Returns:
            Float32, [B, K, h, w].
        """
        batch, _, _, height, width = values.shape
        rows = steps_of(values, days, valid, self.config.steps).flatten(1, 2)
        rows = rows.permute(0, 2, 3, 1).reshape(-1, rows.shape[1])
        total = sum(one.weight for one in self.config.learners)
        found = values.new_zeros(batch, self.config.classes, height, width)
        for spec, learner in zip(self.config.learners, self.learners, strict=True):
            if spec.weight == 0:
                continue
            if spec.kind == "trees":
                shares = learner(rows).reshape(batch, height, width, -1).movedim(-1, 1)
            elif spec.kind == "probe":
                shares = learner(*pixels_of(values, days, valid), rows)
                shares = shares.reshape(batch, height, width, -1).movedim(-1, 1)
            else:
                shares = learner(values, days, valid).float().softmax(1)
            found += spec.weight / total * shares
        return found.clamp(min=_TINY).log()

    def working_bytes(self, dates: int, rows: int, columns: int) -> int:
        """About how many bytes a window of that size takes beside its images."""
        steps = self.config.steps.count * self.config.bands
        widths = [one.network.dim * 12 * dates for one in self.config.learners if one.kind == "network"]
        probes = sum(one.kind == "probe" for one in self.config.learners)
        own = (2 * probes + 3) * dates * self.config.bands
        return 4 * rows * columns * (6 * steps + own + sum(widths)) + (1 + 2 * probes) * 2**26


def steps_of(values: Tensor, days: Tensor, valid: Tensor, steps: Steps) -> Tensor:
    """Bring a series to regular steps: the mean of each step, and straight lines across steps unseen.

    Before the first step that was seen, and after the last one, its values go on.

    Args:
        values: [B, T, C, h, w].
        days: days since the season began, [T] or [B, T].
        valid: [B, T, h, w].
        steps: which steps.

    Returns:
        [B, S, C, h, w]; NaN where no step of a pixel was seen.
    """
    if days.ndim == 2:
        alone = zip(values, days, valid, strict=True)
        return torch.cat([steps_of(one[None], when, seen[None], steps) for one, when, seen in alone])
    places = ((days / steps.days).floor().long() - steps.first).tolist()
    batch, _, bands, height, width = values.shape
    total = values.new_zeros(batch, steps.count, bands, height, width)
    count = values.new_zeros(batch, steps.count, height, width)
    # Date after date, so that the sums are the same to the last bit whatever the size of the window.
    for date, place in enumerate(places):
        if 0 <= place < steps.count:
            seen = valid[:, date].to(values.dtype)
            total[:, place] += values[:, date] * seen[:, None]
            count[:, place] += seen
    return _filled(total / count[:, :, None].clamp(min=1), count > 0)


def pixels_of(values: Tensor, days: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The series of single pixels, row by row: values [N, T, C], days [N, T] and valid [N, T].

    Arguments as in `FieldsModel.forward`.
    """
    batch, dates, bands, height, width = values.shape
    each = height * width
    series = values.permute(0, 3, 4, 1, 2).reshape(batch * each, dates, bands)
    return (
        series,
        days.expand(batch, dates).repeat_interleave(each, 0),
        valid.permute(0, 2, 3, 1).reshape(batch * each, dates),
    )


def _filled(mean: Tensor, known: Tensor) -> Tensor:
    """Straight lines between known steps, [B, S, C, h, w]."""
    count = mean.shape[1]
    numbers = torch.arange(count, device=mean.device)[None, :, None, None].expand_as(known)
    before = torch.where(known, numbers, -1).cummax(1).values
    after = torch.where(known, numbers, count).flip(1).cummin(1).values.flip(1)
    none = (before < 0) & (after == count)
    before, after = torch.where(before < 0, after, before), torch.where(after == count, before, after)
    before, after = before.clamp(0, count - 1), after.clamp(0, count - 1)
    share = (numbers - before) / (after - before).clamp(min=1)
    ends = [
        mean.gather(1, end[:, :, None].expand_as(mean)) * weight[:, :, None]
        for end, weight in ((before, 1 - share), (after, share))
    ]
    return (ends[0] + ends[1]).masked_fill(none[:, :, None], torch.nan)


def _empty(spec: Any) -> nn.Module:
    if spec.kind == "trees":
        return Trees(spec.trees)
    return Probe(spec.probe) if spec.kind == "probe" else TSViPoM(spec.network)
