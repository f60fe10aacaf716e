"""Any folder of classified tiles is looked through, divided, learned from and scored."""

import csv
import logging
from collections import Counter

import laspy
import numpy as np
import pytest
import yaml

from geomix.checkpoint import load_model, read_card
from geomix.cli import run
from geomix.config import find_config
from geomix.errors import InputError, MissingFileError
from geomix.learn.experiment import evaluate
from pointcloud import read_cloud
from pointcloud.data import LABEL
from pointcloud.data.schemes import SCHEMES, class_map
from pointcloud.data.sources import open_splits, reopen_tiles
from pointcloud.data.tiles import draw_parts, find_tiles
from pointcloud.synthetic import town
from pointcloud.task.experiment import PointcloudExperiment, on_tiles
from tests.pointcloud.making import Layers


def write_tile(path, number, size=30.0, classes=None):
    """A made-up town as a LAS tile at its place in a row of tiles."""
    cloud = town(number, size=size, density=4)
    data = laspy.create(point_format=6, file_version="1.4")
    data.header.scales = [0.001] * 3
    data.xyz = cloud.coord - cloud.coord.min(axis=0) + [size * number, 0, 0]
    for name in ("return_number", "number_of_returns"):
        data[name] = cloud.fields[name]
    data.intensity = np.asarray(cloud.fields["intensity"]) * 60_000
    ids = np.asarray(cloud.fields["classification"])
    data.classification = ids if classes is None else classes(ids)
    path.parent.mkdir(parents=True, exist_ok=True)
    data.write(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tiles")
    for number in range(3):
        write_tile(place / "north" / f"tile_{number}.las", number)
    (place / "readme.txt").write_text("these are tiles")
    return place


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The tiny configuration, cut down to seconds."""
    values = yaml.safe_load(find_config("tiny", "pointcloud").read_text())
    values["train"] |= {"epochs": 1, "epoch_steps": 2}
    file = tmp_path_factory.mktemp("config") / "mine.yaml"
    file.write_text(yaml.safe_dump(values | {"name": "mine"}))
    return file


def test_parts_are_whole_blocks_and_hold_each_class(folder):
    found = find_tiles(folder, class_map(None))
    assert found.data.block > 0
    for part in range(3):
        ids = {
            tuple(cell) for cell in np.floor(found.places[found.parts == part] / found.data.block).tolist()
        }
        others = np.floor(found.places[found.parts != part] / found.data.block).tolist()
        assert not ids & {tuple(cell) for cell in others}
    ids = tuple(one.id for one in found.classes)
    splits = open_splits(found.data, folder, ids)
    seen = Counter()
    for part in ("train", "val", "test"):
        labels = np.concatenate([one.read().fields[LABEL] for one in splits.of(part)])
        assert set(labels[labels >= 0].tolist()) == set(range(len(ids))), part
        seen[part] = int((labels >= 0).sum())
    whole = sum(len(read_cloud(file)) for file in folder.glob("north/*.las"))
    assert sum(seen.values()) == whole
    assert 0.1 < seen["test"] / whole < 0.4
    assert sum(found.counts.values()) == whole


def test_the_same_seed_divides_in_the_same_way(folder):
    assert find_tiles(folder, class_map(None)).data == find_tiles(folder, class_map(None)).data


def test_patterns_divide_by_name(folder):
    found = find_tiles(folder, class_map(None), val=["north/tile_2.*"])
    assert found.data.files == {
        "north/tile_0.las": ("train",), "north/tile_1.las": ("train",), "north/tile_2.las": ("val",)
    }  # fmt: skip
    only = find_tiles(folder, class_map(None), train=["**/tile_0.las"], val=["**/tile_1.las"])
    assert set(only.data.files) == {"north/tile_0.las", "north/tile_1.las"}
    with pytest.raises(MissingFileError, match=r"no point cloud matches 'south/\*' of the val part"):
        find_tiles(folder, class_map(None), val=["south/*"])
    with pytest.raises(InputError, match="both the train and the val part"):
        find_tiles(folder, class_map(None), train=["**/*.las"], val=["**/tile_1.las"])


def test_a_table_joins_names_and_leaves_out_classes(folder, tmp_path):
    table = tmp_path / "map.csv"
    table.write_text("from,to,name,color\n2,1,ground,#aa8855\n3,2,plants,#00aa00\n4,2,,\n5,2,,\n6,,,\n")
    found = find_tiles(folder, class_map(table))
    assert [(one.id, one.name) for one in found.classes] == [(1, "ground"), (2, "plants")]
    assert found.data.labels == {2: 1, 3: 2, 4: 2, 5: 2, 6: None}


def test_what_is_rare_or_unknown_is_named_and_left_out(tmp_path, caplog):
    def changed(ids):
        ids = ids.copy()
        ids[:40], ids[40:60] = 9, 201
        return ids

    write_tile(tmp_path / "a.las", 0, 50.0, changed)
    with caplog.at_level(logging.WARNING):
        found = find_tiles(tmp_path, class_map("asprs"))
    assert "class 'water' has 40 points only, too few to learn" in caplog.text
    assert "ids 201 (20 points) have no class" in caplog.text
    assert found.data.labels[9] is None
    assert found.data.labels[201] is None


def test_unclassified_tiles_of_ahn_are_pointed_to_their_scheme(tmp_path, caplog):
    write_tile(tmp_path / "a.las", 0, 50.0, lambda ids: np.where(np.isin(ids, (3, 4, 5)), 1, ids))
    with caplog.at_level(logging.WARNING):
        find_tiles(tmp_path, class_map(None))
    assert "--classes ahn learns it" in caplog.text
    assert "vegetation and other" in find_tiles(tmp_path, class_map("ahn")).counts


def test_a_folder_without_anything_to_learn_says_why(tmp_path):
    with pytest.raises(MissingFileError, match="holds no point clouds"):
        find_tiles(tmp_path, class_map(None))
    write_tile(tmp_path / "a.las", 0, classes=lambda ids: np.full_like(ids, 2))
    with pytest.raises(InputError, match=r"1 class\(es\) of 1000 points or more"):
        find_tiles(tmp_path, class_map(None))
    with pytest.raises(InputError, match="no class scheme 'asprss'; did you mean 'asprs'"):
        class_map("asprss")


def test_schemes_name_each_id_once():
    for scheme in SCHEMES.values():
        assert len({one.name for one in scheme.classes}) == len(scheme.classes)
        assert {one.id for one in scheme.classes} <= {int(label) for label in scheme.ids}


def test_a_picture_shows_the_parts(folder, tmp_path):
    draw_parts(find_tiles(folder, class_map(None)), tmp_path / "parts.png")
    assert (tmp_path / "parts.png").read_bytes().startswith(b"\x89PNG")


def test_shared_classes_keep_the_weights_of_the_model_to_start_from(folder):
    experiment = PointcloudExperiment("aerial", folder, classes="asprs")
    assert experiment.config.start == "aerial"
    before = load_model("aerial")
    model = experiment.build(None, before)
    ours = [one.name for one in experiment.config.classes]
    theirs = [one.name for one in before.card.classes]
    for name in set(ours) & set(theirs):
        assert (model.head.weight[ours.index(name)] == before.head.weight[theirs.index(name)]).all()
    assert (model.stem.weight == before.stem.weight).all()
    assert on_tiles(PointcloudExperiment("aerial").config, experiment.found, "x", "none").train.epochs == 60


def test_two_commands_learn_own_tiles_and_score_others(folder, quick, tmp_path, capsys, caplog):
    out = tmp_path / "run"
    assert run(["pointcloud", "train", str(quick), "--data", str(folder), "-o", str(out)]) == 0
    assert {"mine.safetensors", "forest.safetensors", "parts.png", "report.txt", "config.yaml"} <= {
        file.name for file in out.iterdir()
    }
    assert "forest" in (out / "report.txt").read_text()
    card = read_card(out / "mine.safetensors")
    assert [one.name for one in card.classes][:1] == ["ground"]
    model = load_model(out / "mine.safetensors")
    again = evaluate(PointcloudExperiment, model, folder, "val")
    assert again["miou"] == pytest.approx(card.metrics["val"]["miou"])
    write_tile(tmp_path / "more" / "new.las", 7)
    capsys.readouterr()
    words = [
        "pointcloud",
        "evaluate",
        "--model",
        str(out / "forest.safetensors"),
        "--data",
        str(tmp_path / "more"),
    ]
    assert run([*words, "--csv", str(tmp_path / "e.csv")]) == 0
    text = capsys.readouterr().out
    assert "recall" in text
    assert "truth \\ predicted" in text
    rows = list(csv.DictReader((tmp_path / "e.csv").read_text().splitlines()))
    assert [row["class"] for row in rows] == [one.name for one in card.classes]
    assert sum(int(row["support"]) for row in rows) == len(read_cloud(tmp_path / "more" / "new.las"))


def test_tiles_that_took_part_in_the_training_are_named(folder, caplog):
    found = find_tiles(folder, class_map(None), val=["north/tile_2.*"])
    ids = tuple(one.id for one in found.classes)
    splits = reopen_tiles(found.data, folder, ids)
    stand_in = Layers(classes=found.classes)
    with caplog.at_level(logging.WARNING):
        PointcloudExperiment.score(stand_in, splits, "val")
        assert "took part in the training" not in caplog.text
        PointcloudExperiment.score(stand_in, splits, "all")
    assert "took part in the training, so their scores flatter: north/tile_0.las" in caplog.text
