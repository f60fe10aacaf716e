"""Training end to end on made-up towns, and scores against a count by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from geomix.checkpoint import load_model, read_card
from geomix.config import load_config
from geomix.errors import ConfigError, InputError, NonFiniteError
from geomix.learn.experiment import evaluate, train
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, LABEL, Inputs, LabelledCloud, count_classes
from pointcloud.data.augment import views
from pointcloud.model import PPoMv3
from pointcloud.predict.probabilities import probabilities
from pointcloud.synthetic import town
from pointcloud.task.experiment import PointcloudConfig, PointcloudExperiment
from pointcloud.task.scoring import official_mean, score
from pointcloud.task.training import PointcloudTask


@pytest.fixture(scope="module")
def quick() -> PointcloudConfig:
    """The tiny configuration, cut down to seconds."""
    tiny = load_config("tiny", "pointcloud", PointcloudConfig)
    return tiny.model_copy(
        update={
            "data": tiny.data.model_copy(update={"clouds": 3, "size": 14.0, "density": 2.0}),
            "train": tiny.train.model_copy(update={"epochs": 2, "epoch_steps": 3, "ema": 0.9}),
        }
    )


@pytest.fixture(scope="module")
def trained(quick: PointcloudConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(PointcloudExperiment(quick), tmp_path_factory.mktemp("run"), device="cpu")


class ByHeight(nn.Module):
    """A stand-in: class 1 where the first feature is above 0, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, grid_coord: Tensor, feat: Tensor, *, memory: int | None = None) -> Tensor:
        high = (feat[:, :1] > 0).float() * 10
        return torch.cat([10 - high, high, torch.zeros_like(high)], dim=1)

    def memory_estimate(self, voxels: int) -> int:
        return 12 * voxels


def test_training_ends_in_a_model_that_evaluates_as_its_card_says(trained: Path) -> None:
    model = load_model(trained, domain="pointcloud")
    card = read_card(trained)
    assert set(card.metrics) == {"val", "test"}
    for split in ("val", "test"):
        found = evaluate(PointcloudExperiment, model, split=split)
        assert found["miou"] == pytest.approx(card.metrics[split]["miou"])
        assert set(found) == set(card.metrics[split])
    assert [one.id for one in card.classes or ()] == [2, 3, 4, 5, 6]
    assert evaluate(PointcloudExperiment, model, split="all")["points"] > found["points"]


def test_a_run_goes_on_where_it_stopped(quick: PointcloudConfig, trained: Path, tmp_path: Path) -> None:
    # Cut short by the clock: fewer epochs would be another schedule.
    train(PointcloudExperiment(quick), tmp_path, max_minutes=1e-9, device="cpu")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1
    resumed = train(PointcloudExperiment(quick), tmp_path, resume=True, device="cpu")
    weights, expected = load_file(resumed), load_file(trained)
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert read_card(resumed) == read_card(trained)


def test_scores_count_every_point_by_hand() -> None:
    # Two points share a voxel: both get its class, whatever their own.
    cloud = Cloud.from_arrays(
        [[0, 0, 0], [0.1, 0, 0], [5, 0, 0], [9, 0, 0]],
        intensity=np.array([1.0, 1.0, 0.0, 0.0]),
        label=np.array([1, 0, 0, IGNORE]),
    )
    inputs = Inputs(voxel=1.0, features=("intensity",), intensity="file")
    found = score(ByHeight(), [LabelledCloud("x", lambda: cloud)], inputs)
    assert found["points"] == 3
    assert found["oa"] == pytest.approx(2 / 3)
    assert found["iou"][:2] == [0.5, 0.5]
    assert np.isnan(found["iou"][2])
    assert found["miou"] == pytest.approx(0.5)
    assert found["miou_official"] == pytest.approx(1 / 3)


def test_the_official_mean_counts_absent_classes_as_zero() -> None:
    assert official_mean(torch.tensor([[5, 0, 0], [0, 0, 0], [0, 0, 5]])) == pytest.approx(2 / 3)


def test_views_are_averaged_per_point(trained: Path) -> None:
    model = load_model(trained)
    cloud = town(5, size=10, density=2)
    inputs = Inputs(**model.card.inputs)  # type: ignore[union-attr, arg-type]
    each = [probabilities(model, view(cloud), inputs) for view in views()]
    together = probabilities(model, cloud, inputs, views())
    torch.testing.assert_close(together, torch.stack(each).mean(0))
    torch.testing.assert_close(together.sum(1), torch.ones(len(cloud)))


def test_labelled_points_are_counted_by_class() -> None:
    labels = {LABEL: [0] * 9 + [1, IGNORE, 1]}
    clouds = [LabelledCloud("x", lambda: Cloud.from_arrays(np.zeros((12, 3)), **labels))] * 2
    assert count_classes(clouds, 3).tolist() == [18, 4, 0]


def test_a_loss_that_is_not_finite_names_the_clouds(quick: PointcloudConfig) -> None:
    task = PointcloudTask(PPoMv3(quick.model), quick.train)
    from pointcloud.data import Whole, collate, open_splits

    batch = collate([Whole(open_splits(quick.data, None, (2, 3, 4, 5, 6)).train, quick.inputs)[0]])
    task.model.head.weight.data.fill_(float("nan"))
    task._trainer = type("Trainer", (), {"current_epoch": 0})()
    with pytest.raises(NonFiniteError, match="town 0"):
        task.training_step(batch, 3)


def test_a_card_without_its_division_cannot_be_evaluated(trained: Path) -> None:
    model = load_model(trained)
    object.__setattr__(model, "card", model.card.model_copy(update={"data": ()}))  # type: ignore[union-attr, operator]
    with pytest.raises(InputError, match="how its data are divided"):
        evaluate(PointcloudExperiment, model)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"in_channels": 3}, "features of inputs have 15"), ({"classes": 4}, "classes lists 5")],
    ids=str,
)
def test_experiments_that_contradict_themselves_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    import yaml

    from geomix.config import find_config

    values = yaml.safe_load(find_config("tiny", "pointcloud").read_text())
    values["model"].update(change)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "bad.yaml", "pointcloud", PointcloudConfig)
