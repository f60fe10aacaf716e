"""Training and evaluation: what is scored, what the card says, that a resumed run ends alike."""

import json
from datetime import date

import numpy as np
import pytest
import torch
from affine import Affine
from safetensors.torch import load_file
from torch import nn

from geomix.checkpoint import Card, ClassInfo, give_card, load_model, read_card
from geomix.config import load_config
from geomix.errors import InputError
from geomix.learn.experiment import evaluate, train
from sits.data import IGNORE, LabelledSeries, collate
from sits.data.inputs import Inputs
from sits.grid import Grid, Window
from sits.io.options import ReadOptions
from sits.model import TSViPoM
from sits.predict import Scorer
from sits.series import TimeSeries
from sits.task import SitsConfig, SitsExperiment, SitsTask, score, score_by_month

INPUTS = Inputs(bands=("B2",), mean=(0.0,), std=(1.0,))


def config(**changes):
    values = load_config("tiny", "sits", SitsConfig).model_dump()
    values["data"] |= {"patches": 5, "size": 16, "dates": 5}
    values["model"] |= {
        "dim": 8,
        "temporal": {"depth": 1, "mlp_ratio": 1},
        "spatial": {"depth": 1, "mlp_ratio": 1},
    }
    values["crop"] = 8
    values["train"] |= {"epochs": 2, "epoch_steps": 2, "batch_size": 2} | changes
    return SitsConfig.model_validate(values)


class Reads(nn.Module):
    """Calls each pixel by the value of its last valid date."""

    patch, halo = 1, 0

    def __init__(self, classes=3):
        super().__init__()
        self.classes = classes
        named = tuple(ClassInfo(id=code, name=str(code), color="#000000") for code in range(classes))
        inputs = INPUTS.model_dump()
        give_card(self, Card(domain="sits", name="reads", model={}, classes=named, inputs=inputs))

    def forward(self, values, days, valid, origin):
        last = torch.where(valid, days.view(1, -1, 1, 1), -1).argmax(1, keepdim=True)
        said = values[:, :, 0].gather(1, last)[:, 0].round().long()
        return nn.functional.one_hot(said.clamp(0, self.classes - 1), self.classes).movedim(-1, 1).float()


def series(said, labels, valid=None):
    said = np.asarray(said, dtype=np.float32)[:, None]
    labels = np.asarray(labels)
    seen = np.ones((len(said), *labels.shape), dtype=bool) if valid is None else np.asarray(valid)

    dates = tuple(date(2019, 1 + 2 * step, 15) for step in range(len(said)))
    nowhere = Grid(None, Affine.identity(), *labels.shape)
    return LabelledSeries(TimeSeries.from_arrays(said, dates, ("B2",), nowhere, seen), labels)


def test_scores_pool_the_pixels_of_all_series():
    one = series([[[0, 0, 0, 1]]], [[0, 0, 1, 1]])
    two = series([[[1, 1]]], [[1, IGNORE]])
    found = score(Scorer(Reads()), [one, two])
    assert found["pixels"] == 5
    assert found["oa"] == pytest.approx(4 / 5)
    assert found["iou"][:2] == pytest.approx([2 / 3, 2 / 3])
    assert np.isnan(found["iou"][2])
    assert found["miou"] == pytest.approx(2 / 3)


def test_a_pixel_that_no_date_shows_does_not_count():
    seen = series([[[0, 1]]], [[0, 0]], valid=[[[True, False]]])
    found = score(Scorer(Reads()), [seen])
    assert (found["pixels"], found["oa"]) == (1, 1.0)


def test_scores_by_month_show_what_is_known_by_then():
    grows = series([[[0, 1]], [[0, 1]], [[2, 1]]], [[2, 1]])
    months = score_by_month(Scorer(Reads()), [grows])
    assert list(months) == ["2019-01", "2019-02", "2019-03", "2019-04", "2019-05"]
    assert [months[key]["oa"] for key in months] == [0.5, 0.5, 0.5, 0.5, 1.0]


def test_nothing_to_score_is_an_error():
    with pytest.raises(InputError, match="nothing to score"):
        score(Scorer(Reads()), [])


