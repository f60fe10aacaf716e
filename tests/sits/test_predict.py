import json
from datetime import date

import numpy as np
import pytest
import rasterio
import torch
import xarray as xr
from lxml import etree
from PIL import Image
from rio_cogeo.cogeo import cog_validate

import sits
from geomix.checkpoint import load_model
from geomix.errors import InputError, MemoryBudgetError, NonFiniteError, OutputExistsError
from geomix.memory import parse_memory
from sits.grid import Window
from sits.io.options import MapOptions, ReadOptions
from sits.predict import MapPaths, Scorer, score_blocks, segment, segment_file
from tests.helpers import shared_data
from tests.sits.making import (
    CLASSES,
    DATES,
    TRANSFORM,
    dataset,
    model,
    model_file,
    numbers,
    series,
    write_folder,
)

CODES = {entry.id for entry in CLASSES}


def whole(scorer, images, block):
    found = np.zeros((3, *images.grid.shape), dtype=np.float32)
    for scores in score_blocks(scorer, images, block):
        found[:, *scores.window.slices] = scores.logits
    return found


@pytest.mark.parametrize("shape", [(30, 26), (31, 25)])
@pytest.mark.parametrize("rooms", [{}, {"causal": True}], ids=["full", "causal"])
def test_blocks_of_any_size_give_the_scores_of_the_whole_scene(shape, rooms):
    valid = np.random.default_rng(0).random((3, *shape)) > 0.2
    valid[:, 5:9, 5:9] = False
    images = series(numbers(shape=shape), valid=valid)
    scorer = Scorer(model(rooms))
    reference = whole(scorer, images, 32)
    assert np.abs(reference).max() > 0.05
    for block in (2, 6, 14, 20):
        np.testing.assert_allclose(whole(scorer, images, block), reference, atol=1e-5)


def test_a_model_with_tiles_does_not_depend_on_blocks_either():
    rooms = {"place_code": "table", "tile": 8, "window": None}
    images, scorer = series(numbers(shape=(30, 26))), Scorer(model(rooms))
    assert (scorer.unit, scorer.halo) == (8, 0)
    reference = whole(scorer, images, 32)
    for block in (8, 16):
        np.testing.assert_allclose(whole(scorer, images, block), reference, atol=1e-5)


def test_a_pixel_that_no_date_shows_has_no_class():
    valid = np.ones((3, 30, 26), dtype=bool)
    valid[:, 3, 4] = False
    valid[0, 10, 10] = False
    scorer = Scorer(model())
    (scores,) = score_blocks(scorer, series(valid=valid), 32)
    codes = scores.codes(scorer.legend)
    assert codes[3, 4] == 255
    assert (codes == 255).sum() == 1
    assert set(np.unique(codes)) <= CODES | {255}
    assert (scores.dates[3, 4], scores.dates[10, 10], scores.dates[0, 0]) == (0, 2, 3)


def test_missing_dates_are_not_averaged_in():
    values = numbers()
    valid = np.ones((3, 30, 26), dtype=bool)
    valid[1] = False
    spoilt = values.copy()
    spoilt[1] = 60000
    scorer = Scorer(model())
    (masked,) = score_blocks(scorer, series(spoilt, valid=valid), 32)
    (without,) = score_blocks(scorer, series(values[[0, 2]], [DATES[0], DATES[2]]), 32)
    np.testing.assert_allclose(masked.logits, without.logits, atol=1e-5)


def test_probabilities_and_entropy_say_how_sure_the_model_is():
    from sits.predict import Scores

    logits = np.array([[[9.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]], dtype=np.float32)
    scores = Scores(Window(0, 0, 1, 2), logits, np.ones((1, 2), dtype=np.uint16))
    np.testing.assert_allclose(scores.probabilities().sum(0), 1, rtol=1e-6)
    assert scores.probabilities()[0, 0, 0] > 0.999
    np.testing.assert_allclose(scores.entropy(), [[0.0, 1.0]], atol=0.01)


def test_a_damaged_model_is_named():
    built = model()
    with torch.no_grad():
        built.head[1].bias.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="not finite; is model fake damaged"):
        list(score_blocks(Scorer(built), series(), 32))


