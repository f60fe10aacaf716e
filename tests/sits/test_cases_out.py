"""What users of satellite series stumble over while mapping, and what must happen instead."""

import json
import logging
from datetime import date

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
from lxml import etree
from rio_cogeo.cogeo import cog_validate
from shapely.geometry import box

from geomix.config import load_config
from geomix.errors import InputError, MemoryBudgetError
from geomix.learn.experiment import train
from sits.data import LabelledSeries
from sits.io.options import MapOptions
from sits.polygons import polygonize_file, zonal
from sits.predict import MapPaths, Scorer, score_blocks, segment_file, warn_outside
from sits.series import Acquisition, TimeSeries
from sits.state import read_state, segment_and_keep, update_file
from sits.task import SitsConfig, SitsExperiment, score_by_month
from tests.sits.making import (
    BANDS,
    CLASSES,
    DATES,
    TRANSFORM,
    card,
    dataset,
    grid,
    model,
    model_file,
    numbers,
    series,
    write_folder,
)


def read(path):
    with rasterio.open(path) as found:
        return found.read()


class Watched:
    """Numbers that are made when a window is read, and the size of the largest window."""

    largest = 0

    def read(self, steps, bands, window):
        Watched.largest = max(Watched.largest, window.height * window.width)
        rows = np.arange(window.row, window.row + window.height)[:, None]
        cols = np.arange(window.col, window.col + window.width)
        phase = np.add.outer(np.array(steps) * 0.7, np.arange(len(bands)))[..., None, None]
        values = 0.25 + 0.2 * np.sin(phase + rows / 9 + cols / 7)
        return values.astype(np.float32), np.ones((len(steps), window.height, window.width), dtype=bool)


def watched(side):
    Watched.largest = 0
    return TimeSeries(grid((side, side)), tuple(map(Acquisition, DATES)), BANDS, Watched(), "made-up scene")


def test_case_17_a_scene_larger_than_memory_is_read_in_windows(tmp_path):
    weights = model_file(tmp_path)
    segment_file(watched(120), tmp_path / "a.tif", weights, MapOptions(memory="1GB"))
    assert Watched.largest == 120**2
    segment_file(watched(120), tmp_path / "b.tif", weights, MapOptions(memory="2MB"))
    assert 0 < Watched.largest < 50**2
    np.testing.assert_array_equal(read(tmp_path / "a.tif"), read(tmp_path / "b.tif"))
    with pytest.raises(MemoryBudgetError):
        segment_file(watched(120), tmp_path / "c.tif", weights, MapOptions(memory="50kB"))


def test_case_17_an_interrupted_map_goes_on_where_it_stopped(tmp_path, monkeypatch):
    weights = model_file(tmp_path)
    paths = MapPaths(tmp_path / "map.tif", proba=tmp_path / "proba.tif")
    segment_file(
        watched(60), MapPaths(tmp_path / "whole.tif", proba=tmp_path / "p.tif"), weights, MapOptions(block=20)
    )
    scored = []
    plain = Scorer.scores

    def stop_after_four(self, images, days, window):
        if len(scored) == 4:
            raise KeyboardInterrupt
        scored.append(window)
        return plain(self, images, days, window)

    monkeypatch.setattr(Scorer, "scores", stop_after_four)
    with pytest.raises(KeyboardInterrupt):
        segment_file(watched(60), paths, weights, MapOptions(block=20, resume=True))
    assert not paths.map.exists()
    first = scored.copy()
    scored.clear()
    monkeypatch.setattr(Scorer, "scores", lambda *a: scored.append(a[3]) or plain(*a))
    with pytest.raises(InputError, match="was begun with another input, model or set of outputs"):
        segment_file(watched(60), paths.map, weights, MapOptions(resume=True))
    segment_file(watched(60), paths, weights, MapOptions(block=30, resume=True))
    blocks = watched(60).grid.block_count(20, watched(60).grid.phase(2))
    assert len(scored) == blocks - 4  # the blocks keep their size
    assert not set(scored) & set(first)
    np.testing.assert_array_equal(read(paths.map), read(tmp_path / "whole.tif"))
    np.testing.assert_array_equal(read(paths.proba), read(tmp_path / "p.tif"))
    assert not [file for file in tmp_path.iterdir() if "unfinished" in file.name]


@pytest.mark.parametrize(
    "rooms",
    [{}, {"place_code": "table", "tile": 8, "window": None}, {"window": None}],
    ids=["window", "tiles", "scene"],
)
def test_case_18_no_seam_shows_between_blocks(rooms):
    scorer, images = Scorer(model(rooms)), series(numbers(shape=(40, 40)))

    def whole(block):
        found = np.zeros((3, 40, 40), dtype=np.float32)
        for scores in score_blocks(scorer, images, block):
            found[:, *scores.window.slices] = scores.logits
        return found

    for block in (8, 16, 24):
        np.testing.assert_allclose(whole(block), whole(40), atol=1e-5)


