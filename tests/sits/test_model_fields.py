import numpy as np
import pytest
import torch

from geomix.checkpoint import Card, ClassInfo, load_model, save_model
from geomix.errors import ConfigError
from geomix.learn.trees import fit_forest
from sits.model import build_model
from sits.model.fields import FieldsConfig, FieldsModel, Steps, TreesLearner, steps_of

STEPS = Steps(first=1, count=4, days=10)


def one_pixel(days, numbers, valid=None):
    values = torch.tensor(numbers, dtype=torch.float32)[None, :, None, None, None]
    seen = torch.ones(1, len(days), 1, 1, dtype=torch.bool)
    if valid is not None:
        seen[0, :, 0, 0] = torch.tensor(valid)
    return steps_of(values, torch.tensor(days), seen, STEPS)[0, :, 0, 0, 0].tolist()


def test_a_step_is_the_mean_of_its_dates_and_unseen_steps_lie_on_a_straight_line():
    # Steps cover the days 10-19, 20-29, 30-39 and 40-49; days 5 and 60 lie outside.
    assert one_pixel([5, 10, 19, 45, 60], [9.0, 1, 3, 8, 9]) == [2, 4, 6, 8]


def test_before_the_first_step_seen_and_after_the_last_its_values_go_on():
    assert one_pixel([25], [3.0]) == [3, 3, 3, 3]


def test_dates_that_are_not_valid_do_not_count_and_nothing_seen_is_nan():
    assert one_pixel([10, 12, 45], [1.0, 99, 1], [True, False, True]) == [1, 1, 1, 1]
    assert all(np.isnan(one_pixel([10, 45], [1.0, 2], [False, False])))


def test_steps_of_a_batch_with_days_of_its_own_are_those_of_each_series():
    torch.manual_seed(0)
    values, valid = torch.randn(2, 3, 2, 4, 5), torch.rand(2, 3, 4, 5) > 0.3
    days = torch.tensor([[10, 22, 41], [12, 15, 33]])
    both = steps_of(values, days, valid, STEPS)
    for place in (0, 1):
        alone = steps_of(values[place : place + 1], days[place], valid[place : place + 1], STEPS)
        torch.testing.assert_close(both[place : place + 1], alone, equal_nan=True, rtol=0, atol=0)


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 8)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int64) + (rows[:, 3] > 0.5)
    forests = [fit_forest(rows, labels, 3, seed=seed, trees=9) for seed in (0, 1)]
    learners = tuple(
        TreesLearner(name=name, weight=weight, trees=forest.config)
        for name, weight, forest in zip(("forest", "boosting"), (3, 1), forests, strict=True)
    )
    return FieldsModel(FieldsConfig(bands=2, classes=3, steps=STEPS, learners=learners), forests).eval()


def batch():
    torch.manual_seed(1)
    return torch.randn(1, 5, 2, 6, 7), torch.tensor([11, 15, 24, 33, 47]), torch.rand(1, 5, 6, 7) > 0.2


def test_the_blend_is_the_weighted_mean_of_the_probabilities(model):
    values, days, valid = batch()
    rows = steps_of(values, days, valid, STEPS)[0].flatten(0, 1).permute(1, 2, 0).reshape(-1, 8)
    first, second = (learner(rows) for learner in model.learners)
    truth = (0.75 * first + 0.25 * second).T.reshape(1, 3, 6, 7)
    torch.testing.assert_close(model(values, days, valid).softmax(1), truth, atol=1e-5, rtol=1e-5)


def test_a_pixel_has_the_same_scores_in_every_window(model):
    values, days, valid = batch()
    whole = model(values, days, valid)
    assert torch.equal(model(values[..., 2:5, 1:4], days, valid[..., 2:5, 1:4]), whole[..., 2:5, 1:4])


def test_a_fields_model_travels_as_one_file(model, tmp_path):
    classes = tuple(ClassInfo(id=i, name=str(i), color="#000000") for i in (1, 2, 3))
    card = Card(domain="sits", name="fields", model=model.config.model_dump(mode="json"), classes=classes)
    save_model(model, card, tmp_path / "fields.safetensors")
    again = load_model(tmp_path / "fields.safetensors", domain="sits")
    assert torch.equal(again(*batch()), model(*batch()))


def test_learners_that_all_weigh_nothing_are_refused(model):
    values = model.config.model_dump()
    for learner in values["learners"]:
        learner["weight"] = 0
    with pytest.raises(ConfigError, match="must not all be 0"):
        build_model(values)
