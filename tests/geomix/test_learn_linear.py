import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from geomix.errors import InputError
from geomix.learn.linear import fit_discriminant


def clouds(classes, each=12, features=30, seed=0):
    """Samples about one centre per class, fewer than features."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    return rng.normal(size=(classes, features))[labels] + rng.normal(size=(len(labels), features)), labels


@pytest.mark.parametrize("classes", [2, 4])
def test_the_probabilities_are_those_of_scikit_learn(classes):
    rows, labels = clouds(classes)
    rows = rows * np.linspace(0.01, 100, rows.shape[1]) + 5
    scaled = (rows - rows.mean(0)) / rows.std(0)
    truth = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(scaled, labels)
    found = fit_discriminant(rows, labels, classes)(torch.from_numpy(rows))
    np.testing.assert_allclose(found.numpy(), truth.predict_proba(scaled), atol=1e-4)


def test_a_class_without_a_row_is_never_the_answer():
    rows, labels = clouds(2)
    found = fit_discriminant(rows, labels * 2, 3)(torch.from_numpy(rows))
    assert found.shape == (24, 3)
    assert found[:, 1].max() < 1e-20


def test_a_missing_feature_counts_as_its_mean():
    rows, labels = clouds(3)
    head = fit_discriminant(rows, labels, 3)
    one = torch.from_numpy(rows[:1].copy())
    whole = one.clone()
    one[0, 4], whole[0, 4] = torch.nan, rows[:, 4].mean()
    torch.testing.assert_close(head(one), head(whole), atol=1e-5, rtol=0)


def test_a_feature_that_never_changed_has_no_say():
    rows, labels = clouds(3)
    rows[:, 7] = 2.0
    head = fit_discriminant(rows, labels, 3)
    other = torch.from_numpy(rows.copy())
    other[:, 7] = 1e6
    torch.testing.assert_close(head(other), head(torch.from_numpy(rows)))


def test_labels_that_cannot_be_learned_are_refused():
    rows, labels = clouds(2)
    with pytest.raises(InputError, match="at least two classes, got 1"):
        fit_discriminant(rows, labels * 0, 2)
    with pytest.raises(InputError, match="within 0 and 1, got 0 to 3"):
        fit_discriminant(rows, labels * 3, 2)
    with pytest.raises(InputError, match="24 rows of features, but 23 labels"):
        fit_discriminant(rows, labels[1:], 2)
    with pytest.raises(InputError, match=r"takes \[N, 30\] features"):
        fit_discriminant(rows, labels, 2)(torch.zeros(1, 29))
