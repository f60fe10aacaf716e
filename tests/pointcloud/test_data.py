"""Labels both ways, data sets as they are released, and batches that depend on seed and number alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from pydantic import TypeAdapter

from geomix.errors import FormatError, InputError, MissingFileError
from pointcloud.cloud import Cloud
from pointcloud.data import (
    IGNORE,
    LABEL,
    CropConfig,
    Crops,
    DataConfig,
    Inputs,
    LabelledCloud,
    LabelMap,
    Whole,
    collate,
    open_splits,
)
from pointcloud.data.augment import Augment
from pointcloud.data.batches import cut, together, voxel_labels
from pointcloud.data.labels import SCANNET_MAP, SEMANTICKITTI_MAP, SEMANTICKITTI_SPLITS, semantic_ids
from pointcloud.data.scannet import category_ids, read_scene, scenes, vertex_normals
from pointcloud.data.sources import SyntheticData
from pointcloud.synthetic import town
from tests.helpers import shared_data

INPUTS = Inputs(voxel=0.5, features=("offset", "height", "intensity"))
AERIAL = (2, 3, 4, 5, 6)


def config(**values: object) -> object:
    return TypeAdapter(DataConfig).validate_python(values)


# ---------------------------------------------------------------- labels


def test_the_semantickitti_map_is_the_official_one_both_ways() -> None:
    file = shared_data("pointcloud/semantic-kitti-api/semantic-kitti.yaml")
    official = yaml.safe_load(file.read_text(encoding="utf-8"))
    for raw, learned in official["learning_map"].items():
        number = SEMANTICKITTI_MAP.numbers(np.array([raw]))[0]
        assert number == (IGNORE if official["learning_ignore"][learned] else learned - 1)
    for learned, raw in official["learning_map_inv"].items():
        assert SEMANTICKITTI_MAP.to_ids(np.array([learned - 1]))[0] == raw
    splits = official["split"]
    assert {
        "train": tuple(splits["train"]), "val": tuple(splits["valid"]), "test": tuple(splits["test"])
    } == SEMANTICKITTI_SPLITS  # fmt: skip


def test_instances_in_the_upper_bits_do_not_matter() -> None:
    raw = np.array([10 | 5 << 16, 252 | 65535 << 16], dtype=np.uint32)
    assert semantic_ids(raw).tolist() == [10, 252]
    assert SEMANTICKITTI_MAP.numbers(semantic_ids(raw)).tolist() == [0, 0]


def test_numbers_go_back_to_the_ids_they_came_from() -> None:
    numbers = np.arange(20) - 1
    for labels in (SEMANTICKITTI_MAP, SCANNET_MAP):
        ids = labels.to_ids(numbers[: len(labels.ids) + 1])
        assert np.array_equal(labels.numbers(ids), numbers[: len(ids)])


def test_unknown_ids_are_refused_with_their_counts() -> None:
    labels = LabelMap((2, 6), ignored=frozenset({1}))
    with pytest.raises(InputError, match=r"tile: the ids 9 \(2 points\), 64 \(1 points\)"):
        labels.numbers(np.array([2, 9, 9, 64, 1]), "tile")
    assert labels.numbers(np.zeros(0, dtype=np.uint8)).shape == (0,)


@pytest.mark.parametrize(
    ("labels", "message"),
    [({"ids": (1, 1)}, "same id"), ({"ids": (1,), "merged": {3: 2}}, "no classes"),
     ({"ids": (1,), "ignored": frozenset({1})}, "both")], ids=str,
)  # fmt: skip
def test_maps_that_contradict_themselves_are_refused(labels: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelMap(**labels)


# ---------------------------------------------------------------- data sets


def tile(folder: Path, name: str, seed: int) -> None:
    cloud = town(seed, size=8, density=2)
    np.savez(folder / name, coord=cloud.coord, **cloud.fields)


def test_files_are_found_by_pattern_and_split(tmp_path: Path) -> None:
    for seed, name in enumerate(("a1.npz", "a2.npz", "b.npz")):
        tile(tmp_path, name, seed)
    splits = open_splits(config(kind="files", train=["a*.npz"], val=["b.npz"]), tmp_path, AERIAL)
    assert [one.name for one in splits.train] == ["a1.npz", "a2.npz"]
    cloud = splits.val[0].read()
    assert np.array_equal(cloud.fields[LABEL] + 2, cloud.fields["classification"])
    with pytest.raises(InputError, match="no test split"):
        splits.of("test")
    with pytest.raises(InputError, match="there is no split"):
        splits.of("training")
    assert len(splits.of("all")) == 3


def test_a_file_in_two_splits_is_refused(tmp_path: Path) -> None:
    tile(tmp_path, "a.npz", 0)
    with pytest.raises(InputError, match="both the train and the val"):
        open_splits(config(kind="files", train=["*.npz"], val=["a.npz"]), tmp_path, AERIAL)


def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    data = config(kind="files", train=["x*.laz"])
    with pytest.raises(MissingFileError, match="--data"):
        open_splits(data, None, AERIAL)
    with pytest.raises(MissingFileError, match="no such folder"):
        open_splits(data, tmp_path / "nowhere", AERIAL)
    with pytest.raises(MissingFileError, match="'x\\*.laz' of the train split"):
        open_splits(data, tmp_path, AERIAL)
    with pytest.raises(MissingFileError, match="SemanticKITTI"):
        open_splits(config(kind="semantickitti"), tmp_path, SEMANTICKITTI_MAP.ids)


def test_classes_may_be_ignored_or_merged(tmp_path: Path) -> None:
    tile(tmp_path, "a.npz", 0)
    data = config(kind="files", train=["a.npz"], ignored=[3], merged={4: 5})
    numbers = open_splits(data, tmp_path, (2, 5, 6)).train[0].read()
    ids = np.asarray(numbers.fields["classification"])
    assert (numbers.fields[LABEL][ids == 3] == IGNORE).all()
    assert (numbers.fields[LABEL][ids == 4] == 1).all()


def kitti(folder: Path, sequence: str, points: int = 5) -> Path:
    velodyne, labels = (
        folder / "sequences" / sequence / "velodyne",
        folder / "sequences" / sequence / "labels",
    )
    velodyne.mkdir(parents=True)
    labels.mkdir()
    np.arange(points * 4, dtype=np.float32).tofile(velodyne / "000000.bin")
    (np.array([10, 252, 1, 81, 40][:points], dtype=np.uint32) + (7 << 16)).tofile(labels / "000000.label")
    return labels / "000000.label"


def test_semantickitti_sequences_are_split_officially(tmp_path: Path) -> None:
    for sequence in ("00", "08", "11"):
        kitti(tmp_path, sequence)
    splits = open_splits(config(kind="semantickitti"), tmp_path, SEMANTICKITTI_MAP.ids)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [1, 1, 1]
    cloud = splits.val[0].read()
    assert cloud.fields[LABEL].tolist() == [0, 0, IGNORE, 18, 8]
    assert cloud.coord[1].tolist() == [4.0, 5.0, 6.0]


def test_missing_labels_are_an_error_and_no_cars(tmp_path: Path) -> None:
    kitti(tmp_path, "00").unlink()
    splits = open_splits(config(kind="semantickitti"), tmp_path, SEMANTICKITTI_MAP.ids)
    with pytest.raises(MissingFileError, match=r"000000\.label"):
        splits.train[0].read()


def test_labels_of_another_scan_are_refused(tmp_path: Path) -> None:
    np.zeros(3, dtype=np.uint32).tofile(kitti(tmp_path, "00"))
    with pytest.raises(InputError, match="3 labels for 5 points"):
        open_splits(config(kind="semantickitti"), tmp_path, SEMANTICKITTI_MAP.ids).train[0].read()


def test_a_real_semantickitti_scan_has_official_classes() -> None:
    root = shared_data("pointcloud/mmdetection3d/data/semantickitti")
    cloud = open_splits(config(kind="semantickitti"), root, SEMANTICKITTI_MAP.ids).train[0].read()
    assert len(cloud) == 50
    assert set(np.unique(cloud.fields[LABEL])) <= set(range(-1, 19))


def scan_folder(root: Path, name: str = "scene0000_00") -> Path:
    """A scene of two triangles as ScanNet releases it."""
    from plyfile import PlyData, PlyElement

    scene = root / "scans" / name
    scene.mkdir(parents=True)
    vertex = np.array(
        [
            (0, 0, 0, 255, 0, 0, 255),
            (1, 0, 0, 0, 255, 0, 255),
            (0, 1, 0, 0, 0, 255, 255),
            (1, 1, 0, 9, 9, 9, 255),
        ],
        dtype=[(n, "f4") for n in "xyz"] + [(n, "u1") for n in ("red", "green", "blue", "alpha")],
    )
    face = np.array([([0, 1, 2],), ([1, 3, 2],)], dtype=[("vertex_indices", "i4", (3,))])
    elements = [PlyElement.describe(vertex, "vertex"), PlyElement.describe(face, "face")]
    PlyData(elements).write(str(scene / f"{name}_vh_clean_2.ply"))
    segments = {"segIndices": [5, 5, 8, 9]}
    (scene / f"{name}_vh_clean_2.0.010000.segs.json").write_text(json.dumps(segments))
    groups = {"segGroups": [{"label": "office chair", "segments": [5]}, {"label": "alien", "segments": [8]}]}
    (scene / f"{name}.aggregation.json").write_text(json.dumps(groups))
    (root / "scannetv2-labels.combined.tsv").write_text(
        "id\traw_category\tnyu40id\n1\toffice chair\t5\n2\tpenguin\t\n"
    )
    return scene


def test_scannet_is_read_as_released(tmp_path: Path) -> None:
    scan_folder(tmp_path)
    (tmp_path / "scannetv2_train.txt").write_text("scene0000_00\n")
    (tmp_path / "scannetv2_val.txt").write_text("")
    splits = open_splits(config(kind="scannet"), tmp_path, SCANNET_MAP.ids)
    cloud = splits.train[0].read()
    assert cloud.fields["classification"].tolist() == [5, 5, 0, 0]
    assert cloud.fields[LABEL].tolist() == [4, 4, IGNORE, IGNORE]
    assert cloud.fields["color"][0].tolist() == [1, 0, 0]
    np.testing.assert_allclose(cloud.fields["normal"], [[0, 0, 1]] * 4)
    assert splits.val == []


def test_scannet_is_read_as_arrays(tmp_path: Path) -> None:
    scene = tmp_path / "val" / "scene0001_00"
    scene.mkdir(parents=True)
    np.save(scene / "coord.npy", np.zeros((3, 3), np.float32))
    np.save(scene / "color.npy", np.full((3, 3), 51, np.uint8))
    np.save(scene / "segment20.npy", np.array([0, 19, -1], np.int16))
    cloud = read_scene(scene, has_labels=True)
    assert cloud.fields["classification"].tolist() == [1, 39, 0]
    np.testing.assert_allclose(cloud.fields["color"], 0.2)
    assert scenes(tmp_path, "val") == [scene]
    with pytest.raises(MissingFileError, match="train"):
        scenes(tmp_path, "train")


def test_broken_scannet_scenes_are_named(tmp_path: Path) -> None:
    scene = scan_folder(tmp_path)
    segments = scene / "scene0000_00_vh_clean_2.0.010000.segs.json"
    segments.write_text(json.dumps({"segIndices": [1]}))
    with pytest.raises(FormatError, match="1 vertices, the mesh has 4"):
        read_scene(scene, has_labels=True)
    segments.unlink()
    with pytest.raises(MissingFileError, match="segs.json"):
        read_scene(scene, has_labels=True)
    (scene / "scene0000_00_vh_clean_2.ply").write_text("ply\nnonsense")
    with pytest.raises(FormatError, match="coloured ScanNet mesh"):
        read_scene(scene, has_labels=False)


def test_the_official_table_names_nyu40_ids() -> None:
    table = shared_data("pointcloud/LitePT/preprocessing/scannet/meta_data/scannetv2-labels.combined.tsv")
    ids = category_ids(table)
    assert ids["wall"] == 1
    assert ids["office chair"] == 5
    assert set(ids.values()) <= set(range(41))


def test_vertices_without_faces_have_no_normal() -> None:
    normal = vertex_normals(np.zeros((2, 3)), np.zeros((0, 3), dtype=np.int64))
    assert normal.tolist() == [[0, 0, 0]] * 2


# ---------------------------------------------------------------- batches


def towns() -> list[LabelledCloud]:
    return open_splits(SyntheticData(clouds=4, size=16, density=2), None, AERIAL).train


def test_synthetic_towns_need_no_folder_and_are_divided() -> None:
    splits = open_splits(SyntheticData(clouds=4), None, AERIAL)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [2, 1, 1]
    assert len({one.name for one in splits.of("all")}) == 4


def test_voxel_labels_are_the_most_frequent() -> None:
    labels = torch.tensor([0, 2, 2, IGNORE, 1, 3, IGNORE, IGNORE])
    inverse = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    assert voxel_labels(labels, inverse, 4).tolist() == [2, 1, IGNORE, IGNORE]
    assert voxel_labels(labels[:0], inverse[:0], 0).tolist() == []


def test_a_batch_is_its_clouds_one_after_another() -> None:
    data = Whole(towns(), INPUTS)
    first, second = data[0], data[1]
    batch = collate([first, second])
    size = len(first.sample.grid_coord)
    assert batch.cu_seqlens.tolist() == [0, size, size + len(second.sample.grid_coord)]
    assert torch.equal(batch.feat[size:], second.sample.feat)
    assert torch.equal(batch.labels[batch.inverse][: len(first.labels)], batch.labels[first.sample.inverse])
    assert torch.equal(batch.inverse[len(first.labels) :], second.sample.inverse + size)
    assert batch.names == ("town 0", "town 1")


def test_a_sample_is_the_same_whenever_it_is_asked_for() -> None:
    crops = Crops(towns(), INPUTS, CropConfig(radius=(2, 5)), Augment(jitter=0.01), seed=3)
    again = Crops(towns(), INPUTS, CropConfig(radius=(2, 5)), Augment(jitter=0.01), seed=3)
    for number in (0, 7, 2**40):
        assert torch.equal(crops[number].sample.feat, again[number].sample.feat)
        assert torch.equal(crops[number].labels, again[number].labels)
    assert crops[0].labels.shape != crops[1].labels.shape


def test_a_cut_is_a_square_of_limited_size() -> None:
    cloud = towns()[0].read()
    rng = np.random.default_rng(0)
    part = cut(cloud, rng, CropConfig(radius=(3, 3)))
    assert np.ptp(part.coord[:, :2], axis=0).max() <= 6
    assert len(cut(cloud, rng, CropConfig(max_points=50))) == 50
    assert len(cut(cloud, rng, CropConfig(radius=(1, 1), whole=1.0))) == len(cloud)
    assert len(cut(cloud.take(np.arange(0)), rng, CropConfig(radius=(1, 1)))) == 0


def test_rare_classes_are_as_often_in_the_middle_as_common_ones() -> None:
    cloud = Cloud.from_arrays(
        np.stack([np.arange(1000.0), np.zeros(1000), np.zeros(1000)], axis=1),
        label=np.array([0] * 990 + [1] * 10),
    )
    crop = CropConfig(radius=(0.5, 0.5), balanced=1.0)
    rng = np.random.default_rng(0)
    hits = sum((cut(cloud, rng, crop).fields[LABEL] == 1).any() for _ in range(200))
    assert 70 < hits < 130


def test_two_clouds_together_keep_the_fields_of_both() -> None:
    one = Cloud.from_arrays(np.zeros((2, 3)), label=np.array([0, 1]), color=np.zeros((2, 3)))
    two = Cloud.from_arrays(np.ones((1, 3)), label=np.array([2]))
    both = together(one, two)
    assert both.fields["label"].tolist() == [0, 1, 2]
    assert "color" not in both.fields
    mixed = Crops(towns(), INPUTS, CropConfig(mix=1.0), Augment(), seed=0)[0]
    assert "with" in mixed.name


def test_training_needs_a_cloud() -> None:
    with pytest.raises(InputError, match="no cloud"):
        Crops([], INPUTS, CropConfig(), Augment(), 0)