def test_little_memory_makes_small_blocks_and_the_same_map():
    scorer, images = Scorer(model()), series(numbers(shape=(60, 60)))
    small = scorer.block_size(images, scorer.bytes_of(images, 20))
    assert small == 20 - 2 * scorer.halo
    assert scorer.block_size(images, parse_memory("4GB")) == 62  # patches begin before the scene
    np.testing.assert_allclose(whole(scorer, images, small), whole(scorer, images, 60), atol=1e-5)
    with pytest.raises(
        MemoryBudgetError, match=r"the smallest block with its context needs about .*--memory"
    ):
        scorer.block_size(images, 1000)


@pytest.mark.parametrize("rooms", [{}, {"causal": True}, {"place_code": "none"}], ids=str)
def test_a_scene_that_is_its_own_context_is_scored_in_blocks(rooms):
    scorer = Scorer(model({"window": None, "spatial": {"depth": 2, "mlp_ratio": 2}, **rooms}))
    valid = np.random.default_rng(1).random((3, 37, 41)) > 0.3
    valid[:, 4:9, 6:20] = False  # unseen places, and a block without any
    valid[:, 16:24, 8:16] = False
    images = series(numbers(shape=(37, 41)), valid=valid)
    seen = valid.any(0)
    expected = whole(scorer, images, 64)
    for block in (8, 20):
        found = whole(scorer, images, block)
        np.testing.assert_allclose(found[:, seen], expected[:, seen], atol=1e-5, rtol=0)
    # It does look at all of it: a far corner changes the scores of the first block.
    values = numbers(shape=(37, 41))
    values[:, :, 30:, 30:] = 9000
    changed = whole(scorer, series(values, valid=valid), 8)
    assert np.abs(changed - expected)[:, :4, :4].max() > 1e-4


def test_a_scene_that_is_its_own_context_fits_any_memory(tmp_path):
    scorer = Scorer(model({"window": None}))
    images = series(numbers(shape=(60, 60)))
    budget = scorer.bytes_of(images, 24)
    assert scorer.block_size(images, budget) == 24
    assert scorer.block_size(images, parse_memory("1GB")) == 62
    assert scorer.block_size(images, None, 16) == 16
    with pytest.raises(MemoryBudgetError, match="takes the whole scene as its context"):
        scorer.block_size(images, budget, at_once=True)
    nothing = series(numbers(shape=(12, 12)), valid=np.zeros((3, 12, 12), dtype=bool))
    assert all((one.codes(scorer.legend) == 255).all() for one in score_blocks(scorer, nothing, 4))


def test_attention_over_the_whole_scene_needs_it_at_once():
    stage = {"depth": 1, "mlp_ratio": 2, "mixer": {"name": "attention", "heads": 2}}
    scorer, images = Scorer(model({"window": None, "spatial": stage})), series()
    assert scorer.halo is None
    assert scorer.block_size(images, parse_memory("1GB")) >= 30
    with pytest.raises(MemoryBudgetError, match="takes the whole scene as its context"):
        scorer.block_size(images, 1000)


def test_an_asked_block_is_rounded_to_patches():
    assert Scorer(model()).block_size(series(), None, block=7) == 8
    with pytest.raises(InputError, match="--block must be at least 1"):
        Scorer(model()).block_size(series(), None, block=0)


def test_files_become_maps_on_their_grid(tmp_path):
    write_folder(tmp_path / "s2")
    paths = MapPaths(
        tmp_path / "map.tif",
        tmp_path / "proba.tif",
        tmp_path / "entropy.tif",
        tmp_path / "count.tif",
        tmp_path / "map.png",
        item=True,
    )
    segment_file(tmp_path / "s2", paths, model_file(tmp_path), MapOptions(memory="1GB", block=8))
    with rasterio.open(paths.map) as found:
        codes, tags = found.read(1), found.tags()
        assert tuple(found.transform) == tuple(TRANSFORM)
        assert found.nodata == 255
    assert set(np.unique(codes)) <= CODES
    assert tags["GEOMIX_MODEL"] == "fake"
    assert len(tags["GEOMIX_MODEL_SHA256"]) == 64
    assert tags["GEOMIX_DATES"] == "2019-03-10 2019-05-02 2019-06-21"
    assert "2019-03-10 none (nothing states a baseline)" in tags["GEOMIX_OFFSETS"]
    assert json.loads(tags["GEOMIX_CLASSES"])[2]["id"] == 8
    with rasterio.open(paths.proba) as found:
        shares = found.read()
        assert found.descriptions == tuple(entry.name for entry in CLASSES)
        assert np.abs(shares.astype(int).sum(0) - 100).max() <= 2
        best = np.array([0, 1, 8])[shares.argmax(0)]
        assert (best == codes).mean() > 0.9  # ties in whole per cent aside
    with rasterio.open(paths.entropy) as found:
        assert found.read(1).max() <= 100
    with rasterio.open(paths.count) as found:
        assert (found.read(1) == 3).all()
    for path in (paths.map, paths.proba, paths.entropy, paths.count):
        assert cog_validate(path, strict=True)[0]
    assert etree.parse(f"{paths.map}.aux.xml").getroot().tag == "PAMDataset"
    item = json.loads((tmp_path / "map.json").read_text())
    assert set(item["assets"]) == {"map", "proba", "entropy", "count", "preview"}
    with Image.open(paths.preview) as picture:
        assert picture.width > 300


