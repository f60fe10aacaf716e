"""The models that ship: they do what their cards say, and need the dates."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from geomix.checkpoint import bundled_models, load_model
from geomix.learn.experiment import evaluate
from sits.data import open_splits
from sits.data.inputs import Inputs
from sits.data.sources import SyntheticData
from sits.predict import Scorer
from sits.task import SitsExperiment, score
from tests.helpers import shared_data

REAL = {"eolearn-demo": "sits/derived", "parcels-demo": "sits/worldcereal"}


@pytest.fixture(scope="module")
def farmland(tmp_path_factory):
    """Patches that no model has seen: another seed than that of training."""
    model = load_model("synthetic-demo", domain="sits")
    inputs = Inputs.of_card(model.card.inputs)
    data = SyntheticData(patches=10, size=64, dates=24, seed=77)
    splits = open_splits(data, None, inputs, model.card.classes, tmp_path_factory.mktemp("farmland"))
    return Scorer(model), splits.of("all")[:4]


def shuffled(one, seed):
    """The same images in another order, under the same dates."""
    order = np.random.default_rng(seed).permutation(len(one.dates))
    series = replace(one.series, steps=tuple(order.tolist()))
    return replace(one, series=series)


def test_the_farmland_needs_time(farmland):
    scorer, series = farmland
    right = score(scorer, series)["miou"]
    wrong = score(scorer, [shuffled(one, number) for number, one in enumerate(series)])["miou"]
    assert right > 0.6
    assert right - wrong > 0.1


def test_accuracy_grows_through_the_season(farmland):
    scorer, series = farmland
    ends = [one.dates[len(one.dates) // part - 1] for part in (4, 2, 1) for one in series[:1]]
    found = [score(scorer, series, until=end)["oa"] for end in ends]
    assert all(later > earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize("name", [name for name, _ in bundled_models("sits") if name in REAL])
def test_models_of_real_data_reproduce_their_cards(name):
    folder = shared_data(REAL[name])
    model = load_model(name, domain="sits")
    found = evaluate(SitsExperiment, model, folder, "test")
    card = model.card.metrics["test"]
    assert set(found) == set(card)
    assert found["oa"] == pytest.approx(card["oa"], abs=1e-3)
    assert found["miou"] == pytest.approx(card["miou"], abs=1e-3)


def test_models_are_small_and_say_what_they_are_for():
    for name, file in bundled_models("sits"):
        model = load_model(name, domain="sits")
        assert file.stat().st_size < 4 * 2**20
        assert model.card.limits
        assert model.card.data[0].licence not in ("", "unknown")
