import json

import pytest
import torch
import yaml
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from geomix.checkpoint import ClassInfo, card_of, load_model, read_card
from geomix.config import Config
from geomix.errors import CheckpointError, ConfigError, InputError, OutputExistsError
from geomix.learn import experiment as spine
from geomix.learn.batches import SampleData
from geomix.learn.config import ExperimentConfig
from geomix.learn.experiment import Experiment, division, evaluate, train
from geomix.learn.metrics import confusion, scores
from geomix.learn.splits import Splits
from geomix.learn.start import take_weights
from geomix.learn.study import train_once
from geomix.learn.task import SegmentationTask, class_weights
from geomix.learn.verbs import evaluate_verb, train_verb
from geomix.options import EvaluateOptions, TrainOptions

CLASSES = tuple(ClassInfo(id=i, name=name, color="#000000") for i, name in enumerate(("left", "right")))


class Shape(Config):
    classes: int = 2


class Numbers(Config):
    kind: str = "numbers"
    size: int = 12


class TinyConfig(ExperimentConfig):
    model: Shape = Shape()
    data: Numbers = Numbers()


class Line(nn.Linear):
    def __init__(self, config):
        super().__init__(1, config.classes)
        self.config = config


class TinyTask(SegmentationTask):
    def loss(self, batch):
        return cross_entropy(self.model(batch[0]), batch[1])

    def judge(self, batch):
        self.matrix += confusion(self.served(batch[0]).argmax(1), batch[1], 2)

    def describe(self, batch):
        return ""


class Drawn(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number % len(self.items)]


def collate(items):
    return torch.tensor([[x] for x, _ in items]), torch.tensor([y for _, y in items])


class Tiny(Experiment[TinyConfig, Splits]):
    """Whether a number is positive."""

    domain = "sits"
    kind = TinyConfig

    def open(self, data, folder, start):
        return self._divide(self.config.data.size)

    def build(self, splits, start):
        model = Line(self.config.model)
        if start is not None:
            names = [one.name for one in CLASSES]
            take_weights(model, start, names, names, {"weight": 0, "bias": 0})
        return model

    def task(self, model, splits):
        return TinyTask(model, self.config.train, 2)

    def batches(self, splits):
        return SampleData(Drawn(splits.train), Drawn(splits.val), collate, per_epoch=8, batch_size=4)

    def describe(self, splits):
        return {"classes": CLASSES, "inputs": {"unit": "none"}, "limits": {"numbers": len(splits.train)}}

    @classmethod
    def reopen(cls, card, data, scratch):
        return cls._divide(Numbers(**division(card)).size)

    @classmethod
    def score(cls, model, splits, split, **options):
        x, y = collate(splits.of(split))
        with torch.inference_mode():
            found = model(x).argmax(1)
        return {**scores(confusion(found, y, 2)), **options}

    @staticmethod
    def _divide(size):
        items = [(float(x), int(x > 0)) for x in torch.linspace(-1, 1, size).tolist()]
        return Splits(items[::2], items[1::4], items[3::4])


def config(**changes):
    loop = {"epochs": 2, "batch_size": 4, "learning_rate": 0.1}
    return TinyConfig(name="tiny", train=loop).changed(changes)


@pytest.fixture
def built(monkeypatch):
    """Let model files of the made-up experiment load like those of a domain."""
    room = type("Room", (), {"build_model": staticmethod(lambda values: Line(Shape(**values)))})
    monkeypatch.setattr("geomix.checkpoint.room", lambda domain, name: room)


@pytest.mark.usefixtures("built")
def test_evaluate_repeats_the_scores_of_the_card(tmp_path):
    file = train(Tiny(config()), tmp_path)
    card = read_card(file)
    assert [*card.metrics] == ["val", "test"]
    for split in card.metrics:
        assert evaluate(Tiny, load_model(file), split=split) == card.metrics[split]
    assert card.limits == {"numbers": 6}
    assert card.data[0].split == {"kind": "numbers", "size": 12}


@pytest.mark.usefixtures("built")
def test_the_run_folder_holds_the_configuration_that_trains_the_same_model_again(tmp_path):
    file = train(Tiny(config(**{"train.ema": 0.5})), tmp_path / "a")
    resolved = tmp_path / "a" / "config.yaml"
    assert yaml.safe_load(resolved.read_text())["train"]["weight_decay"] == 0.05
    again = train(Tiny(resolved), tmp_path / "b")
    assert read_card(again) == read_card(file)
    assert torch.equal(load_model(again).weight, load_model(file).weight)


