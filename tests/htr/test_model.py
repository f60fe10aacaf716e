import pytest
import torch

from geomix.errors import ConfigError, InputError
from htr.data.unroll import Slots, unroll
from htr.model.network import LineRecogniser, build_model

TINY = {
    "classes": 12,
    "height": 32,
    "stem": {"channels": [4, 6, 8, 8], "blocks": [1, 1, 0, 0]},
    "dim": 16,
    "depth": 2,
    "mixer": {"name": "pom", "gate_heads": 4},
    "local": 5,
}
VARIANTS = {
    "pom": {},
    "no local": {"local": 0},
    "attention": {"mixer": {"name": "attention", "heads": 2}},
    "hybrid": {"mixer": [{"name": "attention", "heads": 2}, {"name": "pom"}]},
    "resnet": {"stem": {"kind": "resnet"}, "height": 64},
}
WIDTHS = (37, 4, 120, 61, 1)


def make(**changes) -> LineRecogniser:
    torch.manual_seed(0)
    model = build_model(TINY | changes)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            # As after training: with a fresh norm a forgotten mask would not show.
            module.running_mean.uniform_(-0.2, 0.2)
            module.bias.data.uniform_(0.1, 0.5)
    return model.eval()


def lines(height: int, widths=WIDTHS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(height, width, generator=generator) for width in widths]


def alone(model: LineRecogniser, line: torch.Tensor) -> torch.Tensor:
    return model(line[None], torch.tensor([line.shape[1]]))[0]


def difference(left: torch.Tensor, right: torch.Tensor) -> float:
    assert left.shape == right.shape
    return float((left - right).abs().max() / right.abs().max())


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_neighbours_in_a_batch_change_nothing(variant):
    model = make(**VARIANTS[variant])
    images = lines(model.config.height)
    batch = torch.rand(len(images), model.config.height, 150)  # what lies behind a line is not looked at
    for row, image in zip(batch, images, strict=True):
        row[:, : image.shape[1]] = image
    with torch.no_grad():
        logits = model(batch, torch.tensor(WIDTHS))
        for row, image in zip(logits, images, strict=True):
            tokens = -(-image.shape[1] // 4)
            assert difference(row[:tokens], alone(model, image)) < 1e-5
            assert not row[tokens:].any()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("gap", [8, 16, 64])
def test_a_line_on_a_page_reads_as_it_does_alone(variant, gap):
    model = make(**VARIANTS[variant])
    images = lines(model.config.height)
    pages, slots = unroll([images[:2], images[2:]], gap)
    with torch.no_grad():
        logits = model.read(pages, slots).split(slots.tokens.tolist())
        for ours, image in zip(logits, images, strict=True):
            assert difference(ours, alone(model, image)) < 1e-5


def test_lines_of_a_page_see_each_other_only_where_the_configuration_says_so():
    model = make(context="page")
    images = lines(32)
    page, slots = unroll([images])
    with torch.no_grad():
        first = model.read(page, slots)[: slots.tokens[0]]
        assert difference(first, alone(model, images[0])) > 1e-3


def test_pages_never_see_each_other():
    model = make(context="page")
    images = lines(32)
    both, slots = unroll([images[:3], images[3:]])
    one, alone_slots = unroll([images[:3]])
    with torch.no_grad():
        ours = model.read(both, slots)[: int(alone_slots.tokens.sum())]
        assert difference(ours, model.read(one, alone_slots)) < 1e-5


def test_a_page_longer_than_any_before_simply_runs():
    model = make(context="page")
    page, slots = unroll([lines(32, [40] * 300)])
    with torch.no_grad():
        assert model.read(page, slots).shape == (3000, 12)


def test_a_line_of_full_width_takes_the_path_without_masks_and_agrees():
    model = make()
    image = lines(32, [64])[0]
    padded = torch.nn.functional.pad(image, (0, 8))
    with torch.no_grad():
        masked = model(padded[None], torch.tensor([64]))[0, :16]
        assert difference(masked, alone(model, image)) < 1e-5


@pytest.mark.parametrize(
    ("images", "widths", "message"),
    [
        (torch.zeros(1, 48, 40), [40], r"\[B, 32, W\]"),
        (torch.zeros(1, 32, 40), [41], "1 to 40 px"),
        (torch.zeros(1, 32, 40), [0], "1 to 40 px"),
    ],
)
def test_images_that_do_not_fit_are_refused(images, widths, message):
    with pytest.raises(InputError, match=message):
        make()(images, torch.tensor(widths))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixer": [{"name": "pom"}]}, "lists 1 blocks"),
        ({"local": 4}, "odd"),
        ({"stem": {"kind": "resnet"}}, "height of 64"),
        ({"dimm": 4}, "did you mean 'dim'"),
    ],
)
def test_a_contradiction_in_the_configuration_is_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        build_model(TINY | changes)


def test_published_norms_leak_the_padding_and_ours_do_not():
    image = lines(64, [64])[0]
    padded = torch.nn.functional.pad(image, (0, 64))
    leaks = {}
    for norms in ("own", "published"):
        model = make(stem={"kind": "resnet"}, height=64, local=0, norms=norms)
        with torch.no_grad():
            wide = model(padded[None], torch.tensor([64]))[0, :16]
            leaks[norms] = difference(wide, alone(model, image))
    assert leaks["own"] < 1e-5
    assert leaks["published"] > 1e-2


def test_slots_that_touch_are_refused():
    with pytest.raises(InputError, match="gaps of 8 px"):
        Slots(torch.tensor([0, 0]), torch.tensor([0, 40]), torch.tensor([36, 10]))
    with pytest.raises(InputError, match="multiple of 4"):
        Slots(torch.tensor([0]), torch.tensor([2]), torch.tensor([8]))
