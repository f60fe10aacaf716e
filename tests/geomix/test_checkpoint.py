import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from geomix import checkpoint
from geomix.checkpoint import Card, ClassInfo, Source, card_of, load_model, read_card, save_model
from geomix.errors import CheckpointError, MissingFileError, OutputExistsError

CARD = Card(
    domain="sits",
    name="toy",
    model={"width": 3},
    classes=(ClassInfo(id=0, name="wheat", color="#ff8000"),),
    inputs={"bands": ["B2"]},
    data=(Source(source="made", licence="none"),),
    metrics={"test": {"oa": 0.5, "iou": [0.5, float("nan")]}},
)


def build(config):
    model = nn.Sequential(nn.Linear(2, config["width"]), nn.Dropout(), nn.BatchNorm1d(config["width"]))
    model[0].tied = model[0].weight
    return model


@pytest.fixture(autouse=True)
def domain(monkeypatch):
    monkeypatch.setattr(checkpoint, "room", lambda domain, name: SimpleNamespace(build_model=build))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.safetensors"
    torch.manual_seed(0)
    save_model(build({"width": 3}), CARD, path)
    return path


def test_a_model_comes_back_as_it_was_ready_to_predict(file):
    torch.manual_seed(0)
    saved, loaded = build({"width": 3}), load_model(file)
    assert all(
        torch.equal(a, b)
        for a, b in zip(saved.state_dict().values(), loaded.state_dict().values(), strict=True)
    )
    assert not loaded.training
    assert card_of(loaded) == loaded.card == read_card(file)


def test_the_card_comes_back_with_its_versions_and_without_nan(file):
    card = read_card(file)
    assert card.versions["torch"] == torch.__version__
    assert card.metrics == {"test": {"oa": 0.5, "iou": [0.5, None]}}
    assert card.model_copy(update={"versions": {}, "metrics": {}}) == CARD.model_copy(update={"metrics": {}})
    assert card.classes[0].rgb == (255, 128, 0)


def test_a_charset_may_be_written_as_a_text():
    assert Card(domain="htr", name="x", model={}, charset="ab ").charset == ("a", "b", " ")


def test_an_existing_model_is_kept(file):
    with pytest.raises(OutputExistsError):
        save_model(build({"width": 3}), CARD, file)
    save_model(build({"width": 3}), CARD, file, overwrite=True)


def test_what_should_not_be_written_is_refused(tmp_path):
    model = build({"width": 3})
    with pytest.raises(CheckpointError, match=r"must end in \.safetensors"):
        save_model(model, CARD, tmp_path / "toy.pt")
    model[0].bias.data[1] = float("nan")
    with pytest.raises(CheckpointError, match=r"weight '0\.bias' is not finite"):
        save_model(model, CARD, tmp_path / "toy.safetensors")
    assert list(tmp_path.iterdir()) == []


def write(path, metadata):
    save_file({"x": torch.zeros(1)}, path, metadata=metadata)


def damaged(path):
    write(path, {"geomix": CARD.model_dump_json()})
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: torch.save({}, path), "is a PyTorch checkpoint.*geomix DOMAIN import"),
        (lambda path: path.write_text("hello"), "is damaged or not a .safetensors file"),
        (lambda path: path.write_bytes(b""), "is damaged or not a .safetensors file"),
        (damaged, "is damaged or not a .safetensors file"),
        (lambda path: write(path, None), "without a card, so not made by geomix"),
        (lambda path: write(path, {"geomix": "{"}), "its card is damaged"),
        (lambda path: write(path, {"geomix": "[]"}), "its card is damaged"),
        (
            lambda path: write(path, {"geomix": '{"format": 99}'}),
            "newer geomix .layout 99, this one reads 1.; update",
        ),
        (
            lambda path: write(path, {"geomix": '{"domain": "sits", "nam": 1}'}),
            "card: unknown key 'nam'; did you mean 'name'",
        ),
    ],
    ids=["torch", "text", "empty", "truncated", "no card", "no json", "no mapping", "newer", "unknown key"],
)
def test_a_file_that_is_no_model_says_so_in_one_line(tmp_path, make, message):
    path = tmp_path / "toy.safetensors"
    make(path)
    with pytest.raises(CheckpointError, match=f"toy.safetensors: .*{message}") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape_are_an_error(file, tmp_path):
    card = json.loads(CARD.model_dump_json()) | {"model": {"width": 4}}
    other = tmp_path / "other.safetensors"
    write(other, {"geomix": json.dumps(card)})
    with pytest.raises(CheckpointError, match="weights do not fit its configuration"):
        load_model(other)


def test_a_model_of_another_domain_is_an_error(file):
    assert load_model(file, domain="sits").card.domain == "sits"
    with pytest.raises(CheckpointError, match="is a model for sits, here one for htr is needed"):
        load_model(file, domain="htr")


def test_models_are_found_by_name(monkeypatch, tmp_path, file):
    (tmp_path / "weights").mkdir()
    file.rename(tmp_path / "weights" / "toy-demo.safetensors")
    monkeypatch.setattr(checkpoint, "installed_domains", lambda: [("sits", tmp_path)])
    assert checkpoint.bundled_models() == [("toy-demo", tmp_path / "weights" / "toy-demo.safetensors")]
    assert checkpoint.bundled_models("htr") == []
    assert load_model("toy-demo", domain="sits").card.name == "toy"
    with pytest.raises(MissingFileError, match=r"no bundled model 'toy-demi'; did you mean 'toy-demo'\?"):
        load_model("toy-demi")
    with pytest.raises(MissingFileError, match="'toy-demo' is one for sits, not for htr"):
        load_model("toy-demo", domain="htr")
    with pytest.raises(MissingFileError, match="there is no such model file"):
        load_model(tmp_path / "gone.safetensors")
    with pytest.raises(MissingFileError, match=r"is a folder, not .*; it holds toy-demo\.safetensors"):
        load_model(tmp_path / "weights")


def test_a_model_without_a_card_says_so():
    with pytest.raises(CheckpointError, match="has no card"):
        card_of(nn.Linear(1, 1))


def test_colours_are_checked():
    with pytest.raises(ValueError, match="color"):
        ClassInfo(id=0, name="x", color="red")
