from dataclasses import replace

import numpy as np
import pytest
import torch

from geomix.checkpoint import load_model, read_card, save_model
from geomix.config import load_config
from geomix.errors import InputError
from geomix.learn.experiment import evaluate, train
from geomix.learn.start import take_weights
from htr.charset import Charset
from htr.data.batches import collate
from htr.data.inputs import ready
from htr.data.sources import divide_lines
from htr.model.network import LineRecogniser
from htr.predict.pages import model_reader
from htr.synthetic import synthetic_samples
from htr.task.experiment import HtrConfig, HtrExperiment
from htr.task.scoring import evaluate_lines
from htr.task.training import HtrTask, fitting


@pytest.fixture(scope="module")
def config():
    tiny = load_config("tiny", "htr", HtrConfig)
    return tiny.model_copy(update={"data": tiny.data.model_copy(update={"synthetic": 60})})


@pytest.fixture(scope="module")
def samples():
    return synthetic_samples(60)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train(HtrExperiment(config), folder)


def with_train(config, **changes):
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def opened(config, samples, monkeypatch):
    """The splits of given lines."""
    monkeypatch.setattr("htr.task.experiment.read_labelled_lines", lambda paths: samples)
    return HtrExperiment(config).open("set.tar", None, None)


def task_of(config, charset):
    """A fresh model for a charset, joined to its loss."""
    torch.manual_seed(config.train.seed)
    shape = config.model.model_copy(update={"classes": len(charset)})
    return HtrTask(LineRecogniser(shape), config.train, charset, config.shards)


def take_rows(model, before, ours, theirs):
    by_class = {"head.weight": 0, "head.bias": 0}
    take_weights(model, before, ["", *ours], ["", *theirs], by_class=by_class)


def test_the_pages_that_chose_the_epoch_can_be_scored_again(run, samples, monkeypatch):
    monkeypatch.setattr("htr.task.experiment.read_labelled_lines", lambda paths: samples)
    card = read_card(run)
    for split in ("select", "val"):
        again = evaluate(HtrExperiment, load_model(run), ["set.tar"], split)
        assert {key: again[key] for key in ("cer", "lines")} == {
            key: card.metrics[split][key] for key in ("cer", "lines")
        }


def test_training_writes_a_model_whose_card_holds_its_scores(run, samples):
    card = read_card(run)
    assert card.domain == "htr"
    assert card.inputs == {"height": 32, "contrast": True, "level": True}
    assert len(card.charset) + 1 == card.model["classes"]
    assert set(card.metrics) == {"select", "val"}
    again = evaluate_lines(divide_lines(samples, set()).val, model_reader(load_model(run)))
    assert again["cer"] == pytest.approx(card.metrics["val"]["cer"])
    assert {"cer", "wer", "wer_punctuation", "lines"} <= set(card.metrics["val"])
    [source] = card.data
    assert source.source == "synthetic"


def test_a_training_without_pages_to_choose_on_says_so(config, samples, caplog, monkeypatch):
    opened(config, samples, monkeypatch)
    assert "none is held out" not in caplog.text
    few = [sample for sample in samples if sample.page < "page_0008" and sample.split == "train"]
    assert opened(config, few, monkeypatch).select == []
    assert "none is held out to choose the checkpoint" in caplog.text


