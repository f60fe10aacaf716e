import pytest
import torch

from geomix.checkpoint import Card, load_model, save_model
from geomix.errors import CheckpointError, InputError
from sits.model import FieldsConfig, FieldsModel, SeriesConfig, SeriesEncoder
from sits.model.fields import ProbeLearner, Steps, pixels_of, steps_of
from sits.model.probe import fit_probe

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


def fitted(base, **options):
    values, days, valid = scene()
    rows = rows_of(values, days, valid)
    labels = (torch.nan_to_num(rows[:, 0]) > 0.5).long() + (torch.nan_to_num(rows[:, 1]) > 0.5)
    return fit_probe(
        *pixels_of(values, days, valid), rows, labels, 3, bands=BANDS, base=base, **options
    ), labels


def test_a_probe_sees_the_embedding_of_its_bands_beside_the_steps(base):
    probe, _ = fitted(base, first_day=30)
    values, days, valid = scene(1)
    series, when, seen = pixels_of(values, days, valid)
    told = torch.stack([torch.zeros_like(series[..., 0]), series[..., 1], series[..., 0]], dim=-1)
    known = torch.stack([torch.zeros_like(seen), seen, seen], dim=-1)
    truth = load_model(base)(told, when + 30, known)
    rows = rows_of(values, days, valid)
    found = probe.features(series, when, seen, rows)
    torch.testing.assert_close(found, torch.cat([truth, rows], dim=1), equal_nan=True)


def test_normalised_bands_are_told_as_they_were(base):
    plain, _ = fitted(base)
    mean, std = (0.2, 0.4, 0.5), (0.5, 0.25, 2.0)
    values, days, valid = scene(1)
    normed = (values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    rows = rows_of(values, days, valid)
    normal, _ = fitted(base, mean=mean, std=std)
    truth = plain.features(*pixels_of(values, days, valid), rows)
    torch.testing.assert_close(normal.features(*pixels_of(normed, days, valid), rows), truth, equal_nan=True)


def test_a_probe_learns_what_the_labels_say(base):
    probe, labels = fitted(base)
    values, days, valid = scene()
    found = probe(*pixels_of(values, days, valid), rows_of(values, days, valid)).argmax(1)
    assert (found == labels).float().mean() > 0.85


def test_a_probe_in_a_fields_model_travels_and_scores_pixel_by_pixel(base, tmp_path):
    probe, _ = fitted(base)
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
    values, days, valid = scene()
    series = pixels_of(values, days, valid)
    rows, labels = rows_of(values, days, valid), torch.arange(84) % 2
    with pytest.raises(InputError, match="none of the bands X, Y, Z is known"):
        fit_probe(*series, rows, labels, 2, bands=("X", "Y", "Z"), base=base)


def test_a_model_that_is_no_encoder_is_refused_as_base():
    values, days, valid = scene()
    rows, labels = rows_of(values, days, valid), torch.arange(84) % 2
    with pytest.raises(CheckpointError, match="is no pretrained series encoder"):
        fit_probe(*pixels_of(values, days, valid), rows, labels, 2, bands=BANDS, base="synthetic-demo")
