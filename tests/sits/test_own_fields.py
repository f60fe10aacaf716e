import json
from datetime import date, timedelta

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
from shapely.geometry import box

from geomix.checkpoint import load_model, read_card
from geomix.cli import run
from geomix.errors import InputError
from sits.data.inputs import Inputs
from sits.data.own import LabelOptions, pair_sets, read_own
from sits.io.options import ReadOptions
from sits.model.fields import Steps
from sits.task.fields import FieldsTraining, season_of, train_fields
from sits.task.learners import LEARNERS, Rows, able, probe_of
from tests.helpers import shared_data

SIDE, FIELD = 60, 6
CROPS = ("maize", "soy", "wheat")
# Peaks of greenness, days after 1 September: seasons of the southern hemisphere run over New Year.
PEAKS = (120, 160, 50)


def truth(seed=0):
    """A field every six pixels, [side, side]."""
    return np.kron(
        np.random.default_rng(seed).integers(0, 3, (SIDE // FIELD,) * 2), np.ones((FIELD, FIELD), int)
    )


def write_series(folder, year, first, step, seed):
    """A 30 m series of four bands from September to April, with clouds of no data."""
    folder.mkdir()
    rng, crops = np.random.default_rng(seed), truth()
    start = date(year, 9, 1)
    for days in range(first, 230, step):
        green = np.exp(-(((days - np.array(PEAKS)[crops]) / 40.0) ** 2))
        bands = np.stack([0.10 - 0.06 * green, 0.08 - 0.03 * green, 0.2 + 0.25 * green, 0.25 - 0.1 * green])
        numbers = np.rint(1e4 * (bands + rng.normal(0, 0.01, bands.shape)).clip(0.001))
        row, col = rng.integers(0, SIDE - 20, 2)
        numbers[:, row : row + 20, col : col + 20] = 0
        file = folder / f"LC08_{start + timedelta(days=days):%Y%m%d}.tif"
        size = {"height": SIDE, "width": SIDE, "transform": rasterio.Affine(30, 0, 3e5, 0, -30, 6.2e6)}
        profile = {"driver": "GTiff", "count": 4, "dtype": "uint16", "nodata": 0, "crs": "EPSG:32721"}
        with rasterio.open(file, "w", **profile, **size) as out:
            out.write(numbers.astype("uint16"))
            out.descriptions = ("B4", "B3", "B8", "B11")


def write_fields(file, chosen):
    """Some of the fields with their crop."""
    rows = []
    for number in chosen:
        row, col = divmod(number, SIDE // FIELD)
        west, north = 3e5 + 30 * FIELD * col, 6.2e6 - 30 * FIELD * row
        crop = CROPS[truth()[row * FIELD, col * FIELD]]
        rows.append((crop, box(west, north - 30 * FIELD, west + 30 * FIELD, north)))
    table = gpd.GeoDataFrame(
        {"crop": [crop for crop, _ in rows]}, geometry=[shape for _, shape in rows], crs=32721
    )
    # In another system than the images, as registers come.
    table.to_crs(4326).to_file(file, engine="pyogrio")


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """What is shown here does not need large forests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sits.task.learners.TREES", 40)
        patch.setattr("sits.task.learners.ROUNDS", 20)
        yield


@pytest.fixture(scope="module")
def land(few_trees, tmp_path_factory):
    folder = tmp_path_factory.mktemp("land")
    write_series(folder / "2022", 2022, 5, 20, seed=1)
    write_series(folder / "2023", 2023, 12, 16, seed=2)
    order = np.random.default_rng(3).permutation((SIDE // FIELD) ** 2)
    write_fields(folder / "fields.gpkg", order[:45])
    write_fields(folder / "checked.gpkg", order[40:])
    command = [
        "sits",
        "train",
        "fields",
        "--images",
        f"{folder}/2022/*.tif",
        "--labels",
        f"{folder}/fields.gpkg",
    ]
    options = ["--field", "crop", "--folds", "3", "--scale", "1e-4", "-o", f"{folder}/run", "--quiet"]
    assert run([*command, *options]) == 0
    return folder


def test_three_lines_lead_from_own_fields_to_the_map_of_another_year_and_its_accuracy(land, capsys):
    model, images = f"{land}/run/fields.safetensors", f"{land}/2023/*.tif"
    end = ["--scale", "1e-4", "-o", f"{land}/map.tif", "--quiet", "--overwrite"]
    assert run(["sits", "segment", images, "--model", model, *end]) == 0
    with rasterio.open(land / "map.tif") as dataset:
        codes = dataset.read(1)
    assert (codes == truth() + 1).mean() > 0.95
    capsys.readouterr()
    line = ["sits", "evaluate", "--map", f"{land}/map.tif", "--reference", f"{land}/checked.gpkg"]
    assert run([*line, "--field", "crop", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["overall"]["value"] > 0.9
    assert {*figures["classes"]} == {*CROPS}
    assert figures["references"] == 60
    assert any("5 of 60 references took part in the training" in note for note in figures["notes"])
    assert run([*line, "--field", "crop", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("class,users,users_half,")


def test_the_pretrained_base_alone_maps_another_year_from_ten_fields_a_class(land):
    own = ["--images", f"{land}/2022/*.tif", "--labels", f"{land}/fields.gpkg", "--field", "crop"]
    taught = ["--learner", "base", "--folds", "2", "--scale", "1e-4", "-o", f"{land}/base", "--quiet"]
    assert run(["sits", "train", "fields", *own, *taught]) == 0
    model = f"{land}/base/fields.safetensors"
    end = ["--scale", "1e-4", "-o", f"{land}/base.tif", "--quiet"]
    assert run(["sits", "segment", f"{land}/2023/*.tif", "--model", model, *end]) == 0
    with rasterio.open(land / "base.tif") as dataset:
        assert (dataset.read(1) == truth() + 1).mean() > 0.9


def test_bands_that_the_base_does_not_know_leave_it_out():
    inputs = Inputs(bands=("NDVI", "EVI"), mean=(0.5, 0.5), std=(0.2, 0.2))
    assert probe_of(inputs, Steps(first=0, count=3), 2) is None
    rows = Rows(np.zeros((4, 6), np.float32), np.arange(4) % 2, np.arange(4), 2, np.zeros((4, 0), np.float32))
    assert able(rows) == ["forest", "trees"]
    with pytest.raises(InputError, match="knows none of these bands"):
        LEARNERS["base"](rows, 0)


def test_the_card_tells_cross_validated_figures_and_says_so(land):
    card = read_card(land / "run" / "fields.safetensors")
    found = card.metrics["cross-validation"]
    assert found["folds"] == 3
    assert {*found["learners"]} == {"forest", "trees", "base", "blend"}
    assert found["oa"] > 0.9
    assert "had not seen" in found["note"]
    assert len(card.data[0].split["shapes"]) == 45
    assert [one.name for one in card.classes] == [*CROPS]
    assert card.limits["dates"] == ["2022-09-06", "2023-04-14"]
    for name in ("report.txt", "report.json", "report.csv", "folds.png"):
        assert (land / "run" / name).stat().st_size > 100


def test_the_model_loads_without_scikit_learn_and_maps_alike_in_every_block(land, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    model, images = f"{land}/run/fields.safetensors", f"{land}/2023/*.tif"
    for block in (13, 64):
        end = ["--scale", "1e-4", "--block", str(block), "-o", str(tmp_path / f"{block}.tif"), "--quiet"]
        proba = ["--proba", str(tmp_path / f"p{block}.tif")]
        assert run(["sits", "segment", images, "--model", model, *end, *proba]) == 0
    for pair in (("13.tif", "64.tif"), ("p13.tif", "p64.tif")):
        first, second = (rasterio.open(tmp_path / name).read() for name in pair)
        np.testing.assert_array_equal(first, second)


def own(land, labels="fields.gpkg", **options):
    sets = pair_sets([[f"{land}/2022/*.tif"]], [land / labels])
    return read_own(sets, ReadOptions(scale=1e-4), LabelOptions(column="crop", **options))


def test_the_model_does_not_depend_on_the_order_of_the_labels(land, tmp_path):
    table = gpd.read_file(land / "fields.gpkg")
    table.iloc[::-1].to_file(land / "turned.gpkg", engine="pyogrio")
    config = FieldsTraining(learner="forest", folds=2)
    files = [
        train_fields(own(land, name), config, tmp_path / name[:5]) for name in ("fields.gpkg", "turned.gpkg")
    ]
    first, second = (load_model(file).state_dict() for file in files)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_class_with_too_few_fields_is_named_and_left_out(land, tmp_path, caplog):
    table = gpd.read_file(land / "fields.gpkg")
    table.loc[:1, "crop"] = "oats"
    table.to_file(land / "oats.gpkg", engine="pyogrio")
    found = own(land, "oats.gpkg")
    assert [one.name for one in found.classes] == [*CROPS]
    assert len(found.keys) == 43
    assert "class oats has 2 shapes, fewer than 3, and is left out" in caplog.text
    with pytest.raises(InputError, match="0 classes have at least 90 labelled shapes"):
        own(land, fewest=90)


def test_shapes_that_cross_validation_contradicts_are_written_to_be_checked(land, tmp_path):
    table = gpd.read_file(land / "fields.gpkg")
    wrong = table.index[table["crop"] == "wheat"][0]
    table.loc[wrong, "crop"] = "maize"
    table.to_file(land / "wrong.gpkg", engine="pyogrio")
    train_fields(own(land, "wrong.gpkg"), FieldsTraining(learner="forest", folds=3), tmp_path)
    suspects = gpd.read_file(tmp_path / "suspects.gpkg")
    assert suspects["label"].tolist() == ["maize"]
    assert suspects["found"].tolist() == ["wheat"]
    assert suspects.geometry.iloc[0].centroid.distance(table.geometry[wrong].centroid) < 1e-6


def test_two_sets_of_images_and_labels_are_learned_together(land):
    sets = pair_sets(
        [[f"{land}/2022/*.tif"], [f"{land}/2023/*.tif"]], [land / "fields.gpkg", land / "checked.gpkg"]
    )
    both = read_own(sets, ReadOptions(scale=1e-4), LabelOptions(column="crop"))
    assert len(both.sets) == 2
    # Five fields stand in both: one shape, in one fold.
    assert len(both.keys) == 100
    with pytest.raises(InputError, match="2 files of labels need as many --images"):
        pair_sets([["a"]], [land / "fields.gpkg", land / "checked.gpkg"])


def test_the_season_begins_in_the_middle_of_the_time_without_images():
    assert season_of([[date(2023, month, 1) for month in (3, 5, 11)]]) == "12-31"
    # A gap in the middle of the season, as clouds make it, does not count; the longest series does.
    southern = [date(2022, 9, 6), date(2022, 10, 1), date(2023, 4, 14)]
    assert season_of([southern, [date(2021, 1, 1)]]) == "06-26"
    assert season_of([[date(2024, 2, 29), date(2025, 6, 1)]]) == "02-28"


def test_segment_without_a_model_says_how_to_get_one(land, capsys):
    assert run(["sits", "segment", f"{land}/2023/*.tif", "-o", "map.tif"]) == 1
    told = capsys.readouterr().err
    assert "sits train fields --images" in told
    assert "--model runs/fields/fields.safetensors" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "fields"], "needs --images and --labels"),
        (["evaluate", "--map", "map.tif"], "both --map and --reference"),
        (["evaluate"], "give a model"),
    ],
)
def test_what_is_missing_on_the_command_line_is_told(arguments, words, capsys):
    assert run(["sits", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_the_three_lines_run_on_a_real_scene_with_its_register(tmp_path, capsys):
    images = f"{shared_data('sits/derived')}/S2_L1C_*.tif"
    register = gpd.read_file(shared_data("sits/eolearn/LULC.gpkg"))
    order = np.random.default_rng(0).permutation(len(register))
    register.iloc[order[:60]].to_file(tmp_path / "fields.gpkg", engine="pyogrio")
    register.iloc[order[60:]].to_file(tmp_path / "checked.gpkg", engine="pyogrio")
    labels = ["--labels", f"{tmp_path}/fields.gpkg", "--field", "LULC_NAME"]
    few = ["--learner", "forest", "--folds", "2", "--quiet"]
    assert run(["sits", "train", "fields", "--images", images, *labels, *few, "-o", f"{tmp_path}/run"]) == 0
    model = f"{tmp_path}/run/fields.safetensors"
    assert run(["sits", "segment", images, "--model", model, "-o", f"{tmp_path}/map.tif", "--quiet"]) == 0
    capsys.readouterr()
    line = ["--map", f"{tmp_path}/map.tif", "--reference", f"{tmp_path}/checked.gpkg", "--field", "LULC_NAME"]
    assert run(["sits", "evaluate", *line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["value"] > 0.4


def test_a_series_that_begins_just_before_the_season_is_counted_in_the_learned_one(land):
    from sits.predict import load_scorer

    scorer = load_scorer(land / "run" / "fields.safetensors")
    start = date(2030, *map(int, scorer.inputs.season_start.split("-")))
    inside = [start + timedelta(days=days) for days in (-10, 80, 200, 280)]
    assert scorer.season(inside) == start
    assert scorer.season(inside[1:]) == start