def test_case_19_the_map_is_a_cog_with_all_that_belongs_to_it(tmp_path):
    values = numbers(shape=(700, 600))
    write_folder(tmp_path / "s2", values)
    segment_file(tmp_path / "s2", tmp_path / "map.tif", model_file(tmp_path), MapOptions(block=256))
    valid, errors, warnings = cog_validate(tmp_path / "map.tif", strict=True)
    assert (valid, errors, warnings) == (True, [], [])
    with rasterio.open(tmp_path / "map.tif") as found:
        assert found.overviews(1)
        small = found.read(1, out_shape=(found.height // 2, found.width // 2))
        cells = found.read(1).reshape(350, 2, 300, 2).swapaxes(1, 2).reshape(350, 300, 4)
        assert (cells.min(2) < cells.max(2)).mean() > 0.05
        assert (small[..., None] == cells).any(2).all()  # never a mean of codes
        assert found.nodata == 255
        assert found.descriptions == ("class",)
        assert found.tags()["GEOMIX_MODEL"] == "fake"
        assert found.colormap(1)[0] == (0xAE, 0xC7, 0xE8, 255)


def test_case_20_the_legend_shows_names_not_numbers(tmp_path):
    write_folder(tmp_path / "s2")
    segment_file(tmp_path / "s2", MapPaths(tmp_path / "map.tif", item=True), model_file(tmp_path))
    side = etree.parse(tmp_path / "map.tif.aux.xml").getroot()
    names = [node.text or "" for node in side.iter("Category")]
    assert [names[entry.id] for entry in CLASSES] == [entry.name for entry in CLASSES]
    assert len(names) == 9  # up to the highest code, not 256
    style = etree.parse(tmp_path / "map.qml").getroot()
    shown = {(int(e.get("value")), e.get("label"), e.get("color")) for e in style.iter("paletteEntry")}
    assert shown == {(entry.id, entry.name, entry.color) for entry in CLASSES}
    item = json.loads((tmp_path / "map.json").read_text())
    listed = {entry["value"]: entry for entry in item["assets"]["map"]["classification:classes"]}
    assert listed[8]["title"] == "Fruits, vegetables"
    assert listed[8]["color_hint"] == "E377C2"


def test_case_21_probabilities_do_not_depend_on_blocks_either(tmp_path):
    write_folder(tmp_path / "s2")
    weights = model_file(tmp_path)
    for name, block in (("a", 8), ("b", 32)):
        paths = MapPaths(tmp_path / f"{name}.tif", tmp_path / f"{name}_p.tif", tmp_path / f"{name}_e.tif")
        segment_file(tmp_path / "s2", paths, weights, MapOptions(block=block))
    shares = read(tmp_path / "a_p.tif")
    assert shares.dtype == np.uint8
    assert shares.max() <= 100
    assert np.abs(shares.astype(int) - read(tmp_path / "b_p.tif").astype(int)).max() <= 1
    assert np.abs(read(tmp_path / "a_e.tif").astype(int) - read(tmp_path / "b_e.tif").astype(int)).max() <= 1
    with rasterio.open(tmp_path / "a_p.tif") as found:
        assert found.descriptions == ("Meadow", "Corn", "Fruits, vegetables")


def test_case_22_class_0_is_no_hole_and_void_is_never_predicted(tmp_path):
    values = numbers()
    values[:, :, :3] = 0
    write_folder(tmp_path / "s2", values)
    segment_file(tmp_path / "s2", tmp_path / "map.tif", model_file(tmp_path))
    with rasterio.open(tmp_path / "map.tif") as found:
        codes = found.read(1)
        assert found.nodata == 255
        np.testing.assert_array_equal(found.read_masks(1) == 0, codes == 255)
    assert (codes[:3] == 255).all()
    assert set(np.unique(codes[3:])) <= {0, 1, 8}
    ids = {entry.id for entry in load_config("scene", "sits", SitsConfig).classes}
    assert ids == set(range(19))  # 19, void, is no class of the PASTIS models


def test_case_24_parcels_of_another_system_are_not_lost(tmp_path, caplog):
    write_folder(tmp_path / "s2")
    segment_file(tmp_path / "s2", tmp_path / "map.tif", model_file(tmp_path))
    _, _, c, _, e, f = tuple(TRANSFORM)[:6]
    fields = gpd.GeoDataFrame(geometry=[box(c + 30, f + 10.5 * e, c + 95.2, f - 30)], crs="EPSG:32633")
    fields.to_crs("EPSG:3035").to_file(tmp_path / "fields.gpkg")
    found = zonal(tmp_path / "map.tif", tmp_path / "fields.gpkg")
    assert found.crs.to_epsg() == 3035
    assert found["valid_share"].item() == pytest.approx(1, abs=1e-3)
    shares = found[[column for column in found.columns if column.startswith("share_")]].sum(axis=1)
    assert shares.item() == pytest.approx(1, abs=1e-6)
    assert "brought from EPSG:3035 to EPSG:32633" in caplog.text


def test_case_25_a_map_is_outlined_strip_by_strip_with_names(tmp_path):
    write_folder(tmp_path / "s2")
    segment_file(tmp_path / "s2", tmp_path / "map.tif", model_file(tmp_path))
    whole = gpd.read_file(polygonize_file(tmp_path / "map.tif", tmp_path / "a.gpkg"))
    strips = gpd.read_file(polygonize_file(tmp_path / "map.tif", tmp_path / "b.gpkg", rows=7))
    assert len(whole) == len(strips)
    named = {entry.id: entry.name for entry in CLASSES}
    shown = np.unique(read(tmp_path / "map.tif")).tolist()
    for found in (whole, strips):
        assert set(found["class_id"]) == set(shown)
        assert [named[code] for code in found["class_id"]] == list(found["class_name"])
    by_class = [found.dissolve("class_id") for found in (whole, strips)]
    assert by_class[0].geometry.geom_equals(by_class[1].geometry, align=True).all()
    assert strips["area_ha"].sum() == pytest.approx(30 * 26 * abs(TRANSFORM.determinant) / 1e4)
    few = gpd.read_file(polygonize_file(tmp_path / "map.tif", tmp_path / "c.gpkg", smallest=20))
    assert len(few) < len(whole)


def test_case_26_a_season_is_judged_before_it_ends(tmp_path):
    """What later images show changes nothing before they come; then the map is that of the whole season."""
    files = write_folder(tmp_path / "s2")
    weights = model_file(tmp_path, {"causal": True})
    whole = segment_file(files, MapPaths(tmp_path / "c.tif", proba=tmp_path / "c_p.tif"), weights)
    early = {name: MapPaths(tmp_path / f"{name}.tif", proba=tmp_path / f"{name}_p.tif") for name in "ab"}
    segment_file(files[:2], early["a"], weights)
    segment_and_keep(files, early["b"], weights, tmp_path / "state", MapOptions(until=date(2019, 6, 20)))
    assert read_state(tmp_path / "state").dates == DATES[:2]
    later = update_file(
        tmp_path / "state", files[2:], MapPaths(tmp_path / "d.tif", proba=tmp_path / "d_p.tif")
    )
    for role in ("map", "proba"):
        first, second = (read(one.rasters[role]).astype(int) for one in early.values())
        full, updated = (read(one.rasters[role]).astype(int) for one in (whole, later))
        np.testing.assert_array_equal(first, second)
        assert np.abs(full - updated).max() <= (role == "proba")
        assert (full != first).any()


def test_case_26_accuracy_is_told_month_by_month():
    scorer, images = Scorer(model()), series()
    truth = Scorer(model()).scores(images, scorer.days(images), images.grid.whole).logits.argmax(0)
    labelled = LabelledSeries(images, truth.astype(np.int64))
    curve = score_by_month(scorer, [labelled])
    assert list(curve) == ["2019-03", "2019-04", "2019-05", "2019-06"]
    assert curve["2019-06"]["oa"] == 1
    assert curve["2019-03"] == curve["2019-04"]  # nothing new was seen in April
    assert curve["2019-03"]["oa"] < 1


def test_case_27_another_year_or_region_is_warned_of(caplog):
    caplog.set_level(logging.INFO, logger="sits")
    scorer = Scorer(model())
    limits = {"dates": ["2017-09-20", "2018-10-01"], "bounds": [1, 43, 2, 44], "region": "France"}
    warn_outside(card().model_copy(update={"limits": limits}), scorer.inputs, series())
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any("crops and weather of 2019 may differ" in text for text in warned)
    assert any("this series lies at 14.55 E 45.87 N" in text for text in warned)
    assert any("region France" in record.message for record in caplog.records)
    caplog.clear()
    winter = series(numbers(), [date(2018, 10, 1), date(2018, 11, 1), date(2018, 12, 1)])
    summer = {"dates": ["2018-06-01", "2018-08-30"]}
    warn_outside(card().model_copy(update={"limits": summer}), scorer.inputs, winter)
    assert "learned from days 273 to 363 of a season" in caplog.text


@pytest.mark.parametrize("gpu", [False, True])
def test_case_28_workers_and_device_are_chosen_apart(gpu, tmp_path, monkeypatch):
    values = load_config("tiny", "sits", SitsConfig).model_dump()
    values["data"] |= {"patches": 5, "size": 16, "dates": 4}
    values["train"] |= {"workers": 1}
    found = []

    def stop(task, data, *rest, **more):
        found.append(data.train_dataloader().num_workers)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr("geomix.learn.experiment.fit", stop)
    with pytest.raises(KeyboardInterrupt):
        train(SitsExperiment(SitsConfig.model_validate(values)), tmp_path, device="cpu")
    assert found == [1]
    assert load_config("scene", "sits", SitsConfig).train.workers == 8


def test_one_dataset_gives_one_map_however_it_is_kept(tmp_path):
    weights = model_file(tmp_path)
    dataset().to_netcdf(tmp_path / "s2.nc")
    write_folder(tmp_path / "s2")
    segment_file(tmp_path / "s2.nc", tmp_path / "a.tif", weights)
    segment_file(tmp_path / "s2", tmp_path / "b.tif", weights)
    np.testing.assert_array_equal(read(tmp_path / "a.tif"), read(tmp_path / "b.tif"))
