"""What can learn own fields: each learner is fitted on rows of labelled pixels and gives their probabilities.

A further learner is an entry of `LEARNERS`; it needs a place in `sits.model.fields` that `segment` loads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from geomix.learn.trees import fit_boosting, fit_forest
from sits.model.fields import Steps, TreesLearner, steps_of

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

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, keep: NDArray[np.bool_]) -> "Rows":
        """Some of them."""
        return Rows(self.steps[keep], self.labels[keep], self.units[keep], self.classes)


@dataclass(frozen=True)
class Fitted:
    """A learner that has learned."""

    module: nn.Module
    describe: Callable[[float], Any]
    """Its entry in the configuration of the model, given its weight in the blend."""

    def probabilities(self, rows: Rows) -> Shares:
        """Float32, [N, K]."""
        with torch.inference_mode():
            found: Shares = self.module(torch.from_numpy(rows.steps)).numpy()
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


def forest(rows: Rows, seed: int) -> Fitted:
    """A random forest."""
    grown = fit_forest(rows.steps, rows.labels, rows.classes, seed, trees=TREES, n_jobs=-1)
    return Fitted(grown, lambda weight: TreesLearner(name="forest", weight=weight, trees=grown.config))


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
    return Fitted(grown, lambda weight: TreesLearner(name="trees", weight=weight, trees=grown.config))


LEARNERS: dict[str, Callable[[Rows, int], Fitted]] = {"forest": forest, "trees": trees}
"""Name -> what fits a learner on rows with a seed."""
