import pytest
import torch
from torch import nn

from geomix.errors import ConfigError, InputError
from geomix.ops import reference
from geomix.segments import Segments
from sits.model import SeriesConfig, SeriesEncoder, build_model
from sits.model.encoder import code_of_days

SMALL = SeriesConfig(bands=("VV", "B4", "B8"), mean=(-12, 0.1, 0.3), std=(5, 0.1, 0.1), dim=12, width=10)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return SeriesEncoder(SMALL).double().eval()


def series(number=4, dates=9, seed=1):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(number, dates, 3, generator=generator, dtype=torch.float64)
    days = torch.randint(0, 400, (number, dates), generator=generator).sort(1).values
    return values, days, torch.rand(number, dates, 3, generator=generator) > 0.3


def slow(encoder, values, days, valid):
    """One series, date by date, from the published equations."""
    keep = valid.any(-1)
    numbers = torch.where(valid, (values - encoder.mean) / encoder.std, 0.0)[keep]
    code = code_of_days(days[None], keep[None], encoder.config.harmonics)[0][keep]
    x = encoder.embed(torch.cat([numbers, valid[keep].double(), code], dim=1))
    for block in encoder.encoder.blocks:
        u = block.norm1(x)
        one = Segments.dense(1, len(x))
        mixed, _ = reference.mix(u, block.mixer.params, one, block.mixer.functions)
        x = x + mixed
        x = x + block.mlp(block.norm2(x))
    x = encoder.encoder.norm(x)
    spread = x.var(0, unbiased=False)
    return encoder.out(torch.cat([x.mean(0), (spread + 1e-4).sqrt()]))


def test_an_embedding_is_what_the_equations_say(encoder):
    values, days, valid = series()
    truth = torch.stack([slow(encoder, *one) for one in zip(values, days, valid, strict=True)])
    torch.testing.assert_close(encoder(values, days, valid), truth, atol=1e-9, rtol=1e-9)


def test_the_order_of_the_dates_does_not_matter(encoder):
    values, days, valid = series()
    order = torch.randperm(9)
    again = encoder(values[:, order], days[:, order], valid[:, order])
    torch.testing.assert_close(again, encoder(values, days, valid), atol=1e-9, rtol=1e-9)


def test_the_day_of_a_date_matters(encoder):
    values, days, valid = series()
    late = encoder(values, days + 40, valid)
    assert (late - encoder(values, days, valid)).abs().max() > 1e-3


def test_what_stands_where_nothing_was_seen_does_not_matter(encoder):
    values, days, valid = series()
    other = torch.where(valid, values, torch.full_like(values, torch.nan))
    assert torch.equal(encoder(other, days, valid), encoder(values, days, valid))


def test_a_date_without_any_band_is_as_good_as_absent(encoder):
    values, days, valid = series()
    valid[:, [0, 8]] = False
    within = slice(1, 8)
    short = encoder(values[:, within], days[:, within], valid[:, within])
    torch.testing.assert_close(short, encoder(values, days, valid), atol=1e-9, rtol=1e-9)


def test_a_missing_band_is_not_a_band_at_its_mean(encoder):
    values, days, valid = series()
    valid[...] = True
    values[..., 1] = SMALL.mean[1]
    gone = valid.clone()
    gone[..., 1] = False
    assert (encoder(values, days, gone) - encoder(values, days, valid)).abs().max() > 1e-3


def test_a_series_is_embedded_alike_alone_and_in_any_batch(encoder):
    values, days, valid = series(7)
    whole = encoder(values, days, valid)
    for place in range(7):
        alone = encoder(values[place : place + 1], days[place : place + 1], valid[place : place + 1])
        torch.testing.assert_close(alone[0], whole[place], atol=1e-9, rtol=1e-9)


def test_a_series_without_dates_has_a_finite_embedding(encoder):
    values, days, valid = series()
    valid[1] = False
    found = encoder(values, days, valid)
    assert torch.isfinite(found).all()
    assert torch.isfinite(encoder(values[:1], days[:1], torch.zeros_like(valid[:1]))).all()


def test_days_one_year_apart_share_their_waves_of_the_year():
    days = torch.tensor([[10.0, 10 + 365.25 * 4]])
    code = code_of_days(days, torch.ones(1, 2, dtype=torch.bool), 8)
    torch.testing.assert_close(code[0, 0, :16], code[0, 1, :16], atol=1e-9, rtol=0)
    assert not torch.allclose(code[0, 0, 16:], code[0, 1, 16:])


def test_gradients_reach_every_weight(encoder):
    values, days, valid = series()
    encoder(values, days, valid).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in nn_weights(encoder))


def nn_weights(module: nn.Module):
    return [weight for name, weight in module.named_parameters() if not name.endswith("out.1.bias")]


def test_shapes_that_do_not_fit_are_refused(encoder):
    values, days, valid = series()
    with pytest.raises(InputError, match=r"values must be \[N, T, 3\]"):
        encoder(values[..., :2], days, valid)
    with pytest.raises(InputError, match=r"days must be \[9\] or \[4, 9\]"):
        encoder(values, days[:, :5], valid)
    with pytest.raises(InputError, match="valid must be bool"):
        encoder(values, days, valid[..., 0])
    with pytest.raises(ConfigError, match="a mean and a std for each"):
        build_model({"kind": "series", "bands": ["B4"]})