def test_the_loss_ignores_void_and_unseen_pixels_and_weighs_classes():
    torch.manual_seed(0)
    small = config()
    task = SitsTask(TSViPoM(small.model), small.train, 10, torch.arange(10.0))
    values = torch.randn(1, 3, 10, 8, 8)
    valid = torch.ones(1, 3, 8, 8, dtype=torch.bool)
    valid[..., :2, :2] = False
    labels = torch.randint(0, 10, (1, 8, 8))
    labels[0, 7] = IGNORE
    days = torch.tensor([[1, 2, 3]])
    from sits.data import Batch

    loss = task.loss(Batch(values, valid, days, labels, ("x",)))
    logits = task.model(values, days, valid)
    kept = (labels != IGNORE) & valid.any(1)
    each = nn.functional.cross_entropy(logits.movedim(1, -1)[kept], labels[kept], weight=torch.arange(10.0))
    assert loss.item() == pytest.approx(each.item(), rel=1e-5)
    empty = task.loss(Batch(values, valid, days, torch.full_like(labels, IGNORE), ("x",)))
    assert empty.item() == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    return run, train(SitsExperiment(config()), run, device="cpu")


def test_evaluation_repeats_the_numbers_of_the_card(trained):
    _, file = trained
    model = load_model(file, domain="sits")
    metrics = json.loads(read_card(file).model_dump_json())["metrics"]
    for split in ("val", "test"):
        found = evaluate(SitsExperiment, model, split=split)
        assert set(found) == set(metrics[split])
        assert found["oa"] == pytest.approx(metrics[split]["oa"], abs=1e-9)
        assert found["miou"] == pytest.approx(metrics[split]["miou"], abs=1e-9)


def test_the_card_holds_the_whole_preprocessing(trained):
    _, file = trained
    card = read_card(file)
    assert len(card.inputs["mean"]) == len(card.inputs["std"]) == 10
    assert card.inputs["patch"] == 2
    assert card.inputs["reach"] == 1 * 2 * 2 + 1  # one block of five patches, and the pixel's own patch
    assert [one.name for one in card.classes][:2] == ["Background", "Meadow"]
    assert card.data[0].split["kind"] == "synthetic"
    first, last = card.limits["dates"]
    assert first < last


def test_evaluation_can_report_months(trained):
    _, file = trained
    found = evaluate(SitsExperiment, load_model(file), split="test", by_month=True)
    assert found["by_month"][max(found["by_month"])]["oa"] == pytest.approx(found["oa"])


def test_an_interrupted_run_ends_with_the_same_bits(trained, tmp_path):
    _, straight = trained
    short = config()
    halted = train(SitsExperiment(short), tmp_path, max_minutes=1e-9, device="cpu")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1
    assert halted.exists()
    resumed = load_file(train(SitsExperiment(short), tmp_path, resume=True, device="cpu"))
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == short.train.epochs
    expected = load_file(straight)
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)


def test_training_data_are_what_prediction_is_fed(trained):
    from sits.data import open_splits
    from sits.data.inputs import days_of, prepare

    run, file = trained
    card = read_card(file)
    inputs = Inputs.of_card(card.inputs)
    small = config()
    one = open_splits(small.data, run / "synthetic", inputs, small.classes).test[0]
    batch = collate([one.sample(Window(0, 0, 8, 8), inputs)])
    values, valid = one.series.read(Window(0, 0, 8, 8))
    assert torch.equal(batch.values[0], torch.from_numpy(prepare(values, valid, inputs)))
    assert batch.days[0].tolist() == days_of(one.dates, inputs).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crop": 20, "model.tile": 24}, "multiple of model.tile"),
        ({"model.bands": 3}, "model.bands is 3"),
        ({"model.classes": 3}, "model.classes is 3"),
        ({"model.day_code": "table"}, "days: year"),
    ],
)
def test_a_contradicting_experiment_says_why(changes, message):
    values = config().model_dump()
    for key, value in changes.items():
        *way, last = key.split(".")
        place = values
        for step in way:
            place = place[step]
        place[last] = value
    with pytest.raises(ValueError, match=message):
        SitsConfig.model_validate(values)


def test_a_training_reads_images_as_the_user_says():
    scene = SitsExperiment("eolearn", ReadOptions(scale=1.0, bands="B2,B3"))
    assert scene.config.data.reading == ReadOptions(scale=1.0, bands="B2,B3")
    with pytest.raises(InputError, match="kind synthetic are read in one way"):
        SitsExperiment(config(), ReadOptions(scale=1.0))


def test_a_training_that_starts_from_a_model_prepares_the_bands_as_that_did(trained, tmp_path):
    run, file = trained
    start = load_model(file)
    fewer = config().changed({"classes": config().classes[:9], "model.classes": 9})
    experiment = SitsExperiment(fewer)
    splits = SitsExperiment(config()).open(run / "synthetic", tmp_path, start)
    assert list(splits.inputs.mean) == start.card.inputs["mean"]
    model = experiment.build(splits, start)
    assert torch.equal(model.class_tokens, start.class_tokens[:9])
    assert torch.equal(model.embed.weight, start.embed.weight)
