"""A map does not depend on where the raster begins: clips, frames and other grids give the same classes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from affine import Affine

from geomix.checkpoint import Card, bundled_models, give_card, load_model, read_card
from geomix.config import list_configs, load_config
from sits.grid import Grid, Window
from sits.io import open_series
from sits.io.options import ReadOptions
from sits.model import TSViPoM
from sits.predict import Scorer, score_blocks
from sits.series import ArraySource, TimeSeries
from sits.task import SitsConfig
from tests.sits.making import DATES, grid, write_tif

ROWS, COLUMNS = 75, 79
# The base encodes series and draws no map: its card lists no classes.
MAPPERS = [name for name, file in bundled_models("sits") if read_card(file).classes]
NAMES = [*list_configs("sits"), *MAPPERS]


@cache
def scorer(name, **changes):
    """A bundled model, or a small one of a shipped configuration with the places that it has."""
    if name not in list_configs("sits"):
        return Scorer(load_model(name, domain="sits"))
    small = {"dim": 32, "classes": 3, "temporal.depth": 1, "temporal.mixer": {"name": "pom"}, **changes}
    config = load_config(name, "sits", SitsConfig)
    config = config.changed(
        {**{f"model.{key}": value for key, value in small.items()}, "classes": config.classes[:3]}
    )
    torch.manual_seed(0)
    model = TSViPoM(config.model)
    known = {"mean": [0.2] * config.model.bands, "std": [0.1] * config.model.bands}
    inputs = {**config.inputs.model_dump(), **known}
    card = Card(domain="sits", name=name, model={}, classes=config.classes, inputs=inputs)
    give_card(model, card)
    return Scorer(model)


def scene(bands):
    rng = np.random.default_rng(3)
    values = rng.uniform(0.05, 0.4, (3, len(bands), ROWS, COLUMNS)).astype(np.float32)
    valid = rng.random((3, ROWS, COLUMNS)) > 0.2
    return TimeSeries.from_arrays(values, DATES, bands, grid((ROWS, COLUMNS)), valid)


def cut(images, window):
    """A window of a scene as a scene of its own; what lies outside has no data."""
    rows, cols = window.slices
    before = [(max(-window.row, 0), 0), (max(-window.col, 0), 0)]
    values, valid = images.read()
    values = np.pad(values, [(0, 0), (0, 0), *before])[..., max(rows.start, 0) :, max(cols.start, 0) :]
    valid = np.pad(valid, [(0, 0), *before])[..., max(rows.start, 0) :, max(cols.start, 0) :]
    source = ArraySource(values, valid, images.bands)
    place = replace(images.grid.part(window), height=valid.shape[1], width=valid.shape[2])
    return replace(images, grid=place, source=source, steps=None)


def probabilities(model, images, block=None):
    side = model.block_size(images, None, block)
    found = np.zeros((len(model.legend.classes), *images.grid.shape), dtype=np.float32)
    for part in score_blocks(model, images, side):
        found[:, *part.window.slices] = part.probabilities()
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("corner", [(7, 5), (-3, -6)], ids=["clip", "frame"])
def test_a_scene_gives_the_same_probabilities_however_it_is_cut(name, corner):
    model = scorer(name)
    whole = scene(model.inputs.bands)
    row, col = corner
    part = cut(whole, Window(row, col, ROWS - row, COLUMNS - col))
    reach = model.model.config.reach
    assert reach < 30
    edge = max(row, 0) + reach, max(col, 0) + reach
    inner = slice(edge[0], ROWS - reach), slice(edge[1], COLUMNS - reach)
    there = slice(edge[0] - row, ROWS - reach - row), slice(edge[1] - col, COLUMNS - reach - col)
    expected = probabilities(model, whole)[:, *inner]
    found = probabilities(model, part, block=30)[:, *there]
    assert found.shape == expected.shape
    assert min(found.shape) > 2
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_a_code_that_counts_from_the_corner_gives_another_map():
    model = scorer("scene", place_code="sincos")
    whole = scene(model.inputs.bands)
    part = cut(whole, Window(20, 20, ROWS - 20, COLUMNS - 20))
    inner = slice(45, 50)
    there = slice(25, 30)
    first = probabilities(model, whole)[:, inner, inner]
    assert np.abs(first - probabilities(model, part)[:, there, there]).max() > 1e-3


def test_a_scene_on_the_grid_of_another_raster_gives_the_same_probabilities(tmp_path):
    model = scorer("synthetic-demo")
    whole = scene(model.inputs.bands)
    numbers = (whole.read()[0][0] * 10000).astype(np.uint16)
    place = whole.grid
    file = tmp_path / "S2_20190310.tif"
    write_tif(file, numbers, place, names=model.inputs.bands)
    like = place.part(Window(9, 3, 60, 70))
    write_tif(tmp_path / "like.tif", numbers[:1, :60, :70], like, names=["B2"])
    options = ReadOptions(scale=1e-4, like=tmp_path / "like.tif", resample="nearest")
    full, other = (
        probabilities(model, open_series(file, one).select(model.inputs.bands))
        for one in (ReadOptions(scale=1e-4), options)
    )
    reach = model.model.config.reach
    inner = slice(reach, 60 - reach), slice(reach, 70 - reach)
    moved = slice(9 + reach, 69 - reach), slice(3 + reach, 73 - reach)
    np.testing.assert_allclose(other[:, *inner], full[:, *moved], atol=1e-5, rtol=0)


@pytest.mark.parametrize("half", [0.0, 0.5])
def test_parts_of_a_grid_count_from_the_same_pixel_of_the_map(half):
    transform = Affine(30.0, 0.0, 30 * (1000 + half), 0.0, -30.0, 30 * (150_000 + half))
    whole = Grid(None, transform, 100, 100)
    for row, col in ((0, 0), (1, 5), (13, 24), (47, 11)):
        moved = whole.part(Window(row, col, 10, 10))
        noise = replace(moved, transform=Affine(*(value * (1 + 1e-13) for value in moved.transform[:6])))
        expected = tuple((start + more) % 24 for start, more in zip(whole.phase(24), (row, col), strict=True))
        assert moved.phase(24) == noise.phase(24) == expected


def test_blocks_lie_on_multiples_of_the_unit_and_cover_the_grid_once():
    place = grid((23, 17))
    seen = np.zeros(place.shape, dtype=int)
    for window in place.blocks(6, (4, 1)):
        seen[window.slices] += 1
        assert window.row in (0, 2, 8, 14, 20)
        assert window.col in (0, 5, 11)
    assert (seen == 1).all()
    assert place.block_count(6, (4, 1)) == 15
