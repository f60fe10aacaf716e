"""TSViPoM and TSViT: sizes, masks, tiles, causality."""

import pytest
import torch

from geomix.config import load_config
from geomix.errors import ConfigError, InputError, UnsupportedError
from sits.model import DayTable, ModelConfig, TSViPoM, build_model
from sits.model.tsvipom import AT_ONCE
from sits.task import SitsConfig

POM = {"name": "pom", "degree": 2, "expand": 2}
ATTENTION = {"name": "attention", "heads": 2}


def make(seed=0, **changes):
    torch.manual_seed(seed)
    mixer = changes.pop("mixer", POM)
    stage = {"depth": 2, "mixer": mixer, "mlp_ratio": 2}
    config = {"bands": 3, "classes": 4, "dim": 16, "temporal": stage, "spatial": stage} | changes
    return build_model(config).eval()


def series(height=12, width=16, dates=5, batch=1, seed=1):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(batch, dates, 3, height, width, generator=generator)
    days = torch.arange(dates) * 17 + 4
    valid = torch.rand(batch, dates, height, width, generator=generator) > 0.2
    valid[:, 1] = False
    valid[:, :, 4:8, 4:6] = False
    return values, days, valid


@torch.inference_mode()
def run(model, *inputs, **more):
    return model(*inputs, **more)


@pytest.mark.parametrize(
    ("name", "expected"), [("pastis_tsvit", 1_657_476), ("pastis_tsvipom", 1_661_572), ("scene", 853_380)]
)
def test_the_models_have_the_number_of_parameters_they_claim(name, expected):
    model = TSViPoM(load_config(name, "sits", SitsConfig).model)
    assert sum(weight.numel() for weight in model.parameters()) == expected


def test_tsvit_small_has_the_published_number_of_parameters():
    stage = {"depth": 4, "mixer": {"name": "attention", "heads": 4, "head_dim": 16}}
    tables = {"day_code": "table", "place_code": "table", "tile": 24}
    small = build_model(
        {"bands": 10, "classes": 19, "dim": 64, "temporal": stage, "spatial": stage, **tables}
    )
    assert sum(weight.numel() for weight in small.parameters()) == pytest.approx(436_000, rel=0.01)


@pytest.mark.parametrize("mixer", [POM, ATTENTION], ids=["pom", "attention"])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_valid_has_no_influence(mixer, causal):
    model = make(mixer=mixer, causal=causal)
    values, days, valid = series()
    nonsense = torch.where(valid[:, :, None], values, 1e4)
    torch.testing.assert_close(run(model, nonsense, days, valid), run(model, values, days, valid))


