import logging

import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError, UnsupportedError
from pointcloud.io import ReadOptions, WriteOptions, read_cloud, write_cloud
from pointcloud.io.floats import find_labels, read_labels, with_labels
from tests.helpers import shared_data
from tests.pointcloud.making import scatter


def table(columns, count=61):
    """A scan as KITTI (4), nuScenes (5) or ScanNet (6) lay it out."""
    rng = np.random.default_rng(5)
    coord = scatter(count) - 5
    rest = {
        4: rng.random((count, 1)).round(2),
        5: np.stack([rng.integers(0, 256, count), rng.integers(0, 32, count)], axis=1),
        6: rng.integers(0, 256, (count, 3)),
    }[columns]
    return np.concatenate([coord, rest], axis=1).astype("<f4")


def make(path, columns, count=61):
    values = table(columns, count)
    path.parent.mkdir(parents=True, exist_ok=True)
    values.tofile(path)
    return path, values


@pytest.mark.parametrize("count", [1, 3, 20, 60, 61, 120])
@pytest.mark.parametrize("columns", [4, 5, 6])
def test_the_numbers_tell_the_columns(tmp_path, columns, count, caplog):
    caplog.set_level(logging.INFO)
    path, values = make(tmp_path / "a.bin", columns, count)
    cloud = read_cloud(path)
    assert np.array_equal(cloud.coord, values[:, :3].astype(np.float64))
    assert f"{columns} float32 columns" in caplog.text


def test_fields_have_the_words_of_a_cloud(tmp_path):
    path, values = make(tmp_path / "a.bin", 4)
    assert np.array_equal(read_cloud(path).fields["intensity"], values[:, 3])
    path, values = make(tmp_path / "b.pcd.bin", 5)
    cloud = read_cloud(path)
    assert cloud.fields["intensity"] == pytest.approx(values[:, 3] / 255)
    assert np.array_equal(cloud.fields["ring"], values[:, 4])
    path, values = make(tmp_path / "c.bin", 6)
    assert read_cloud(path).fields["color"] == pytest.approx(values[:, 3:] / 255)


def test_the_caller_overrules_the_guess(tmp_path):
    path, values = make(tmp_path / "a.bin", 4, 60)
    assert len(read_cloud(path, ReadOptions(columns=3))) == 80
    np.tile(values, 2).tofile(path)
    assert set(read_cloud(path, ReadOptions(columns=8)).fields) >= {"intensity", "column_4", "column_7"}
    with pytest.raises(FormatError, match="no table of 7 columns"):
        read_cloud(path, ReadOptions(columns=7))


@pytest.mark.parametrize(
    ("name", "points", "columns"),
    [
        ("spvnas/000000.bin", 123_389, 4),
        ("patchwork-plusplus/000000.bin", 124_668, 4),
        ("mmdetection3d/data/semantickitti/sequences/00/velodyne/000000.bin", 50, 4),
        ("mmdetection3d/data/scannet/scene0000_00.bin", 40_684, 6),
        ("mmdetection3d/data/scannet/points/scene0000_00.bin", 100, 6),
        ("mmdetection3d/data/s3dis/points/Area_1_office_2.bin", 100, 6),
    ],
)
def test_real_scans(name, points, columns):
    cloud = read_cloud(shared_data(f"pointcloud/{name}"))
    assert (len(cloud), cloud.source.payload) == (points, columns)


def test_labels_are_no_points(tmp_path):
    np.arange(400, dtype=np.int64).tofile(tmp_path / "a.bin")
    with pytest.raises(FormatError, match="labels are not points"):
        read_cloud(tmp_path / "a.bin")
    np.arange(400, dtype=np.uint32).tofile(tmp_path / "a.label")
    with pytest.raises(FormatError, match="holds labels, not points"):
        read_cloud(tmp_path / "a.label")


def test_no_point_at_all(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"")
    cloud = read_cloud(tmp_path / "a.bin")
    assert len(cloud) == 0
    write_cloud(cloud.with_fields(classification=np.zeros(0, int)), tmp_path / "a.label")
    assert (tmp_path / "a.label").read_bytes() == b""


def test_bytes_that_are_no_floats(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0\1\2\3\4")
    with pytest.raises(FormatError, match="5 bytes are no table"):
        read_cloud(tmp_path / "a.bin")


def test_label_files_hold_32_bits_with_the_id_below(tmp_path):
    path, values = make(tmp_path / "a.bin", 4)
    classes = np.arange(len(values)) + 200
    write_cloud(read_cloud(path).with_fields(classification=classes), tmp_path / "a.label")
    raw = np.fromfile(tmp_path / "a.label", dtype="<u4")
    assert raw.tolist() == classes.tolist()
    with pytest.raises(InputError, match=r"70000 \(61 points\)"):
        write_cloud(read_cloud(path).with_fields(classification=classes * 0 + 70000), tmp_path / "b.label")


def test_nuscenes_labels_are_bytes(tmp_path):
    path, values = make(tmp_path / "a.pcd.bin", 5)
    classes = np.arange(len(values))
    write_cloud(read_cloud(path).with_fields(classification=classes), tmp_path / "a_lidarseg.bin")
    assert np.fromfile(tmp_path / "a_lidarseg.bin", np.uint8).tolist() == classes.tolist()


def test_a_table_of_floats_has_no_place_for_classes(tmp_path):
    cloud = read_cloud(make(tmp_path / "a.bin", 4)[0])
    with pytest.raises(UnsupportedError, match=r"ends in \.label"):
        write_cloud(cloud.with_fields(classification=np.zeros(61, int)), tmp_path / "b.bin")
    with pytest.raises(UnsupportedError, match="classes alone"):
        write_cloud(cloud, tmp_path / "b.label")
    with pytest.raises(UnsupportedError, match="no entropy"):
        write_cloud(
            cloud.with_fields(classification=np.zeros(61, int)),
            tmp_path / "b.label",
            WriteOptions(extra=("entropy",)),
        )


@pytest.mark.parametrize("place", ["scan.label", "../labels/scan.label"])
def test_labels_lie_beside_the_scan_or_in_their_folder(tmp_path, place):
    path, _ = make(tmp_path / "velodyne" / "scan.bin", 4)
    assert find_labels(path) is None
    assert "classification" not in with_labels(read_cloud(path)).fields
    file = path.parent / place
    file.parent.mkdir(exist_ok=True)
    (np.arange(61, dtype="<u4") + (7 << 16)).tofile(file)
    cloud = with_labels(read_cloud(path))
    assert cloud.fields["classification"].tolist() == list(range(61))
    assert cloud.fields["instance"].tolist() == [7] * 61


def test_labels_of_another_scan_are_refused(tmp_path):
    np.zeros(5, "<u4").tofile(tmp_path / "a.label")
    with pytest.raises(FormatError, match="hold 5 labels, the scan has 6 points"):
        read_labels(tmp_path / "a.label", 6)
    with pytest.raises(MissingFileError):
        read_labels(tmp_path / "b.label", 6)


def test_real_labels_have_official_ids():
    yaml = pytest.importorskip("yaml")
    table = yaml.safe_load(shared_data("pointcloud/semantic-kitti-api/semantic-kitti.yaml").read_text())
    cloud = with_labels(read_cloud(shared_data("pointcloud/spvnas/000000.bin")))
    assert set(np.unique(cloud.fields["classification"]).tolist()) <= set(table["labels"])
