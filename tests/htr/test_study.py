"""The methods of the study differ in what their name says, and have one size."""

import pytest

from geomix.config import load_config
from geomix.learn.study import run_methods
from htr import study
from htr.model.network import LineRecogniser
from htr.task.experiment import HtrConfig


@pytest.fixture(scope="module")
def small():
    return load_config("small", "htr", HtrConfig)


@pytest.mark.parametrize("method", study.METHODS)
def test_methods_have_one_budget_and_about_one_size(small, method):
    config = study.changed(small, method, 3)
    assert (config.train.epochs, config.train.batch_size) == (3, small.train.batch_size)
    assert config.data.weights == {}
    sizes = [
        sum(weight.numel() for weight in LineRecogniser(one.model).parameters()) for one in (small, config)
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_methods_change_what_their_names_say(small):
    models = {name: study.changed(small, name, 3) for name in study.METHODS}
    assert models["attention"].model.mixer == study.ATTENTION
    assert [mixer["name"] for mixer in models["hybrid"].model.mixer] == ["attention", "pom"] * 2
    assert models["PoM, no convolution"].model.local == 0
    pages = models["PoM, pages of 4 lines"]
    assert (pages.data.page_lines, pages.model.context) == (4, "page")


def test_a_study_trains_and_scores(monkeypatch, tmp_path):
    tiny = load_config("tiny", "htr", HtrConfig)
    tiny = tiny.model_copy(update={"data": tiny.data.model_copy(update={"synthetic": 40})})
    names = ("PoM", "PoM, pages of 4 lines")
    monkeypatch.setattr(study, "METHODS", {name: study.METHODS[name] for name in names})
    trials = run_methods(study.methods(None, epochs=1, config=tiny), tmp_path, 1)
    assert [trial.method for trial in trials] == list(names)
    for trial in trials:
        assert set(study.KEYS) < set(trial.figures)
        assert trial.figures["parameters"] > 1000
