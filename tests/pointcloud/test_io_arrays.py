import numpy as np
import pytest

from geomix.errors import FormatError, UnsupportedError
from pointcloud.io import WriteOptions, read_cloud, write_cloud
from tests.pointcloud.making import cloud_of, scatter


@pytest.mark.parametrize("columns", [3, 4, 6, 7])
def test_a_bare_array(tmp_path, columns):
    values = np.concatenate([scatter(30), np.random.default_rng(0).integers(0, 200, (30, 4))], axis=1)[
        :, :columns
    ]
    np.save(tmp_path / "a.npy", values)
    cloud = read_cloud(tmp_path / "a.npy")
    assert np.array_equal(cloud.coord, values[:, :3])
    assert ("color" in cloud.fields) == (columns >= 6)
    assert ("intensity" in cloud.fields) == (columns == 4)
    if columns == 7:
        assert np.array_equal(cloud.fields["classification"], values[:, 6])


def test_a_structured_array_and_its_result(tmp_path):
    rows = np.zeros(5, dtype=[("x", "f8"), ("y", "f8"), ("z", "f8"), ("label", "i4"), ("odd", "f4")])
    rows["label"], rows["odd"] = 3, np.arange(5)
    np.save(tmp_path / "a.npy", rows)
    cloud = read_cloud(tmp_path / "a.npy")
    assert cloud.fields["classification"].tolist() == [3] * 5
    write_cloud(cloud.with_fields(classification=np.arange(5)), tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as written:
        assert np.array_equal(written["points"], rows)
        assert written["classification"].tolist() == [0, 1, 2, 3, 4]


def test_named_arrays_come_back_with_the_classes(tmp_path):
    arrays = {
        "coord": scatter(30),
        "color": np.full((30, 3), 128, np.uint8),
        "extra": np.eye(2),
        "segment": np.arange(30),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    cloud = read_cloud(tmp_path / "a.npz")
    assert cloud.fields["color"][0] == pytest.approx([128 / 255] * 3)
    assert np.array_equal(cloud.fields["classification"], np.arange(30))
    write_cloud(
        cloud.with_fields(classification=np.full(30, 7), entropy=np.ones(30, np.float32)),
        tmp_path / "b.npz",
        WriteOptions(extra=("entropy",)),
    )
    with np.load(tmp_path / "b.npz") as written:
        for name, values in arrays.items():
            assert np.array_equal(written[name], values), name
        assert written["classification"].tolist() == [7] * 30
        assert written["entropy"].tolist() == [1] * 30


def test_a_folder_of_arrays_is_a_scene(tmp_path):
    scene = tmp_path / "scene0000_00"
    scene.mkdir()
    np.save(scene / "coord.npy", scatter(30).astype(np.float32))
    np.save(scene / "color.npy", np.full((30, 3), 255, np.uint8))
    np.save(scene / "normal.npy", np.ones((30, 3), np.float32))
    np.save(scene / "segment20.npy", np.arange(30)[:, None])
    cloud = read_cloud(scene)
    assert set(cloud.fields) == {"color", "normal", "classification"}
    assert cloud.fields["classification"].tolist() == list(range(30))


def test_npy_holds_the_classes_alone(tmp_path):
    cloud = cloud_of(10)
    write_cloud(cloud, tmp_path / "a.npy")
    assert np.load(tmp_path / "a.npy").tolist() == cloud.fields["classification"].tolist()
    with pytest.raises(UnsupportedError, match=r"write \.npz"):
        write_cloud(cloud, tmp_path / "b.npy", WriteOptions(extra=("entropy",)))


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_arrays(tmp_path, count):
    np.save(tmp_path / "a.npy", scatter(count).reshape(count, 3))
    assert len(read_cloud(tmp_path / "a.npy")) == count


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 5)), r"\[4, 5\] of float64 is no cloud"),
        (np.zeros(9), r"\[9\] of float64 is no cloud"),
        (np.array([{"a": 1}], dtype=object), "cannot be read as numpy arrays"),
    ],
    ids=["width", "flat", "pickle"],
)
def test_arrays_that_are_no_cloud(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FormatError, match=message):
        read_cloud(tmp_path / "a.npy")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_file_that_was_cut_off_is_one_clear_line(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    (np.save if suffix == ".npy" else np.savez)(path, scatter(100))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match="cannot be read as numpy arrays"):
        read_cloud(path)


def test_a_folder_that_is_no_scene(tmp_path):
    with pytest.raises(FormatError, match=r"folder, but not one of \.npy"):
        read_cloud(tmp_path)
    np.save(tmp_path / "coord.npy", np.zeros((3, 2)))
    with pytest.raises(FormatError, match=r"coord is \[3, 2\]"):
        read_cloud(tmp_path)
