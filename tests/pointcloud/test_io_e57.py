import numpy as np
import pye57
import pytest
from pye57 import libe57

from geomix.errors import FormatError, UnsupportedError
from pointcloud.io import WriteOptions, read_cloud, write_cloud
from tests.helpers import shared_data
from tests.pointcloud.making import cloud_of, scatter

TURN = (np.cos(np.pi / 4), 0.0, 0.0, np.sin(np.pi / 4))  # 90 degrees about z


def scan(file, fields, pose=None, limits=None):
    """Append a scan; a field is (node maker, values)."""
    imf = file.image_file
    node = libe57.StructureNode(imf)
    node.set("guid", libe57.StringNode(imf, f"{{scan {len(file.data3d)}}}"))
    if pose:
        rotation, translation = pose
        place = libe57.StructureNode(imf)
        node.set("pose", place)
        for name, axes, values in (("rotation", "wxyz", rotation), ("translation", "xyz", translation)):
            if values is not None:
                part = libe57.StructureNode(imf)
                place.set(name, part)
                for axis, value in zip(axes, values, strict=True):
                    part.set(axis, libe57.FloatNode(imf, float(value)))
    if limits:
        box = libe57.StructureNode(imf)
        box.set("intensityMinimum", libe57.FloatNode(imf, limits[0]))
        box.set("intensityMaximum", libe57.FloatNode(imf, limits[1]))
        node.set("intensityLimits", box)
    prototype = libe57.StructureNode(imf)
    buffers = libe57.VectorSourceDestBuffer()
    keep = []
    for name, (make, values) in fields.items():
        prototype.set(name, make(imf))
        keep.append(np.ascontiguousarray(values, dtype="q" if np.asarray(values).dtype.kind in "iu" else "d"))
        buffers.append(libe57.SourceDestBuffer(imf, name, keep[-1], len(keep[-1]), True, True))
    points = libe57.CompressedVectorNode(imf, prototype, libe57.VectorNode(imf, True))
    node.set("points", points)
    file.data3d.append(node)
    writer = points.writer(buffers)
    writer.write(len(keep[0]))
    writer.close()


def double(imf):
    return libe57.FloatNode(imf, 0.0)


def byte(imf):
    return libe57.IntegerNode(imf, 0, 0, 255)


def millimetres(imf):
    return libe57.ScaledIntegerNode(imf, 0, -(2**31), 2**31 - 1, 0.001, 0.0)


def make_e57(path):
    """Two scans: one with a pose, colours, scaled integers and bad points; one bare and spherical."""
    coord = scatter(40)
    coord[7] = 0
    with pye57.E57(str(path), mode="w") as file:
        fields = {
            name: (millimetres, coord[:, axis])
            for axis, name in enumerate(("cartesianX", "cartesianY", "cartesianZ"))
        }
        fields |= {name: (byte, np.arange(40) * 6) for name in ("colorRed", "colorGreen", "colorBlue")}
        fields["intensity"] = (double, np.linspace(100, 200, 40))
        fields["rowIndex"] = (lambda imf: libe57.IntegerNode(imf, 0, 0, 1000), np.arange(40))
        fields["cartesianInvalidState"] = (byte, (np.arange(40) == 3).astype(int) * 2)
        scan(file, fields, pose=(TURN, (100.0, 0.0, 0.0)), limits=(100.0, 200.0))
        sphere = {
            "sphericalRange": (double, np.full(3, 2.0)),
            "sphericalAzimuth": (double, np.array([0, np.pi / 2, 0])),
            "sphericalElevation": (double, np.array([0, 0, np.pi / 2])),
        }
        scan(file, sphere)
    return path, coord


def test_scans_lie_where_their_pose_says(tmp_path):
    path, coord = make_e57(tmp_path / "a.e57")
    cloud = read_cloud(path)
    expected = np.stack([100 - coord[:, 1], coord[:, 0], coord[:, 2]], axis=1)
    assert cloud.coord[:40] == pytest.approx(expected, abs=1e-9)
    assert cloud.coord[40:] == pytest.approx(np.array([[2, 0, 0], [0, 2, 0], [0, 0, 2.0]]), abs=1e-9)
    assert cloud.fields["scan"].tolist() == [0] * 40 + [1] * 3