def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_bits(config, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    left = load_model(train(HtrExperiment(config), whole))
    train(HtrExperiment(config), parts, max_minutes=1e-9)
    right = load_model(train(HtrExperiment(config), parts, resume=True))
    for (name, ours), theirs in zip(left.state_dict().items(), right.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("mode", ["keep", "union", "new"])
def test_case_32_fine_tuning_starts_from_a_model_with_the_charset_asked_for(
    config, run, tmp_path, caplog, mode
):
    whole = load_model(run)
    known = Charset(("§", *whole.card.charset[:-3]))
    before = LineRecogniser(whole.config.model_copy(update={"classes": len(known)}))
    take_rows(before, whole, known.characters, whole.card.charset)
    with torch.no_grad():
        before.stem.out.weight += 0.5  # unlike what any seed draws
    card = whole.card.model_copy(
        update={"charset": known.characters, "model": before.config.model_dump(mode="json")}
    )
    save_model(before, card, tmp_path / "before.safetensors")
    experiment = HtrExperiment(config, charset=mode)
    file = train(experiment, tmp_path / "run", start=tmp_path / "before.safetensors", max_minutes=1e-9)
    # It goes on from the weights of the model, which two steps hardly move.
    ours, theirs = load_model(file).stem.out.weight, before.stem.out.weight
    assert torch.allclose(ours, theirs, atol=0.05)
    missing = whole.card.charset[-3:]
    expected = {"keep": known.characters, "union": (*known.characters, *missing), "new": whole.card.charset}
    assert read_card(file).charset == expected[mode]
    assert f"U+{ord(missing[0]):04X}" in caplog.text


def test_case_23_lines_whose_text_does_not_fit_are_named_and_left_out(samples, caplog):
    lines = ready(samples[:3], {"height": 32})
    narrow = lines[1].image[:, :20]
    lines[1] = type(lines[1])(**{**vars(lines[1]), "image": narrow})
    assert [line.id for line in fitting(lines, 1.0)] == [lines[0].id, lines[2].id]
    assert f"left out 1 lines whose text is too long for their width: {lines[1].id}" in caplog.text


def test_case_23_a_training_leaves_lines_out_whose_text_does_not_fit(config, samples, monkeypatch):
    taken = opened(config, samples, monkeypatch).learned[0].id
    lines = [replace(s, text=s.text * 40) if s.id == taken else s for s in samples]
    assert taken not in {line.id for line in opened(config, lines, monkeypatch).learned}


def test_no_training_line_is_an_error(config, samples, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no line to train on"):
        train(HtrExperiment(config), tmp_path, data=[])
    with pytest.raises(InputError, match="no line to train on"):
        opened(config, divide_lines(samples, set()).val, monkeypatch)


def test_parts_of_a_batch_add_up_to_its_gradient(config, samples):
    lines = ready(samples[:6], {"height": 32})
    charset = Charset.from_texts(line.text for line in lines)
    gradients = []
    for shards in (1, 2, 3):
        task = task_of(config.model_copy(update={"shards": shards}), charset)
        task.model.eval()  # batch norm in training looks at the lines of a part alone
        loss = task.loss(collate(lines, charset))
        loss.backward()
        gradients.append((loss.item(), torch.cat([p.grad.flatten() for p in task.model.parameters()])))
    for loss, gradient in gradients[1:]:
        assert loss == pytest.approx(gradients[0][0], rel=1e-5)
        assert (gradient - gradients[0][1]).abs().max() < 1e-4 * gradients[0][1].abs().max()


@pytest.mark.parametrize(
    ("name", "millions"),
    [("lam_htr_vt", 53.4), ("lam_htr_vpom", 53.6), ("lam_htr_vpom_hybrid", 53.5), ("small", 1.97)],
)
def test_the_configurations_have_the_size_they_say(name, millions):
    with torch.device("meta"):
        model = LineRecogniser(load_config(name, "htr", HtrConfig).model)
    count = sum(parameter.numel() for parameter in model.parameters())
    # The published counts of 53.5 and 53.7 M include a table of 0.1 M for positions, which is computed here.
    assert round(count / 1e6, 2) == pytest.approx(millions, abs=0.01)


def test_learning_lowers_the_loss(config, samples):
    lines = ready(samples[:8], {"height": 32})
    charset = Charset.from_texts(line.text for line in lines)
    task = task_of(config, charset)
    batch = collate(lines, charset)
    optimizer = torch.optim.Adam(task.model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.7 * losses[0]


def test_a_model_whose_lines_see_each_other_trains_on_unrolled_pages(config, tmp_path):
    pages = config.model_copy(
        update={
            "model": config.model.model_copy(update={"context": "page"}),
            "data": config.data.model_copy(update={"page_lines": 4}),
        }
    )
    file = train(HtrExperiment(with_train(pages, epochs=1)), tmp_path)
    assert read_card(file).model["context"] == "page"
