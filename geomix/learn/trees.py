"""Random forests and gradient-boosted trees as plain arrays, grown by scikit-learn and evaluated here.

The arrays travel inside a .safetensors file: no pickle is read, and scikit-learn is not needed to predict.
The probabilities are those of scikit-learn's `predict_proba`.

Sources: Breiman 2001, Random Forests; Ke et al. 2017, LightGBM, as scikit-learn's
`HistGradientBoostingClassifier` has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.config import Config
from geomix.errors import InputError

Features = NDArray[np.float32]
Labels = NDArray[np.int64]

_AT_ONCE = 1 << 18
"""Pairs of a row and a tree that are worked on at a time: few enough for the caches."""
_STEPS = 4
"""Steps after which the rows that have reached a leaf are put aside."""
_NEVER = -100.0
"""Score of a class that no row had: its probability is 4e-44, and files hold finite numbers only."""


class TreesConfig(Config):
    """The sizes of the arrays, from which an empty `Trees` is built before a file fills it."""

    kind: Literal["forest", "boosting"]
    """A forest averages the shares in its leaves; boosting adds up scores, of which softmax is taken."""
    features: int
    classes: int
    trees: int
    nodes: int
    leaves: int
    depth: int
    """Splits on the longest way from a root to a leaf."""


class Trees(nn.Module):
    """Decision trees in one set of arrays; a row goes left where its feature is at most the threshold.

    The right child of a node follows the left one, and a leaf is its own child, so that all rows take the
    same number of steps through all trees.
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    missing_right: Tensor
    leaf: Tensor
    value: Tensor
    root: Tensor
    target: Tensor
    base: Tensor

    def __init__(self, config: TreesConfig) -> None:
        super().__init__()
        self.config = config
        nodes, width = config.nodes, config.classes if config.kind == "forest" else 1
        self.register_buffer("feature", torch.zeros(nodes, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(nodes))
        self.register_buffer("left", torch.zeros(nodes, dtype=torch.int32))
        self.register_buffer("missing_right", torch.zeros(nodes, dtype=torch.bool))
        self.register_buffer("leaf", torch.zeros(nodes, dtype=torch.int32))
        self.register_buffer("value", torch.zeros(config.leaves, width))
        self.register_buffer("root", torch.zeros(config.trees, dtype=torch.int32))
        # Of boosting: the class whose score a tree adds to, and where the scores start.
        self.register_buffer("target", torch.zeros(config.trees, dtype=torch.int32))
        self.register_buffer("base", torch.zeros(config.classes))

    def forward(self, rows: Tensor) -> Tensor:
        """The probability of each class.

        Args:
            rows: features, float32, [N, F]; NaN where one is missing.

        Returns:
            Float32, [N, K]; the sum of each row is 1.

        Raises:
            InputError: if the number of features is another one.
        """
        if rows.ndim != 2 or rows.shape[1] != self.config.features:
            raise InputError(f"the trees take [N, {self.config.features}] features, got {list(rows.shape)}")
        size, rows = max(1, _AT_ONCE // self.config.trees), rows.float()
        parts = [self._part(rows[start : start + size]) for start in range(0, len(rows), size)]
        return torch.cat(parts) if parts else rows.new_zeros(0, self.config.classes)

    def _part(self, rows: Tensor) -> Tensor:
        found = self.value[self.leaf[self._walk(rows)].long()].double()
        if self.config.kind == "forest":
            return found.mean(dim=0).float()
        scores = self.base.double().repeat(len(rows), 1)
        scores.index_add_(1, self.target.long(), found[..., 0].T)
        return scores.softmax(dim=1).float()

    def _walk(self, rows: Tensor) -> Tensor:
        """The leaf node of each row in each tree, [T, N]."""
        number, width = rows.shape
        flat, missing = rows.reshape(-1), bool(rows.isnan().any())
        # Tree after tree, so that the nodes of one stay in the cache.
        found = self.root.repeat_interleave(number).clone(memory_format=torch.contiguous_format)
        pair = torch.arange(len(found), device=rows.device)
        node, first = found, (pair % number * width).int()
        for step in range(self.config.depth):
            value = flat.index_select(0, first + self.feature.index_select(0, node))
            right = value > self.threshold.index_select(0, node)
            if missing:
                right |= value.isnan() & self.missing_right.index_select(0, node)
            node = self.left.index_select(0, node) + right
            if step % _STEPS == _STEPS - 1:
                # Most ways are far shorter than the longest: who has arrived walks no further.
                found[pair] = node
                inner = (self.left.index_select(0, node) != node).nonzero()[:, 0]
                pair, node, first = pair[inner], node[inner], first[inner]
        found[pair] = node
        return found.reshape(-1, number)


def fit_forest(
    rows: Features, labels: Labels, classes: int, seed: int = 0, trees: int = 200, **options: Any
) -> Trees:
    """Grow a random forest (`RandomForestClassifier`).

    Args:
        rows: features, float32, [N, F]; NaN where one is missing.
        labels: class numbers from 0, [N].
        classes: how many classes there are, also where some have no row.
        seed: the same seed grows the same forest.
        trees: how many.
        options: further arguments of `RandomForestClassifier`.

    Returns:
        The forest.

    Raises:
        InputError: if there are fewer than two classes among the labels, or one is out of range.
    """
    from sklearn.ensemble import RandomForestClassifier

    _check(rows, labels, classes)
    grown = RandomForestClassifier(n_estimators=trees, random_state=seed, **options).fit(rows, labels)
    return from_forest(grown, classes)


def fit_boosting(rows: Features, labels: Labels, classes: int, seed: int = 0, **options: Any) -> Trees:
    """Grow gradient-boosted trees (`HistGradientBoostingClassifier`).

    Arguments and errors as in `fit_forest`; further arguments go to the estimator.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    _check(rows, labels, classes)
    grown = HistGradientBoostingClassifier(random_state=seed, **options).fit(rows, labels)
    return from_boosting(grown, classes)


def from_forest(grown: Any, classes: int) -> Trees:
    """The arrays of a fitted `RandomForestClassifier` or `ExtraTreesClassifier` whose labels are numbers."""
    columns = np.asarray(grown.classes_, dtype=np.int64)
    parts = []
    for one in grown.estimators_:
        tree = one.tree_
        shares = np.zeros((tree.node_count, classes))
        shares[:, columns] = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
        parts.append(
            _Tree(
                tree.feature,
                tree.threshold,
                tree.children_left,
                tree.children_right,
                tree.missing_go_to_left.astype(bool),
                tree.children_left < 0,
                shares,
            )
        )
    return _joined("forest", parts, grown.n_features_in_, classes)


def from_boosting(grown: Any, classes: int) -> Trees:
    """The arrays of a fitted `HistGradientBoostingClassifier` without categorical features."""
    columns = np.asarray(grown.classes_, dtype=np.int64)
    # Two classes share one score, that of the second.
    targets = columns if len(columns) > 2 else columns[1:]
    parts, found = [], []
    for stage in grown._predictors:
        for target, predictor in zip(targets, stage, strict=True):
            nodes = predictor.nodes
            leaf = nodes["is_leaf"].astype(bool)
            parts.append(
                _Tree(
                    nodes["feature_idx"],
                    nodes["num_threshold"],
                    nodes["left"].astype(np.int64),
                    nodes["right"].astype(np.int64),
                    nodes["missing_go_to_left"].astype(bool),
                    leaf,
                    nodes["value"][:, None],
                )
            )
            found.append(target)
    trees = _joined("boosting", parts, grown.n_features_in_, classes)
    base = np.full(classes, _NEVER)
    base[columns] = 0.0
    base[targets] = np.ravel(grown._baseline_prediction)
    trees.base.copy_(torch.from_numpy(base))
    trees.target.copy_(torch.tensor(found))
    return trees


@dataclass(frozen=True)
class _Tree:
    """One tree as scikit-learn numbers its nodes, the root first."""

    feature: NDArray[np.integer[Any]]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    missing_left: NDArray[np.bool_]
    leaf: NDArray[np.bool_]
    value: NDArray[np.float64]

    def order(self) -> tuple[NDArray[np.int64], int]:
        """The nodes level by level, siblings side by side, and the number of levels below the root."""
        levels = [np.zeros(1, dtype=np.int64)]
        while len(inner := levels[-1][~self.leaf[levels[-1]]]):
            levels.append(np.stack([self.left[inner], self.right[inner]], axis=1).ravel())
        return np.concatenate(levels), len(levels) - 1


def _joined(
    kind: Literal["forest", "boosting"], parts: Sequence[_Tree], features: int, classes: int
) -> Trees:
    """All trees in one set of arrays."""
    arrays: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "missing_right", "leaf", "value", "root")
    }
    nodes = leaves = depth = 0
    for one in parts:
        order, levels = one.order()
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        leaf = one.leaf[order]
        children = np.where(leaf, np.arange(len(order)), places[np.where(leaf, 0, one.left[order])])
        arrays["feature"].append(np.where(leaf, 0, one.feature[order]))
        arrays["threshold"].append(np.where(leaf, np.inf, one.threshold[order]))
        arrays["left"].append(children + nodes)
        arrays["missing_right"].append(~leaf & ~one.missing_left[order])
        arrays["leaf"].append(np.where(leaf, np.cumsum(leaf) - 1 + leaves, 0))
        arrays["value"].append(one.value[order][leaf])
        arrays["root"].append(np.array([nodes]))
        nodes, leaves, depth = nodes + len(order), leaves + int(leaf.sum()), max(depth, levels)
    trees = Trees(
        TreesConfig(
            kind=kind,
            features=features,
            classes=classes,
            trees=len(parts),
            nodes=nodes,
            leaves=leaves,
            depth=depth,
        )
    )
    for name, values in arrays.items():
        whole = np.concatenate(values)
        whole = _rounded_down(whole) if name == "threshold" else whole
        getattr(trees, name).copy_(torch.from_numpy(whole))
    return trees


def _rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The greatest float32 at most each threshold: for float32 features the comparison is the same."""
    limits = np.finfo(np.float32)
    near = np.clip(thresholds, limits.min, limits.max).astype(np.float32)
    above = near > thresholds
    near[above] = np.nextafter(near[above], np.float32(-np.inf))
    return near


def _check(rows: Features, labels: Labels, classes: int) -> None:
    if len(rows) != len(labels):
        raise InputError(f"{len(rows)} rows of features, but {len(labels)} labels")
    found = np.unique(labels)
    if len(found) < 2:
        raise InputError(f"trees need rows of at least two classes, got {len(found)}")
    if found[0] < 0 or found[-1] >= classes:
        raise InputError(f"labels must lie within 0 and {classes - 1}, got {found[0]} to {found[-1]}")