def test_what_one_scan_lacks_is_zero_there_and_said(tmp_path, caplog):
    cloud = read_cloud(make_e57(tmp_path / "a.e57")[0])
    assert cloud.fields["color"][:40, 0] == pytest.approx(np.arange(40) * 6 / 255)
    assert cloud.fields["intensity"][:40] == pytest.approx(np.linspace(0, 1, 40))
    assert not cloud.fields["color"][40:].any()
    assert "scans 1 have no intensity" in caplog.text


def test_points_that_the_scanner_disowns_stay_and_are_marked(tmp_path):
    cloud = read_cloud(make_e57(tmp_path / "a.e57")[0])
    assert np.flatnonzero(cloud.fields["invalid"]).tolist() == [3]
    assert len(cloud) == 43
    assert cloud.measured().sum() == 42


def test_zeros_that_the_scanner_forgot_to_mark_are_found_before_the_pose_moves_them(tmp_path):
    zero = {name: (double, np.array([0.0, 1.0, 0.0])) for name in ("cartesianX", "cartesianY", "cartesianZ")}
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        scan(file, zero, pose=(TURN, (5.0, 5.0, 5.0)))
    cloud = read_cloud(tmp_path / "a.e57")
    assert cloud.fields["invalid"].tolist() == [True, False, True]


@pytest.mark.parametrize("pose", [None, (None, (4, 5, 6)), (TURN, None)])
def test_what_a_pose_does_not_say_is_no_move(tmp_path, pose):
    coord = {name: (double, np.array([1.0, 2.0])) for name in ("cartesianX", "cartesianY", "cartesianZ")}
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        scan(file, coord, pose=pose)
    first = {None: [1, 1, 1], (None, (4, 5, 6)): [5, 6, 7], (TURN, None): [-1, 1, 1]}[pose]
    assert read_cloud(tmp_path / "a.e57").coord[0] == pytest.approx(first)


def test_normals_turn_with_their_scan(tmp_path):
    fields = {name: (double, np.ones(1)) for name in ("cartesianX", "cartesianY", "cartesianZ")}
    normal = {
        "nor:normalX": (double, np.ones(1)),
        "nor:normalY": (double, np.zeros(1)),
        "nor:normalZ": (double, np.zeros(1)),
    }
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        file.image_file.extensionsAdd("nor", "http://www.libe57.org/E57_NOR_surface_normals.txt")
        scan(file, fields | normal, pose=(TURN, (0, 0, 0)))
    assert read_cloud(tmp_path / "a.e57").fields["normal"][0] == pytest.approx([0, 1, 0], abs=1e-6)


def tree(node):
    """Every element of a file but the points, as text."""
    from pye57.utils import get_node

    lines = []
    for number in range(node.childCount()):
        child = get_node(node, number)
        value = child.value() if hasattr(child, "value") else type(child).__name__
        lines.append((child.pathName(), value))
        if isinstance(child, libe57.StructureNode | libe57.VectorNode):
            lines += tree(child)
    return lines


def stored(path):
    from pointcloud.io.e57 import open_e57, read_fields

    with open_e57(path) as file:
        scans = [read_fields(file, file.get_header(index), raw=True) for index in range(file.scan_count)]
        return tree(file.root), scans


def test_everything_is_copied_and_the_class_comes_along(tmp_path):
    source, _ = make_e57(tmp_path / "a.e57")
    cloud = read_cloud(source)
    classes = np.arange(43) * 9
    entropy = np.linspace(0, 1, 43)
    out = tmp_path / "b.e57"
    write_cloud(
        cloud.with_fields(classification=classes, entropy=entropy), out, WriteOptions(extra=("entropy",))
    )
    (old_tree, old), (new_tree, new) = stored(source), stored(out)
    assert new_tree == old_tree
    for before, after in zip(old, new, strict=True):
        for name, values in before.items():
            assert np.array_equal(values, after[name]), name
        assert list(after)[-2:] == ["geomix:classification", "geomix:entropy"]
    again = read_cloud(out)
    assert again.fields["classification"].tolist() == classes.tolist()
    assert again.fields["entropy"] == pytest.approx(entropy)
    assert np.array_equal(again.coord, cloud.coord)