def test_nothing_is_left_of_a_map_that_fails(tmp_path):
    files = write_folder(tmp_path / "s2")
    whole_file = files[1].read_bytes()
    files[1].write_bytes(whole_file[: len(whole_file) // 2])
    out = tmp_path / "out"
    out.mkdir()
    weights = model_file(tmp_path)
    with pytest.raises(ValueError, match="is damaged"):
        segment_file(files, MapPaths(out / "map.tif", out / "proba.tif", preview=out / "m.png"), weights)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("existing", ["map.tif", "map.tif.aux.xml", "map.qml", "map.png", "map.json"])
def test_no_output_is_replaced_unasked(tmp_path, existing):
    write_folder(tmp_path / "s2")
    (tmp_path / existing).write_text("mine")
    paths = MapPaths(tmp_path / "map.tif", preview=tmp_path / "map.png", item=True)
    weights = model_file(tmp_path)
    with pytest.raises(OutputExistsError, match="--overwrite"):
        segment_file(tmp_path / "s2", paths, weights)
    assert (tmp_path / existing).read_text() == "mine"
    segment_file(tmp_path / "s2", paths, weights, MapOptions(overwrite=True))
    assert (tmp_path / existing).read_bytes() != b"mine"


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (MapPaths("map.jpg"), "maps are GeoTIFFs"),
        (MapPaths("map.tif", preview="map.doc"), "is no picture"),
        (MapPaths("map.tif", proba="map.tif"), "is asked for twice"),
    ],
)
def test_names_of_outputs_are_checked_first(paths, message):
    from pathlib import Path

    fixed = MapPaths(*(Path(p) if isinstance(p, str) else p for p in vars(paths).values()))
    with pytest.raises(InputError, match=message):
        fixed.check(overwrite=False)


def test_until_forgets_later_dates(tmp_path):
    files = write_folder(tmp_path / "s2")
    weights = model_file(tmp_path)
    segment_file(files, tmp_path / "early.tif", weights, MapOptions(until=date(2019, 5, 2)))
    segment_file(files[:2], tmp_path / "two.tif", weights)
    with rasterio.open(tmp_path / "early.tif") as first, rasterio.open(tmp_path / "two.tif") as second:
        np.testing.assert_array_equal(first.read(), second.read())


