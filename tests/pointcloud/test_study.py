"""The methods of the study differ in what their name says, and have one size."""

from pathlib import Path

import pytest

from geomix.config import load_config
from geomix.learn.study import run_methods
from pointcloud import study
from pointcloud.model import PPoMv3
from pointcloud.task.experiment import PointcloudConfig


@pytest.fixture(scope="module")
def aerial() -> PointcloudConfig:
    return load_config("aerial", "pointcloud", PointcloudConfig)


@pytest.mark.parametrize("method", study.METHODS)
def test_methods_have_one_budget_and_about_one_size(aerial: PointcloudConfig, method: str) -> None:
    config = study.changed(aerial, method, 3)
    assert (config.train.epochs, config.train.val_every) == (3, 3)
    assert config.data == aerial.data
    sizes = [sum(weight.numel() for weight in PPoMv3(one.model).parameters()) for one in (aerial, config)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.06)


def test_methods_change_what_their_names_say(aerial: PointcloudConfig) -> None:
    models = {name: study.changed(aerial, name, 3).model for name in study.METHODS}
    assert [model.encoder_mixer(0, 0)[1] for model in models.values()] == [None, 1024, 4096, 1024]
    assert [model.encoder_mixer(4, 0)[0]["name"] for model in models.values()] == [
        *("pom", "pom", "attention", "attention")
    ]


def test_a_study_trains_and_scores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = load_config("tiny", "pointcloud", PointcloudConfig)
    quick = tiny.model_copy(
        update={
            "data": tiny.data.model_copy(update={"clouds": 3, "size": 14.0, "density": 2.0}),
            "train": tiny.train.model_copy(update={"epoch_steps": 2}),
        }
    )
    names = ("PPoMv3, whole scan", "PTv3 attention")
    monkeypatch.setattr(study, "METHODS", {name: study.METHODS[name] for name in names})
    trials = run_methods(study.methods(tmp_path, epochs=1, config=quick), tmp_path / "work", seeds=1)
    assert [trial.method for trial in trials] == [*names, study.FOREST]
    for trial in trials:
        assert set(study.KEYS) <= set(trial.figures)
        assert 0 <= trial.figures["miou"] <= 1