def test_a_second_prediction_takes_the_place_of_the_first(tmp_path):
    source, _ = make_e57(tmp_path / "a.e57")
    cloud = read_cloud(source)
    write_cloud(cloud.with_fields(classification=np.full(43, 2)), tmp_path / "b.e57")
    again = read_cloud(tmp_path / "b.e57")
    write_cloud(again.with_fields(classification=np.full(43, 6)), tmp_path / "c.e57")
    assert read_cloud(tmp_path / "c.e57").fields["classification"].tolist() == [6] * 43


@pytest.mark.parametrize("name", ["PDAL/A_B.e57", "PDAL/A_moved_B.e57", "pye57/testWithNormals.e57"])
def test_a_real_file_keeps_every_stored_number(tmp_path, name):
    source = shared_data(f"pointcloud/{name}")
    cloud = read_cloud(source)
    out = tmp_path / "b.e57"
    write_cloud(cloud.with_fields(classification=np.full(len(cloud), 2)), out)
    (old_tree, old), (new_tree, new) = stored(source), stored(out)
    assert new_tree == old_tree
    for before, after in zip(old, new, strict=True):
        for field, values in before.items():
            assert np.array_equal(values, after[field]), field


def test_colours_are_those_of_the_library():
    source = shared_data("pointcloud/PDAL/A_B.e57")
    cloud = read_cloud(source)
    with pye57.E57(str(source)) as file:
        scans = [file.read_scan(index, colors=True, ignore_missing_fields=True) for index in range(2)]
    red = np.concatenate([one["colorRed"] for one in scans])
    assert cloud.fields["color"][:, 0] * 255 == pytest.approx(
        red * 255 / red.max() if red.max() < 255 else red
    )


def test_a_moved_scan_is_moved():
    cloud = read_cloud(shared_data("pointcloud/pye57/translationWithoutRotation.e57"))
    assert cloud.coord.min(axis=0).tolist() == [4, 5, 6]


def test_an_empty_scan(tmp_path):
    with pye57.E57(str(tmp_path / "a.e57"), mode="w"):
        pass
    cloud = read_cloud(tmp_path / "a.e57")
    assert len(cloud) == 0
    write_cloud(cloud.with_fields(classification=np.zeros(0, int)), tmp_path / "b.e57")
    assert len(read_cloud(tmp_path / "b.e57")) == 0


def test_other_formats_do_not_become_e57(tmp_path):
    with pytest.raises(UnsupportedError, match=r"choose \.laz"):
        write_cloud(cloud_of(5), tmp_path / "a.e57")


@pytest.mark.parametrize("keep", [20, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_one_clear_line(tmp_path, keep):
    source, _ = make_e57(tmp_path / "a.e57")
    raw = source.read_bytes()
    source.write_bytes(raw[: keep if keep > 1 else int(len(raw) * keep)])
    with pytest.raises(FormatError, match=r"a\.e57: cannot be read as E57"):
        read_cloud(source)


def test_pictures_are_copied_byte_for_byte(tmp_path):
    picture = np.arange(1000, dtype=np.uint8)
    coord = {name: (double, np.ones(2)) for name in ("cartesianX", "cartesianY", "cartesianZ")}
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        scan(file, coord)
        image = libe57.StructureNode(file.image_file)
        file.root["images2D"].append(image)
        blob = libe57.BlobNode(file.image_file, len(picture))
        image.set("jpegImage", blob)
        blob.write(picture, 0, len(picture))
    write_cloud(read_cloud(tmp_path / "a.e57").with_fields(classification=np.ones(2)), tmp_path / "b.e57")
    with pye57.E57(str(tmp_path / "b.e57")) as file:
        blob = file.root["images2D"][0]["jpegImage"]
        again = np.zeros(blob.byteCount(), np.uint8)
        blob.read(again, 0, len(again))
    assert np.array_equal(again, picture)
