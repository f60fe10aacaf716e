import numpy as np
import pytest
from pypcd4 import Encoding, MetaData, PointCloud

from geomix.errors import FormatError
from pointcloud.cloud import Cloud
from pointcloud.io import WriteOptions, read_cloud, write_cloud
from pointcloud.io.columns import unpack_rgb
from tests.helpers import shared_data
from tests.pointcloud.making import cloud_of, scatter

ENCODINGS = [Encoding.ASCII, Encoding.BINARY, Encoding.BINARY_COMPRESSED]


def make_pcd(path, encoding=Encoding.BINARY, count=48, label=None):
    """An organised cloud with packed colours, an array field, NaN and a viewpoint."""
    rng = np.random.default_rng(4)
    fields = ["x", "y", "z", "rgb", "descriptor", "curvature"] + ([label] if label else [])
    sizes, kinds = [4, 4, 4, 4, 2, 8] + ([4] if label else []), list("FFFFUF") + (["U"] if label else [])
    metadata = MetaData(
        fields=fields, size=sizes, type=kinds, count=[1, 1, 1, 1, 3, 1] + ([1] if label else []),
        points=count, width=count // 4, height=4 if count else 1, viewpoint=(1, 2, 3, 1, 0, 0, 0),
        data=encoding,
    )  # fmt: skip
    rows = np.zeros(count, dtype=metadata.build_dtype())
    coord = scatter(count).astype(np.float32)
    coord[5:9] = np.nan
    for axis, name in enumerate("xyz"):
        rows[name] = coord[:, axis]
    rows["rgb"] = rng.integers(0, 2**24, count).astype(np.uint32).view(np.float32)
    for name in rows.dtype.names:
        if name.startswith("descriptor"):
            rows[name] = rng.integers(0, 60000, count)
    rows["curvature"] = rng.random(count)
    if label:
        rows[label] = rng.integers(0, 30, count)
    cloud = PointCloud(metadata, rows)
    if encoding == Encoding.ASCII:
        with path.open("wb") as file:
            file.write(metadata.compose_header().encode())
            np.savetxt(file, rows, fmt=["%.9g"] * 4 + ["%d"] * 3 + ["%.17g"] + (["%d"] if label else []))
    else:
        cloud.save(path, encoding)
    return path