@pytest.mark.parametrize("mixer", [POM, ATTENTION], ids=["pom", "attention"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_dates_change_nothing(mixer, causal):
    model = make(mixer=mixer, causal=causal)
    values, days, valid = series()
    more = [torch.cat([one, torch.zeros_like(one[:, :2])], 1) for one in (values, valid)]
    padded = run(model, more[0], torch.cat([days, days[-1:].repeat(2)]), more[1])
    torch.testing.assert_close(padded, run(model, values, days, valid), atol=1e-5, rtol=1e-5)


def test_a_place_without_dates_is_finite_and_its_neighbours_do_not_listen_to_it():
    model = make(window=3)
    values, days, valid = series()
    hidden = valid.clone()
    hidden[..., 8:] = False
    logits = run(model, values, days, hidden)
    assert logits.isfinite().all()
    alone = run(model, values[..., :8], days, hidden[..., :8])  # as if the scene ended there
    torch.testing.assert_close(logits[..., :8], alone, atol=1e-5, rtol=0)


def test_a_patch_of_mixed_validity_takes_the_mean_of_its_valid_pixels():
    model = make()
    values, days, valid = series(2, 2)
    valid[:] = True
    filled = values.clone()
    filled[0, 0, :, 0, 1] = (values[0, 0, :, 0, 0] + values[0, 0, :, 1, 0] + values[0, 0, :, 1, 1]) / 3
    hole = valid.clone()
    hole[0, 0, 0, 1] = False
    torch.testing.assert_close(run(model, values, days, hole), run(model, filled, days, valid))


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_with_their_halo_give_what_the_scene_gives(causal):
    model = make(window=3, causal=causal)
    values, days, valid = series(40, 36)
    scene = run(model, values, days, valid)
    halo, block = model.halo, 12
    assert halo == 2 * 1 * 2
    for row in range(0, 40, block):
        for col in range(0, 36, block):
            top, left = max(row - halo, 0), max(col - halo, 0)
            rows, cols = slice(top, row + block + halo), slice(left, col + block + halo)
            part = run(model, values[..., rows, cols], days, valid[..., rows, cols], origin=(top, left))
            inner = part[..., row - top :, col - left :][..., :block, :block]
            torch.testing.assert_close(
                inner, scene[..., row : row + block, col : col + block], atol=1e-5, rtol=1e-5
            )


def test_the_place_in_the_scene_matters_where_places_have_codes():
    model = make(window=3, place_code="sincos")
    inputs = series()
    assert not torch.allclose(run(model, *inputs), run(model, *inputs, origin=(10, 0)), atol=1e-3)
    model = make(window=3, place_code="none")
    torch.testing.assert_close(run(model, *inputs), run(model, *inputs, origin=(10, 0)))


@pytest.mark.parametrize("mixer", [POM, ATTENTION], ids=["pom", "attention"])
def test_a_tiled_model_labels_any_size_tile_by_tile(mixer):
    model = make(mixer=mixer, day_code="table", place_code="table", tile=8)
    values, days, valid = series(19, 16)
    assert (model.patch, model.halo) == (8, 0)
    scene = run(model, values, days, valid)
    assert scene.shape == (1, 4, 19, 16)
    lower = run(model, values[..., 8:16, 8:16], days, valid[..., 8:16, 8:16])
    torch.testing.assert_close(scene[..., 8:16, 8:16], lower, atol=1e-5, rtol=1e-5)
    edge = run(model, values[..., 16:, :8], days, valid[..., 16:, :8])
    torch.testing.assert_close(scene[..., 16:, :8], edge, atol=1e-5, rtol=1e-5)


def test_the_order_of_dates_does_not_matter_as_long_as_each_keeps_its_day():
    model = make()
    values, days, valid = series()
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = run(model, values[:, order], days[order], valid[:, order])
    torch.testing.assert_close(shuffled, run(model, values, days, valid), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(run(model, values[:, order], days, valid[:, order]), shuffled, atol=1e-2)


def test_a_later_date_does_not_change_what_earlier_ones_left():
    model = make(causal=True)
    values, days, valid = series()
    first = model.observe(values[:, :3], days[:3], valid[:, :3])
    changed = values.clone()
    changed[:, 3:] = 50
    both = model.observe(changed, days, valid)
    then = model.observe(changed[:, 3:], days[3:], valid[:, 3:], first)
    for one, other in zip(both, then, strict=True):
        torch.testing.assert_close(one.total, other.total, atol=1e-4, rtol=1e-5)
        assert torch.equal(one.count, other.count)


def test_any_split_into_updates_equals_the_full_run():
    model = make(causal=True, window=3)
    values, days, valid = series(batch=2)
    whole = run(model, values, days, valid)
    with torch.inference_mode():
        state = None
        for cut in (slice(0, 1), slice(1, 4), slice(4, 5)):
            state = model.observe(values[:, cut], days[cut], valid[:, cut], state)
        seen = valid.any(1).unfold(1, 2, 2).unfold(2, 2, 2).any(-1).any(-1)
        updated = model.read(state, seen)
    torch.testing.assert_close(updated, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_summing_dates_up_in_the_last_block_changes_nothing(causal, monkeypatch):
    model = make(causal=causal)
    inputs = series()
    short = run(model, *inputs)
    monkeypatch.setattr("sits.model.tsvipom.is_summable", lambda block: False)
    torch.testing.assert_close(run(model, *inputs), short, atol=1e-5, rtol=1e-5)


def test_images_of_one_day_see_each_other():
    model = make(causal=True)
    values, _, valid = series()
    days = torch.tensor([4, 21, 21, 21, 72])
    order = torch.tensor([0, 3, 1, 2, 4])
    swapped = run(model, values[:, order], days, valid[:, order])
    torch.testing.assert_close(swapped, run(model, values, days, valid), atol=1e-5, rtol=1e-5)
    apart = run(model, values, torch.tensor([4, 21, 22, 23, 72]), valid)
    assert not torch.allclose(apart, swapped, atol=1e-3)


def test_a_state_of_images_of_one_day_equals_the_full_run(monkeypatch):
    monkeypatch.setitem(AT_ONCE, "cpu", 20)  # places in several portions
    model = make(causal=True)
    values, _, valid = series()
    days = torch.tensor([4, 21, 21, 21, 72])
    with torch.inference_mode():
        state = model.observe(values[:, :4], days[:4], valid[:, :4])
        state = model.observe(values[:, 4:], days[4:], valid[:, 4:], state)
        seen = valid.any(1).unfold(1, 2, 2).unfold(2, 2, 2).any(-1).any(-1)
        found = model.read(state, seen)
    torch.testing.assert_close(found, run(model, values, days, valid), atol=1e-5, rtol=1e-5)


def test_a_hybrid_runs_causally_but_keeps_no_state():
    model = make(causal=True, mixer=[ATTENTION, POM])
    values, days, valid = series()
    assert run(model, values, days, valid).isfinite().all()
    with pytest.raises(UnsupportedError, match="no state"):
        model.observe(values, days, valid)


def test_a_model_that_is_not_causal_keeps_no_state():
    with pytest.raises(UnsupportedError, match="causal: true"):
        make().observe(*series())


def test_days_of_the_published_table_are_rounded_as_published():
    table = DayTable(8)
    with torch.no_grad():
        table.linear.weight.copy_(torch.arange(366.0).expand(8, -1))
        table.linear.bias.zero_()
    days = torch.arange(366)
    moved = days[table(days)[:, 0].int() != days]
    assert moved.tolist() == [
        13,
        26,
        52,
        59,
        104,
        105,
        118,
        119,
        183,
        208,
        209,
        210,
        211,
        235,
        236,
        237,
        238,
        239,
    ]
    assert table(torch.tensor([366]))[0, 0] == 365
    with pytest.raises(InputError, match="days: year"):
        table(torch.tensor([400]))


def test_a_window_in_metres_follows_the_pixel():
    metres = {"window_metres": 260, "patch": 2}
    assert ModelConfig(bands=3, classes=4, **metres).context == 13
    assert ModelConfig(bands=3, classes=4, pixel_metres=20, **metres).context == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": 4}, "odd"),
        ({"place_code": "table"}, "tile"),
        ({"window": 3, "window_metres": 60}, "not both"),
        ({"dimm": 3}, "did you mean 'dim'"),
    ],
)
def test_a_contradicting_configuration_says_why(changes, message):
    with pytest.raises(ConfigError, match=message):
        build_model({"bands": 3, "classes": 4} | changes)


def test_wrong_shapes_say_what_was_expected():
    model = make()
    values, days, valid = series()
    with pytest.raises(InputError, match=r"\[B, T, 3, H, W\]"):
        model(values[:, :, :2], days, valid)
    with pytest.raises(InputError, match="days must be"):
        model(values, days[:2], valid)
    with pytest.raises(InputError, match="valid must be"):
        model(values, days, valid[:, :1])


def test_gradients_are_finite_where_nothing_is_valid():
    model = make(causal=True)
    values, days, valid = series()
    model(values, days, torch.zeros_like(valid)).sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())
