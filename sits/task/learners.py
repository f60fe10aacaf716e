"""What can learn own fields: each learner is fitted on rows of labelled pixels and gives their probabilities.

A further learner is an entry of `LEARNERS`; it needs a place in `sits.model.fields` that `segment` loads.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.errors import InputError
from geomix.learn.trees import fit_boosting, fit_forest
from sits.data.inputs import Inputs
from sits.model.encoder import BANDS
from sits.model.fields import ProbeLearner, Steps, TreesLearner, steps_of
from sits.model.probe import Probe, new_probe

Numbers = NDArray[np.int64]
Shares = NDArray[np.float32]

TREES = 300
"""Trees of a forest."""
ROUNDS = 150
"""Rounds of boosting."""


@dataclass(frozen=True)
class Rows:
    """Labelled pixels, as learners take them."""

    steps: NDArray[np.float32]
    """Normalised bands at each step of the season, [N, S * C]; NaN where a pixel was never seen."""
    labels: Numbers
    """Class numbers, [N]."""
    units: Numbers
    """Which shape each pixel lies in, [N]."""
    classes: int
    embeddings: NDArray[np.float32]
    """What the pretrained encoder makes of each pixel, [N, width]; [N, 0] where it knows no band."""
    probe: Probe | None = None
    """The encoder with room for these classes; None where it knows no band."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, keep: NDArray[Any]) -> "Rows":
        """Some of them."""
        return replace(
            self,
            steps=self.steps[keep],
            labels=self.labels[keep],
            units=self.units[keep],
            embeddings=self.embeddings[keep],
        )


@dataclass(frozen=True)
class Fitted:
    """A learner that has learned."""

    module: nn.Module
    describe: Callable[[float], Any]
    """Its entry in the configuration of the model, given its weight in the blend."""
    judge: Callable[[Tensor], Tensor]
    """Features to probabilities."""
    features: Callable[[Rows], NDArray[np.float32]] = attrgetter("steps")
    """What it looks at."""

    def probabilities(self, rows: Rows) -> Shares:
        """Float32, [N, K]."""
        with torch.inference_mode():
            found: Shares = self.judge(torch.from_numpy(self.features(rows))).numpy()
        return found


def rows_of(
    values: NDArray[np.float32], valid: NDArray[np.bool_], days: Numbers, steps: Steps
) -> NDArray[np.float32]:
    """The features of pixels, by the same code as prediction.

    Args:
        values: normalised bands, [N, T, C].
        valid: [N, T].
        days: days since the season began, [T].
        steps: which steps.

    Returns:
        [N, S * C].
    """
    found = steps_of(
        torch.from_numpy(values)[..., None, None],
        torch.from_numpy(days),
        torch.from_numpy(valid)[..., None, None],
        steps,
    )
    return found.flatten(1).numpy()


def probe_of(inputs: Inputs, steps: Steps, classes: int) -> Probe | None:
    """The pretrained encoder for these bands; None if it knows none of them."""
    if not set(inputs.bands) & set(BANDS):
        return None
    return new_probe(inputs, steps.count * len(inputs.bands), classes)


def able(rows: Rows) -> list[str]:
    """The learners that can be asked about these rows."""
    return [name for name in LEARNERS if name != "base" or rows.probe is not None]


def forest(rows: Rows, seed: int) -> Fitted:
    """A random forest."""
    grown = fit_forest(rows.steps, rows.labels, rows.classes, seed, trees=TREES, n_jobs=-1)
    return Fitted(grown, lambda weight: TreesLearner(name="forest", weight=weight, trees=grown.config), grown)


def trees(rows: Rows, seed: int) -> Fitted:
    """Gradient-boosted trees, small ones and slowly, because labels are few."""
    grown = fit_boosting(
        rows.steps,
        rows.labels,
        rows.classes,
        seed,
        max_iter=ROUNDS,
        learning_rate=0.06,
        max_leaf_nodes=15,
        min_samples_leaf=10,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
    )
    return Fitted(grown, lambda weight: TreesLearner(name="trees", weight=weight, trees=grown.config), grown)


def base(rows: Rows, seed: int) -> Fitted:
    """A discriminant on the pretrained encoder and the steps; exact, so the seed plays no part."""
    if rows.probe is None:
        raise InputError("the pretrained encoder knows none of these bands; choose another learner")
    fitted = rows.probe.fitted(_told(rows), rows.labels)
    return Fitted(fitted, lambda weight: ProbeLearner(weight=weight, probe=fitted.config), fitted.head, _told)


def _told(rows: Rows) -> NDArray[np.float32]:
    """Embeddings, and behind them the steps."""
    return np.concatenate([rows.embeddings, rows.steps], axis=1)


LEARNERS: dict[str, Callable[[Rows, int], Fitted]] = {"forest": forest, "trees": trees, "base": base}
"""Name -> what fits a learner on rows with a seed."""
