"""Linear discriminants as plain arrays, fitted by scikit-learn and evaluated here.

With few samples and many features the covariance is shrunk, which needs no validation set and no tuning.

Source: Ledoit and Wolf 2004, A well-conditioned estimator for large-dimensional covariance matrices, as
scikit-learn's `LinearDiscriminantAnalysis` has it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.errors import InputError

_NEVER = -100.0
"""Score of a class that no row had: files hold finite numbers only."""


class Linear(nn.Module):
    """Class scores that are linear in standardised features."""

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("weight", torch.zeros(classes, features))
        self.register_buffer("bias", torch.zeros(classes))

    def forward(self, rows: Tensor) -> Tensor:
        """The probability of each class.

        Args:
            rows: features, [N, F]; NaN where one is missing, which counts as its mean.

        Returns:
            [N, K]; the sum of each row is 1.

        Raises:
            InputError: if the number of features is another one.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.mean):
            raise InputError(f"the discriminant takes [N, {len(self.mean)}] features, got {list(rows.shape)}")
        # Scores of an unlike scene run into the thousands: float64 keeps them equal in batches of any size.
        known = torch.nan_to_num((rows.double() - self.mean) / self.scale)
        return (known @ self.weight.double().T + self.bias).softmax(dim=1).to(rows.dtype)


def fit_discriminant(rows: NDArray[np.floating[Any]], labels: NDArray[np.int64], classes: int) -> Linear:
    """Fit a linear discriminant with shrunk covariance.

    Args:
        rows: features, [N, F]; NaN where one is missing.
        labels: class numbers from 0, [N].
        classes: how many classes there are, also where some have no row.

    Returns:
        The discriminant; classes without a row are never the answer.

    Raises:
        InputError: if there are fewer than two classes among the labels, or one is out of range.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    present = np.unique(labels)
    if len(rows) != len(labels):
        raise InputError(f"{len(rows)} rows of features, but {len(labels)} labels")
    if len(present) < 2:
        raise InputError(f"a discriminant needs rows of at least two classes, got {len(present)}")
    if present[0] < 0 or present[-1] >= classes:
        raise InputError(f"labels must lie within 0 and {classes - 1}, got {present[0]} to {present[-1]}")
    known = np.asarray(rows, dtype=np.float64)
    seen = ~np.isnan(known)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, known, 0).sum(axis=0) / count
    spread = np.sqrt((np.where(seen, known - mean, 0) ** 2).sum(axis=0) / count)
    # A feature that never changes tells nothing; a tiny divisor would let it shout where it does change.
    scale = np.where(spread > 1e-6, spread, np.inf)
    whole = np.where(seen, (known - mean) / scale, 0)
    fitted = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(whole, labels)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(present) == 2:
        weight, bias = np.stack([0 * weight[0], weight[0]]), np.array([0, bias[0]])
    found = Linear(known.shape[1], classes)
    found.mean.copy_(torch.from_numpy(mean))
    found.scale.copy_(torch.from_numpy(np.where(np.isinf(scale), 1, scale)))
    found.bias.fill_(_NEVER)
    for place, one in enumerate(present):
        found.weight[one].copy_(torch.from_numpy(np.where(np.isinf(scale), 0, weight[place])))
        found.bias[one] = float(bias[place])
    return found