@pytest.mark.parametrize("label", [None, "label"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_that_is_read_and_written_is_the_same_file(tmp_path, encoding, label):
    source = make_pcd(tmp_path / "a.pcd", encoding, label=label)
    write_cloud(read_cloud(source), tmp_path / "b.pcd")
    assert (tmp_path / "b.pcd").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("label", [None, "label"])
def test_everything_but_the_class_is_kept(tmp_path, encoding, label):
    source = make_pcd(tmp_path / "a.pcd", encoding, label=label)
    cloud = read_cloud(source)
    classes = np.arange(48) * 10
    write_cloud(
        cloud.with_fields(classification=classes, entropy=classes / 480),
        tmp_path / "b.pcd",
        WriteOptions(extra=("entropy",)),
    )
    old, new = read_rows(source), read_rows(tmp_path / "b.pcd")
    assert new["label"].tolist() == classes.tolist()
    assert new["entropy"] == pytest.approx(classes / 480)
    for name in set(old) - {"label"}:
        assert old[name].dtype == new[name].dtype, name
        assert np.array_equal(old[name].view(np.uint8), new[name].view(np.uint8)), name
    header = (tmp_path / "b.pcd").read_bytes()[:400].decode("latin-1")
    for line in ("WIDTH 12", "HEIGHT 4", "VIEWPOINT 1.0 2.0 3.0 1.0 0.0 0.0 0.0", f"DATA {encoding.value}"):
        assert line in header


def read_rows(path):
    rows = read_cloud(path).source.payload.rows
    return {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names}


def test_fields_have_the_words_of_a_cloud(tmp_path):
    source = make_pcd(tmp_path / "a.pcd", label="label")
    rows = PointCloud.from_path(source).pc_data
    cloud = read_cloud(source)
    assert cloud.coord[:5] == pytest.approx(np.stack([rows[a][:5] for a in "xyz"], axis=1))
    assert np.array_equal(cloud.fields["classification"], rows["label"])
    assert cloud.fields["color"] == pytest.approx(unpack_rgb(rows["rgb"]) / np.float32(255))
    assert cloud.measured().tolist() == [not 5 <= n < 9 for n in range(48)]


def test_packed_colours_by_hand():
    packed = np.array([0xFF0A141E], np.uint32)
    assert unpack_rgb(packed).tolist() == [[10, 20, 30]]
    assert unpack_rgb(packed.view(np.float32)).tolist() == [[10, 20, 30]]
    assert unpack_rgb(packed.view(np.int32)).tolist() == [[10, 20, 30]]


@pytest.mark.parametrize("name", ["PDAL/autzen-utm.pcd", "Open3D-ML/fragment.pcd", "data/learn0.pcd"])
def test_every_field_of_a_real_file_survives(tmp_path, name):
    source = shared_data(f"pointcloud/{name}")
    cloud = read_cloud(source)
    write_cloud(cloud, tmp_path / "b.pcd")
    old, new = read_rows(source), read_rows(tmp_path / "b.pcd")
    assert list(old) == list(new)
    for field in old:
        assert np.array_equal(old[field].view(np.uint8), new[field].view(np.uint8)), field


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("count", [0, 4])
def test_tiny_files(tmp_path, encoding, count):
    source = make_pcd(tmp_path / "a.pcd", encoding, count=count)
    cloud = read_cloud(source)
    write_cloud(cloud.with_fields(classification=np.full(count, 3)), tmp_path / "b.pcd")
    assert read_cloud(tmp_path / "b.pcd").fields["classification"].tolist() == [3] * count


def test_one_point_as_text(tmp_path):
    path = tmp_path / "a.pcd"
    path.write_text(
        "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 1\nHEIGHT 1\nPOINTS 1\n"
        "DATA ascii\n1  2 \t3 \n"
    )
    assert read_cloud(path).coord.tolist() == [[1, 2, 3]]


def test_a_new_file_is_exact(tmp_path):
    near = cloud_of()
    near = Cloud(near.coord.astype(np.float32).astype(np.float64), near.fields)
    far = Cloud(near.coord + np.array([500_000, 5_400_000, 0]), near.fields)
    for cloud, size in ((near, "SIZE 4 4 4"), (far, "SIZE 8 8 8")):
        write_cloud(cloud, tmp_path / "a.pcd", overwrite=True)
        again = read_cloud(tmp_path / "a.pcd")
        assert np.array_equal(again.coord, cloud.coord)
        assert np.array_equal(again.fields["classification"], cloud.fields["classification"])
        assert np.abs(again.fields["color"] - cloud.fields["color"]).max() <= 0.5 / 255 + 1e-6
        assert size.encode() in (tmp_path / "a.pcd").read_bytes()


def test_coordinates_that_the_file_has_rounded_are_named(caplog):
    read_cloud(shared_data("pointcloud/data/samp11-utm-ground.pcd"))
    assert "steps of 0.5 m" in caplog.text


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("keep", [20, 100, 0.9])
def test_a_file_that_was_cut_off_is_one_clear_line(tmp_path, encoding, keep):
    source = make_pcd(tmp_path / "a.pcd", encoding)
    raw = source.read_bytes()
    source.write_bytes(raw[: keep if keep > 1 else int(len(raw) * keep)])
    with pytest.raises(FormatError, match=r"a\.pcd: (cannot be read as PCD|the header counts)"):
        read_cloud(source)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_count_that_lies_is_one_clear_line(tmp_path, encoding):
    source = make_pcd(tmp_path / "a.pcd", encoding)
    source.write_bytes(source.read_bytes().replace(b"POINTS 48", b"POINTS 99999999999"))
    with pytest.raises(FormatError, match=r"a\.pcd: "):
        read_cloud(source)
