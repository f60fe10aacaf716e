import numpy as np
import plyfile
import pytest

from geomix.errors import FormatError
from pointcloud.cloud import Cloud
from pointcloud.io import WriteOptions, read_cloud, write_cloud
from tests.helpers import shared_data
from tests.pointcloud.making import cloud_of, scatter


def make_ply(path, text=False, byte_order="<", count=50, label=None):
    """Mixed types, a list, faces, comments: what other programs write."""
    rng = np.random.default_rng(3)
    columns = [
        ("x", "f8"), ("y", "f8"), ("z", "f8"), ("red", "u1"), ("green", "u1"), ("blue", "u1"),
        ("nx", "f4"), ("ny", "f4"), ("nz", "f4"), ("scalar_Intensity", "f4"), ("t", "u4"),
        ("ring", "u2"), ("odd", "i1"),
    ]  # fmt: skip
    rows = np.zeros(count, dtype=columns + ([(label, "u1")] if label else []))
    coord = scatter(count)
    for axis, name in enumerate("xyz"):
        rows[name] = coord[:, axis]
        rows[f"n{name}"] = rng.normal(size=count)
    for name in ("red", "green", "blue", "t", "ring", "odd", *([label] if label else [])):
        rows[name] = rng.integers(0, 100, count)
    rows["scalar_Intensity"] = rng.random(count)
    faces = np.empty(4, dtype=[("vertex_indices", "O"), ("quality", "f4")])
    faces["vertex_indices"] = [np.arange(n, n + 3, dtype=np.int32) for n in range(4)]
    faces["quality"] = 0.1
    vertex = plyfile.PlyElement.describe(rows, "vertex", comments=["about vertices"])
    face = plyfile.PlyElement.describe(
        faces, "face", len_types={"vertex_indices": "u1"}, val_types={"vertex_indices": "i4"}
    )
    data = plyfile.PlyData([vertex, face], text=text, byte_order=byte_order, comments=["made here"])
    data.obj_info = ["info"]
    data.write(str(path))
    return path


@pytest.fixture(params=[(True, "="), (False, "<"), (False, ">")], ids=["text", "little", "big"])
def encoding(request):
    return dict(zip(("text", "byte_order"), request.param, strict=True))


@pytest.mark.parametrize("label", [None, "label", "scalar_Classification"])
def test_a_file_that_is_read_and_written_is_the_same_file(tmp_path, encoding, label):
    source = make_ply(tmp_path / "a.ply", **encoding, label=label)
    write_cloud(read_cloud(source), tmp_path / "b.ply")
    assert (tmp_path / "b.ply").read_bytes() == source.read_bytes()


def test_everything_but_the_class_is_kept(tmp_path, encoding):
    source = make_ply(tmp_path / "a.ply", **encoding, label="label")
    cloud = read_cloud(source)
    classes = np.arange(50) * 10  # no longer bytes
    write_cloud(cloud.with_fields(classification=classes), tmp_path / "b.ply")
    old, new = plyfile.PlyData.read(str(source)), plyfile.PlyData.read(str(tmp_path / "b.ply"))
    assert new["vertex"].data.dtype.names == old["vertex"].data.dtype.names
    assert new["vertex"]["label"].tolist() == classes.tolist()
    for name in old["vertex"].data.dtype.names[:-1]:
        assert new["vertex"].data.dtype[name] == old["vertex"].data.dtype[name]
        assert np.array_equal(new["vertex"][name], old["vertex"][name]), name
    assert [list(f) for f in new["face"]["vertex_indices"]] == [
        list(f) for f in old["face"]["vertex_indices"]
    ]
    assert (new.comments, new.obj_info) == (old.comments, old.obj_info)
    assert (new.text, new.byte_order) == (old.text, old.byte_order)


def test_a_file_without_classes_gets_a_property_behind_its_own(tmp_path):
    source = make_ply(tmp_path / "a.ply")
    cloud = read_cloud(source)
    values = np.linspace(0, 1, 50, dtype=np.float32)
    write_cloud(
        cloud.with_fields(classification=np.full(50, 7), confidence=values),
        tmp_path / "b.ply",
        WriteOptions(extra=("confidence",)),
    )
    new = plyfile.PlyData.read(str(tmp_path / "b.ply"))["vertex"]
    assert new.data.dtype.names[-2:] == ("classification", "confidence")
    assert new["classification"].dtype == np.uint8
    assert np.array_equal(new["confidence"], values)


