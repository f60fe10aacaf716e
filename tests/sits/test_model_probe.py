import pytest
import torch

from geomix.checkpoint import Card, load_model, save_model
from geomix.errors import CheckpointError, InputError
from sits.data.inputs import Inputs
from sits.model import FieldsConfig, FieldsModel, SeriesConfig, SeriesEncoder
from sits.model.fields import ProbeLearner, Steps, pixels_of, steps_of
from sits.model.probe import new_probe

BANDS = ("B4", "B8", "NDVI")
STEPS = Steps(first=0, count=4, days=60)


@pytest.fixture
def base(tmp_path):
    torch.manual_seed(0)
    config = SeriesConfig(bands=("VV", "B8", "B4"), mean=(-12, 0.3, 0.1), std=(5, 0.1, 0.1), dim=8, width=6)
    file = tmp_path / "base.safetensors"
    card = Card(domain="sits", name="base", model=config.model_dump(mode="json"))
    save_model(SeriesEncoder(config), card, file)
    return str(file)


def scene(seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(2, 5, 3, 6, 7, generator=generator)
    days = torch.tensor([12, 60, 101, 150, 200])
    return values, days, torch.rand(2, 5, 6, 7, generator=generator) > 0.2


def rows_of(values, days, valid):
    rows = steps_of(values, days, valid, STEPS).flatten(1, 2)
    return rows.permute(0, 2, 3, 1).reshape(-1, rows.shape[1])


def known(bands=BANDS, start="01-01", **options):
    return Inputs(bands=bands, season_start=start, **options)


def fitted(base, inputs):
    values, days, valid = scene()
    rows = rows_of(values, days, valid)
    labels = (torch.nan_to_num(rows[:, 0]) > 0.5).long() + (torch.nan_to_num(rows[:, 1]) > 0.5)
    probe = new_probe(inputs, rows.shape[1], 3, base)
    told = torch.cat([probe.embed(*pixels_of(values, days, valid)), rows], dim=1)
    return probe.fitted(told.numpy(), labels.numpy()), labels


def test_a_probe_sees_its_bands_and_the_day_of_the_year(base):
    probe, _ = fitted(base, known(start="02-01"))
    values, days, valid = scene(1)
    series, when, seen = pixels_of(values, days, valid)
    told = torch.stack([torch.zeros_like(series[..., 0]), series[..., 1], series[..., 0]], dim=-1)
    held = torch.stack([torch.zeros_like(seen), seen, seen], dim=-1)
    # Day 0 lies on the first of February, day 32 of the year.
    truth = load_model(base)(told, when + 32, held)
    torch.testing.assert_close(probe.embed(series, when, seen), truth)


def test_normalised_bands_are_told_as_they_were(base):
    plain, _ = fitted(base, known())
    mean, std = (0.2, 0.4, 0.5), (0.5, 0.25, 2.0)
    values, days, valid = scene(1)
    normed = (values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    normal, _ = fitted(base, known(mean=mean, std=std))
    truth = plain.embed(*pixels_of(values, days, valid))
    torch.testing.assert_close(normal.embed(*pixels_of(normed, days, valid)), truth)


def test_a_probe_learns_what_the_labels_say(base):
    probe, labels = fitted(base, known())
    values, days, valid = scene()
    found = probe(*pixels_of(values, days, valid), rows_of(values, days, valid)).argmax(1)
    assert (found == labels).float().mean() > 0.85


def test_a_probe_in_a_fields_model_travels_and_scores_pixel_by_pixel(base, tmp_path):
    probe, _ = fitted(base, known())
    learner = ProbeLearner(weight=1, probe=probe.config)
    model = FieldsModel(FieldsConfig(bands=3, classes=3, steps=STEPS, learners=(learner,)), [probe]).eval()
    card = Card(domain="sits", name="fields", model=model.config.model_dump(mode="json"))
    save_model(model, card, tmp_path / "fields.safetensors")
    again = load_model(tmp_path / "fields.safetensors", domain="sits")
    values, days, valid = scene(2)
    whole = model(values, days, valid)
    assert torch.equal(again(values, days, valid), whole)
    part = model(values[..., 2:5, 1:4], days, valid[..., 2:5, 1:4])
    torch.testing.assert_close(part, whole[..., 2:5, 1:4], atol=1e-5, rtol=1e-5)
    shares = probe(*pixels_of(values, days, valid), rows_of(values, days, valid))
    truth = shares.reshape(2, 6, 7, 3).movedim(-1, 1)
    torch.testing.assert_close(whole.exp(), truth.clamp(min=1e-7), atol=1e-5, rtol=1e-5)


def test_bands_that_the_encoder_does_not_know_are_refused(base):
    with pytest.raises(InputError, match="none of the bands X, Y is known"):
        new_probe(known(("X", "Y")), 4, 2, base)


def test_a_model_that_is_no_encoder_is_refused_as_base():
    with pytest.raises(CheckpointError, match="is no pretrained series encoder"):
        new_probe(known(), 4, 2, "synthetic-demo")
