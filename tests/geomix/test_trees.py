import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from geomix.errors import InputError
from geomix.learn import trees
from geomix.learn.trees import Trees, fit_boosting, fit_forest, from_boosting, from_forest


def made(rows=200, features=6, classes=3, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(np.int64) + (x[:, 3] > 0.6)
    x[rng.random(x.shape) < missing] = np.nan
    return x, np.minimum(y, classes - 1)


def grown(kind, x, y):
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    if kind == "forest":
        return RandomForestClassifier(20, random_state=0).fit(x, y)
    return HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(x, y)


def small_forest(*args):
    return fit_forest(*args, trees=20)


def small_boosting(*args):
    return fit_boosting(*args, max_iter=10)


ARRAYS = {"forest": from_forest, "boosting": from_boosting}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("missing_then", [0.0, 0.2])
@pytest.mark.parametrize("missing_now", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_probabilities_are_those_of_scikit_learn(kind, missing_now, missing_then, classes):
    model = grown(kind, *made(classes=classes, missing=missing_then))
    x, _ = made(500, seed=1, missing=missing_now)
    found = ARRAYS[kind](model, classes)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_a_value_on_the_threshold_goes_left(kind):
    x = np.repeat(np.float32([[1], [2], [3], [4]]), 30, axis=0)
    y = np.repeat([0, 1, 0, 1], 30)
    model = grown(kind, x, y)
    # Also the neighbours of each threshold among the float32.
    near = np.float32([1.5, 2.5, 3.5])
    asked = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(9))])[
        :, None
    ]
    found = ARRAYS[kind](model, 2)(torch.from_numpy(asked)).numpy()
    np.testing.assert_allclose(found, model.predict_proba(asked), atol=1e-6)


@pytest.mark.parametrize("fit", [small_forest, small_boosting])
def test_a_class_without_rows_gets_no_probability(fit):
    x, y = made()
    found = fit(x, np.where(y == 1, 3, y), 4)(torch.from_numpy(x))
    assert found[:, 1].max() < 1e-30
    torch.testing.assert_close(found.sum(1), torch.ones(len(x)))


@pytest.mark.parametrize("fit", [small_forest, small_boosting])
def test_trees_travel_as_tensors_alone(fit):
    x, y = made(missing=0.1)
    first = fit(x, y, 3)
    second = Trees(first.config)
    second.load_state_dict(load(save(first.state_dict())))
    assert torch.equal(first(torch.from_numpy(x)), second(torch.from_numpy(x)))
    assert all(value.isfinite().all() for value in first.state_dict().values())


@pytest.mark.parametrize("fit", [small_forest, small_boosting])
def test_probabilities_do_not_depend_on_how_many_rows_are_asked_at_once(fit, monkeypatch):
    x, y = made()
    model = fit(x, y, 3)
    whole = model(torch.from_numpy(x))
    monkeypatch.setattr(trees, "_AT_ONCE", 700)
    assert torch.equal(model(torch.from_numpy(x)), whole)
    assert model(torch.zeros(0, 6)).shape == (0, 3)


def test_prediction_needs_no_scikit_learn(monkeypatch):
    x, y = made()
    model = fit_forest(x, y, 3, trees=1)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert model(torch.from_numpy(x)).shape == (200, 3)


def test_wrong_numbers_of_features_rows_and_classes_are_refused():
    x, y = made()
    with pytest.raises(InputError, match=r"take \[N, 6\] features, got \[2, 5\]"):
        fit_forest(x, y, 3, trees=2)(torch.zeros(2, 5))
    with pytest.raises(InputError, match="at least two classes"):
        fit_forest(x, y * 0, 3)
    with pytest.raises(InputError, match="within 0 and 1"):
        fit_boosting(x, y, 2)
    with pytest.raises(InputError, match="199 labels"):
        fit_forest(x, y[1:], 3)