def test_xarray_in_xarray_out(tmp_path):
    cube = dataset()
    found = sits.segment(cube, model=model())
    assert found.dims == ("y", "x")
    assert found.dtype == np.uint8
    xr.testing.assert_identical(found.x.reset_coords(drop=True), cube.x.reset_coords(drop=True))
    xr.testing.assert_identical(found.y.reset_coords(drop=True), cube.y.reset_coords(drop=True))
    assert found.attrs["flag_values"].tolist() == [0, 1, 8]
    assert found.attrs["flag_meanings"] == "Meadow Corn Fruits_vegetables"
    assert found.rio.crs.to_epsg() == 32633
    assert found.encoding["grid_mapping"] == "spatial_ref"
    files = write_folder(tmp_path / "s2")
    segment_file(files, tmp_path / "map.tif", model_file(tmp_path))
    with rasterio.open(tmp_path / "map.tif") as written:
        np.testing.assert_array_equal(found.values, written.read(1))
    found.to_netcdf(tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc", decode_coords="all", mask_and_scale=False) as again:
        np.testing.assert_array_equal(again["class"].values, found.values)
        assert again.rio.crs.to_epsg() == 32633


def test_a_lazy_cube_stays_lazy_until_it_is_computed():
    import dask.array as da

    values = numbers()
    loads = []

    def load(block):
        loads.append(block.shape)
        return block

    lazy = dataset().chunk(time=1, y=11, x=9)
    lazy["reflectance"] = lazy.reflectance.copy(
        data=da.from_array(values, chunks=(1, 4, 11, 9)).map_blocks(load, dtype=values.dtype, meta=values[:0])
    )
    found = segment(lazy, model=model(), options=MapOptions(block=8))
    assert found.chunks is not None
    assert loads == []
    np.testing.assert_array_equal(found.compute().values, segment(dataset(), model=model()).values)
    assert loads
    part = found.isel(y=slice(0, 4), x=slice(0, 4))
    loads.clear()
    part.compute()
    assert len(loads) < 27  # only the chunks that the part and its context touch


def test_the_model_may_be_named_or_loaded(tmp_path):
    path = model_file(tmp_path)
    by_file = segment(dataset(), model=path)
    by_module = segment(dataset(), model=load_model(path))
    np.testing.assert_array_equal(by_file.values, by_module.values)


def test_a_missing_band_is_named():
    cube = dataset(names=("B2", "B3", "B4", "B5"))
    with pytest.raises(InputError, match="lacks band B8, which the model needs; found B2, B3, B4, B5"):
        segment(cube, model=model())


def test_geotiff_netcdf_zarr_and_xarray_give_one_map(tmp_path):
    weights = model_file(tmp_path)
    write_folder(tmp_path / "s2")
    dataset().to_netcdf(tmp_path / "s2.nc")
    dataset().to_zarr(tmp_path / "s2.zarr", zarr_format=2)
    maps = []
    for number, source in enumerate(("s2", "s2.nc", "s2.zarr")):
        segment_file(tmp_path / source, tmp_path / f"{number}.tif", weights)
        with rasterio.open(tmp_path / f"{number}.tif") as found:
            maps.append((found.read(1), tuple(found.transform), found.crs.to_epsg()))
    for codes, transform, crs in maps:
        np.testing.assert_array_equal(codes, maps[0][0])
        assert (transform, crs) == (tuple(TRANSFORM), 32633)
    np.testing.assert_array_equal(segment(dataset(), model=weights).values, maps[0][0])


def test_the_real_scene_gives_the_same_map_from_geotiff_and_netcdf(tmp_path):
    weights = model_file(tmp_path, level="L1C")
    folder = shared_data("sits/derived")
    segment_file(str(folder / "S2_L1C_*.tif"), tmp_path / "a.tif", weights)
    options = MapOptions(reading=ReadOptions(mask="none"))  # the NetCDF brings one, the GeoTIFFs do not
    segment_file(folder / "eolearn_s2_l1c_2015_5dates.nc", tmp_path / "b.tif", weights, options)
    with (
        rasterio.open(tmp_path / "a.tif") as first,
        rasterio.open(tmp_path / "b.tif") as second,
        rasterio.open(folder / "S2_L1C_20150711.tif") as source,
    ):
        np.testing.assert_array_equal(first.read(), second.read())
        assert first.transform == second.transform == source.transform
        assert first.shape == source.shape
        assert first.crs == source.crs


@pytest.mark.parametrize(
    ("limits", "inputs", "words"),
    [
        ({"level": "L1C"}, {}, "learned from level L1C, this series is L2A"),
        ({"dates": ["2015-07-11", "2015-09-09"]}, {}, "crops and weather of 2019 may differ"),
        ({"dates": ["2018-10-01", "2018-12-01"]}, {}, "learned from days 30 to 91 of a season"),
        ({"bounds": [1, 43, 2, 44]}, {}, "learned within 1, 43, 2, 44"),
        ({}, {"season_start": "03-20"}, "--season-start 2019-03-20"),
        ({}, {}, None),
        ({"dates": ["2019-03-01", "2019-07-01"], "bounds": [14, 45, 15, 46], "level": "L2A"}, {}, None),
    ],
)
def test_a_series_outside_the_limits_is_warned_of(caplog, limits, inputs, words):
    from sits.predict import warn_outside

    scorer = Scorer(model(**inputs))
    images = series()
    object.__setattr__(images, "notes", {"level": "L2A"})
    card = scorer.card.model_copy(update={"limits": limits})
    warnings = warn_outside(card, scorer.inputs, images)
    if words is None:
        assert warnings == []
    else:
        assert any(words in text for text in warnings)
        assert words in caplog.text