def test_a_second_run_in_a_folder_is_refused_before_the_data_are_opened(tmp_path, monkeypatch):
    (tmp_path / "last.ckpt").write_bytes(b"")
    (tmp_path / "config.yaml").write_text("that of the first run")
    monkeypatch.setattr(Tiny, "open", None)
    with pytest.raises(OutputExistsError, match="holds a run already"):
        train(Tiny(config()), tmp_path)
    assert (tmp_path / "config.yaml").read_text() == "that of the first run"


@pytest.mark.usefixtures("built")
def test_a_training_starts_where_the_caller_says_or_else_where_the_configuration_says(tmp_path, monkeypatch):
    first = train(Tiny(config()), tmp_path / "first")
    starts = []
    monkeypatch.setattr(spine, "fit", lambda task, *_: starts.append(task.model.weight.detach().clone()))
    monkeypatch.setattr(spine, "restore", lambda *_: None)
    trained = load_model(first).weight
    for number, (configured, given, same) in enumerate(
        [(None, None, False), (str(first), None, True), (None, first, True), (str(first), "none", False)]
    ):
        file = train(Tiny(config(start=configured)), tmp_path / str(number), start=given)
        assert torch.equal(starts[-1], trained) is same
        assert read_card(file).data[0].source == "numbers"


def test_shared_classes_keep_their_rows_and_new_ones_stay_fresh():
    old, new = nn.Linear(3, 2), nn.Linear(3, 3)
    fresh = new.weight.detach().clone()
    take_weights(new, old, ["c", "b", "a"], ["a", "b"], {"weight": 0, "bias": 0})
    assert torch.equal(new.weight[2], old.weight[0])
    assert torch.equal(new.weight[1], old.weight[1])
    assert torch.equal(new.weight[0], fresh[0])
    with pytest.raises(
        CheckpointError, match=r"'bias' has the shape \[2\] in the model to start from, \[3\]"
    ):
        take_weights(nn.Linear(3, 3), old, by_class={"weight": 0})
    with pytest.raises(CheckpointError, match="the model to start from has no weight 'bias'"):
        take_weights(nn.Linear(3, 2), nn.Linear(3, 2, bias=False))


def test_a_split_that_is_not_there_says_which_are():
    splits = Splits([1], select=[2])
    assert splits.held_out == ("select",)
    assert splits.of("all") == [1, 2]
    with pytest.raises(InputError, match="hold no val split; choose from train, select, all"):
        splits.of("val")
    with pytest.raises(InputError, match="no split 'vall'; did you mean 'val'"):
        splits.of("vall")


def test_changes_to_a_configuration_replace_whole_values_and_are_checked():
    assert config(**{"train.seed": 3, "data": {"size": 5}}).data.size == 5
    with pytest.raises(ConfigError, match="TinyConfig: unknown key 'train.sed'; did you mean 'seed'"):
        config(**{"train.sed": 3})


@pytest.mark.usefixtures("built")
def test_the_verbs_print_the_file_and_the_figures(tmp_path, capsys):
    train_verb(Tiny(config()), None, TrainOptions(output=tmp_path))
    file = capsys.readouterr().out.strip()
    assert file == str(tmp_path / "tiny.safetensors")
    evaluate_verb(Tiny, file, None, "test", EvaluateOptions(json=True), extra=1)
    figures = json.loads(capsys.readouterr().out)
    assert figures["extra"] == 1
    evaluate_verb(Tiny, file, None, "test", EvaluateOptions())
    assert ["oa", f"{figures['oa']:.4g}"] in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("built")
def test_a_study_trains_with_the_seed_that_it_is_given(tmp_path):
    model = train_once(Tiny, config(), None, 7, tmp_path)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["train"]["seed"] == 7
    assert card_of(model).metrics["val"]["oa"] <= 1


def test_rare_classes_weigh_more_and_the_mean_over_samples_is_1():
    # 9 and 1 samples at power 1/2: 1/3 and 1, times 10 / (9 / 3 + 1) = 2.5.
    assert class_weights([9, 1, 0], 0.5).tolist() == pytest.approx([2.5 / 3, 2.5, 0])
    assert class_weights([9, 1], 0).tolist() == [1, 1]