def test_fields_have_the_words_of_a_cloud(tmp_path):
    source = make_ply(tmp_path / "a.ply", label="label")
    rows = plyfile.PlyData.read(str(source))["vertex"]
    cloud = read_cloud(source)
    assert np.array_equal(cloud.coord[:, 2], rows["z"])
    assert cloud.fields["color"][:, 0] == pytest.approx(rows["red"] / 255)
    assert np.array_equal(cloud.fields["normal"][:, 1], rows["ny"])
    assert np.array_equal(cloud.fields["intensity"], rows["scalar_Intensity"])
    assert np.array_equal(cloud.fields["classification"], rows["label"])
    assert np.array_equal(cloud.fields["ring"], rows["ring"])


def test_a_real_file_that_is_read_and_written_is_the_same_file(tmp_path):
    source = shared_data("pointcloud/PDAL/simple_binary.ply")
    write_cloud(read_cloud(source), tmp_path / "b.ply")
    assert (tmp_path / "b.ply").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_files(tmp_path, count, encoding):
    source = make_ply(tmp_path / "a.ply", count=count, **encoding)
    cloud = read_cloud(source)
    write_cloud(cloud.with_fields(classification=np.full(count, 3)), tmp_path / "b.ply")
    assert read_cloud(tmp_path / "b.ply").fields["classification"].tolist() == [3] * count


def test_a_new_file_holds_map_coordinates_in_full(tmp_path):
    cloud = cloud_of(origin=(500_000.123456, 5_400_000.654321, 0.0))
    write_cloud(cloud, tmp_path / "a.ply")
    again = read_cloud(tmp_path / "a.ply")
    assert np.array_equal(again.coord, cloud.coord)
    assert np.array_equal(again.fields["intensity"], cloud.fields["intensity"])
    assert np.abs(again.fields["color"] - cloud.fields["color"]).max() <= 0.5 / 255 + 1e-6


def test_nan_points_stay(tmp_path):
    coord = scatter(20)
    coord[3] = np.nan
    write_cloud(Cloud.from_arrays(coord), tmp_path / "a.ply")
    again = read_cloud(tmp_path / "a.ply")
    assert np.array_equal(again.coord, coord, equal_nan=True)
    assert again.measured().sum() == 19


@pytest.mark.parametrize("keep", [30, 0.5, 0.95])
def test_a_file_that_was_cut_off_is_one_clear_line(tmp_path, encoding, keep):
    source = make_ply(tmp_path / "a.ply", **encoding)
    raw = source.read_bytes()
    source.write_bytes(raw[: keep if keep > 1 else int(len(raw) * keep)])
    with pytest.raises(FormatError, match=r"a\.ply: cannot be read as PLY"):
        read_cloud(source)


def test_a_count_that_lies_is_one_clear_line(tmp_path):
    source = make_ply(tmp_path / "a.ply")
    source.write_bytes(source.read_bytes().replace(b"vertex 50", b"vertex 5000000000000"))
    with pytest.raises(FormatError, match="cannot be read as PLY"):
        read_cloud(source)


def test_a_file_without_points_is_one_clear_line(tmp_path):
    rows = np.zeros(3, dtype=[("a", "f4")])
    plyfile.PlyData([plyfile.PlyElement.describe(rows, "thing")]).write(str(tmp_path / "a.ply"))
    with pytest.raises(FormatError, match="no element 'vertex', only thing"):
        read_cloud(tmp_path / "a.ply")
    plyfile.PlyData([plyfile.PlyElement.describe(rows, "vertex")]).write(str(tmp_path / "a.ply"))
    with pytest.raises(FormatError, match="has no x, y and z, only a"):
        read_cloud(tmp_path / "a.ply")


def test_comments_in_any_alphabet_are_kept(tmp_path, encoding):
    source = make_ply(tmp_path / "a.ply", **encoding)
    raw = (
        source.read_bytes()
        .replace(b"made here", "fait à Zürich, 東京".encode())
        .replace(b"obj_info info", b"obj_info \xe9t\xe9")
    )
    source.write_bytes(raw)
    cloud = read_cloud(source)
    write_cloud(cloud, tmp_path / "b.ply")
    assert (tmp_path / "b.ply").read_bytes() == raw
