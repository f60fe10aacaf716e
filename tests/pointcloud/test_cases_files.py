"""What users of point-cloud tools complained about, a test or more each: what files hold.

Each name ends in what must hold here. `CASES` says where the test of each case lies.
"""

import logging
import re
import struct
import warnings
from contextlib import suppress

import laspy
import numpy as np
import plyfile
import pye57
import pyproj
import pytest
from pye57 import libe57

from geomix.cli import run
from geomix.errors import FormatError, InputError
from pointcloud import read_cloud, write_cloud
from pointcloud.io import ReadOptions
from pointcloud.io.floats import read_labels, with_labels
from pointcloud.predict import segment_file
from tests.helpers import ROOT, shared_data
from tests.pointcloud.making import (
    Layers,
    except_class,
    las_parts,
    layers_of,
    make_las,
    scatter,
    tiny_model_file,
)

FILES, WAY, MODEL = "test_cases_files.py", "test_cases_way.py", "test_cases_model.py"
CASES = {
    1: WAY, 2: MODEL, 3: MODEL, 4: MODEL, 5: MODEL, 6: MODEL, 7: WAY, 8: MODEL, 9: WAY, 10: WAY,
    11: FILES, 12: FILES, 13: FILES, 14: FILES, 15: WAY, 16: WAY, 17: FILES, 18: MODEL, 19: MODEL,
    20: WAY, 21: FILES, 22: FILES, 23: FILES, 24: MODEL, 25: WAY, 26: MODEL,
}  # fmt: skip


@pytest.mark.parametrize("number", CASES)
def test_every_case_has_its_test(number):
    text = (ROOT / "tests" / "pointcloud" / CASES[number]).read_text(encoding="utf-8")
    assert re.search(rf"^def test_case_{number:02d}_", text, re.MULTILINE)


@pytest.mark.parametrize("suffix", [".las", ".laz"])
@pytest.mark.parametrize(("version", "point_format"), [("1.2", 3), ("1.4", 6), ("1.4", 8)])
def test_case_11_reference_system_records_and_dimensions_survive(tmp_path, suffix, version, point_format):
    source = make_las(
        tmp_path / f"a{suffix}",
        version=version,
        point_format=point_format,
        crs=pyproj.CRS("EPSG:2154") if version == "1.4" else None,
        extra=[("height", "f8"), ("triple", "3u1")],
        vlr=b"someone's own bytes",
        evlr=b"and more at the end" if version == "1.4" else None,
    )
    out = tmp_path / f"b{suffix}"
    result = segment_file(source, out, Layers())
    old, new = las_parts(source), las_parts(out)
    for part in ("header", "vlrs", "gap", "evlrs"):
        assert new[part] == old[part], part
    assert np.array_equal(except_class(new["points"]), except_class(old["points"]))
    assert np.array_equal(np.asarray(new["data"].classification), layers_of(result))


@pytest.mark.parametrize(
    "name",
    [
        "test_data_77055_627755_LA93_IGN69_extra_dims.laz",
        "las_with_origin_dsmMarker.laz",
    ],
)
def test_case_11_real_files_lose_nothing(tmp_path, name):
    source = shared_data(f"pointcloud/ign-pdal-tools/{name}")
    out = tmp_path / "out.laz"
    segment_file(source, out, Layers())
    old, new = las_parts(source), las_parts(out)
    assert (new["header"], new["vlrs"], new["evlrs"]) == (old["header"], old["vlrs"], old["evlrs"])
    assert np.array_equal(except_class(new["points"]), except_class(old["points"]))


@pytest.mark.parametrize("suffix", [".las", ".laz"])
@pytest.mark.parametrize(("point_format", "wider"), [(0, 6), (1, 6), (2, 7), (3, 7)])
def test_case_12_a_class_above_31_moves_to_a_wider_point_format_with_all_flags(
    tmp_path, suffix, point_format, wider, caplog
):
    source = make_las(
        tmp_path / f"a{suffix}", version="1.2", point_format=point_format, extra=[("more", "f4")]
    )
    cloud = read_cloud(source)
    classes = np.where(np.arange(len(cloud)) % 2, 32, 2)
    out = tmp_path / f"b{suffix}"
    write_cloud(cloud.with_fields(classification=classes), out)
    assert f"point format {wider}" in caplog.text
    old, new = laspy.read(source), laspy.read(out)
    assert (str(new.header.version), new.header.point_format.id) == ("1.4", wider)
    assert np.array_equal(np.asarray(new.classification), classes)
    same = set(old.point_format.dimension_names) - {"classification", "scan_angle_rank"}
    for name in same:
        assert np.array_equal(np.asarray(old[name]), np.asarray(new[name])), name
    assert np.asarray(new.scan_angle) * 0.006 == pytest.approx(np.asarray(old.scan_angle_rank), abs=0.004)
    counts = np.bincount(np.asarray(new.return_number), minlength=16)[1:]
    assert new.header.number_of_points_by_return[:15].tolist() == counts.tolist()
    raw = out.read_bytes()
    assert struct.unpack_from("<6I", raw, 107) == (0,) * 6
    assert struct.unpack_from("<Q", raw, 247) == (len(cloud),)


def test_case_12_the_reference_system_is_readable_in_the_wider_format(tmp_path):
    source = shared_data("pointcloud/ign-pdal-tools/classified_laz/test_data_77050_627755_LA93_IGN69.laz")
    cloud = read_cloud(source)
    write_cloud(cloud.with_fields(classification=np.full(len(cloud), 66)), tmp_path / "a.laz")
    header = laspy.read(tmp_path / "a.laz").header
    assert header.global_encoding.wkt
    assert header.parse_crs().to_epsg() == 2154


def test_case_12_small_classes_leave_the_point_format_alone(tmp_path):
    source = make_las(tmp_path / "a.las", version="1.2", point_format=1)
    cloud = read_cloud(source)
    write_cloud(cloud.with_fields(classification=np.full(len(cloud), 31)), tmp_path / "b.las")
    assert laspy.read(tmp_path / "b.las").header.point_format.id == 1


@pytest.mark.parametrize("point_format", [1, 3])
def test_case_13_flags_beside_the_class_are_neither_read_as_class_nor_lost(tmp_path, point_format):
    source = make_las(tmp_path / "a.las", version="1.2", point_format=point_format)
    data = laspy.read(source)
    data.classification[:], data.withheld[:], data.synthetic[:] = 4, 1, 0
    data.key_point[:] = np.arange(len(data)) % 2
    data.write(source)
    cloud = read_cloud(source)
    assert set(cloud.fields["classification"]) == {4}  # not 132 or 196
    write_cloud(cloud.with_fields(classification=np.full(len(cloud), 6)), tmp_path / "b.las")
    byte = laspy.read(tmp_path / "b.las").points.array["raw_classification"]
    assert byte.tolist() == [6 | 128 | 64 * (n % 2) for n in range(len(cloud))]


def test_case_14_colours_are_8_or_16_bit_for_the_whole_cloud_and_it_is_said(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    source = make_las(tmp_path / "a.las", point_format=7)
    data = laspy.read(source)
    for channel in ("red", "green", "blue"):
        data[channel][:] = np.arange(len(data)) % 256
    data.write(source)
    eight = read_cloud(source)
    assert eight.fields["color"].max() == 1
    assert "read as 8-bit" in caplog.text
    data.red[0] = 256  # one point
    data.write(source)
    sixteen = read_cloud(source)
    assert sixteen.fields["color"][1:, 1].max() == pytest.approx(255 / 65535)
    assert "read as 16-bit" in caplog.text
    forced = read_cloud(source, ReadOptions(rgb_max=255))
    assert forced.fields["color"][255, 1] == 1


@pytest.mark.parametrize(
    ("name", "bits", "largest"), [("laspy/autzen_trim.laz", 8, 236), ("PDAL/sample_c.las", 16, 54272)]
)
def test_case_14_real_files_of_both_kinds(name, bits, largest):
    cloud = read_cloud(shared_data(f"pointcloud/{name}"))
    assert cloud.fields["color"].max() == pytest.approx(largest / (2**bits - 1))


def test_case_17_label_files_hold_the_raw_ids_and_no_instance(tmp_path):
    from geomix.checkpoint import ClassInfo
    from pointcloud.data.labels import SEMANTICKITTI

    classes = tuple(ClassInfo(**one) for one in SEMANTICKITTI)
    scan = np.concatenate([scatter(200, size=(20, 20, 12)), np.full((200, 1), 0.5)], axis=1).astype("<f4")
    scan.tofile(tmp_path / "000000.bin")
    result = segment_file(tmp_path / "000000.bin", tmp_path / "000000.label", Layers(classes))
    raw = np.fromfile(tmp_path / "000000.label", "<u4")
    assert np.array_equal(raw, layers_of(result, classes))
    assert set(raw.tolist()) <= {one["id"] for one in SEMANTICKITTI}
    ids, instances = read_labels(tmp_path / "000000.label", 200)
    assert np.array_equal(ids, raw)
    assert not instances.any()


def test_case_17_the_upper_half_of_a_label_is_no_class():
    cloud = with_labels(read_cloud(shared_data("pointcloud/spvnas/000000.bin")))
    assert cloud.fields["classification"].max() == 254
    assert cloud.fields["instance"].max() > 0


def test_case_21_no_field_of_a_ply_or_pcd_is_dropped(tmp_path):
    rows = np.zeros(
        30, dtype=[("x", "f8"), ("y", "f8"), ("z", "f8"), ("my_own", "i2"), ("amplitude", "f4"), ("t", "u4")]
    )
    for axis, values in zip("xyz", scatter(30).T, strict=True):
        rows[axis] = values
    rows["my_own"], rows["amplitude"], rows["t"] = np.arange(30) - 15, np.linspace(0, 1, 30), 2**32 - 1
    plyfile.PlyData([plyfile.PlyElement.describe(rows, "vertex")]).write(str(tmp_path / "a.ply"))
    segment_file(tmp_path / "a.ply", tmp_path / "b.ply", Layers())
    out = plyfile.PlyData.read(str(tmp_path / "b.ply"))["vertex"].data
    assert out.dtype.names == (*rows.dtype.names, "classification")
    for name in rows.dtype.names:
        assert out[name].dtype == rows[name].dtype
        assert np.array_equal(out[name], rows[name]), name


def test_case_21_capital_letters_are_coordinates_too(tmp_path):
    source = shared_data("pointcloud/PDAL/autzen-utm.pcd")
    old = read_cloud(source)
    assert len(old) == 1065
    segment_file(source, tmp_path / "b.pcd", Layers())
    new = read_cloud(tmp_path / "b.pcd")
    assert new.source.payload.metadata.fields == old.source.payload.metadata.fields
    for name in set(old.source.payload.rows.dtype.names) - {"Classification"}:
        assert np.array_equal(new.source.payload.rows[name], old.source.payload.rows[name]), name


def test_case_22_scans_of_an_e57_lie_in_place_with_what_they_have(tmp_path):
    path = tmp_path / "a.e57"
    with pye57.E57(str(path), mode="w") as file:
        for index, (axes, state) in enumerate(((3, True), (3, False))):
            imf = file.image_file
            node = libe57.StructureNode(imf)
            node.set("guid", libe57.StringNode(imf, f"scan {index}"))
            if index:
                move, place = libe57.StructureNode(imf), libe57.StructureNode(imf)
                node.set("pose", place)
                place.set("translation", move)  # and no rotation
                for axis in "xyz":
                    move.set(axis, libe57.FloatNode(imf, 10.0))
            prototype, buffers, keep = libe57.StructureNode(imf), libe57.VectorSourceDestBuffer(), []
            names = [f"cartesian{axis}" for axis in "XYZ"[:axes]] + ["cartesianInvalidState"] * state
            for name in names:
                is_state = "State" in name
                prototype.set(
                    name, libe57.IntegerNode(imf, 0, 0, 2) if is_state else libe57.FloatNode(imf, 0.0)
                )
                keep.append(np.array([0, 0, 2], dtype="q") if is_state else np.array([1.0, 2.0, 3.0]))
                buffers.append(libe57.SourceDestBuffer(imf, name, keep[-1], 3, True, True))
            points = libe57.CompressedVectorNode(imf, prototype, libe57.VectorNode(imf, True))
            node.set("points", points)
            file.data3d.append(node)
            writer = points.writer(buffers)
            writer.write(3)
            writer.close()
    segment_file(path, tmp_path / "b.e57", Layers())
    out = read_cloud(tmp_path / "b.e57")
    assert out.coord[:, 0].tolist() == [1, 2, 3, 11, 12, 13]
    assert out.fields["scan"].tolist() == [0, 0, 0, 1, 1, 1]
    assert (out.fields["classification"] == 0).tolist() == [False, False, True, False, False, False]


def test_case_23_a_panic_of_the_decompressor_is_one_line_and_leaves_no_file(tmp_path, monkeypatch, capfd):
    """A panic is no `Exception`; without the guard it goes through every `except Exception`."""

    class PanicException(BaseException):
        pass

    def panic(*args, **kwargs):
        import os

        os.write(2, b"thread panicked at decompression.rs\nstack backtrace:\n")
        raise PanicException("Variable-size chunks, but no chunk table")

    source = make_las(tmp_path / "a.laz")
    model = tiny_model_file(tmp_path / "m.safetensors")
    monkeypatch.setattr(laspy, "read", panic)
    words = ["segment", source, "-o", tmp_path / "b.laz", "--model", model, "--quiet"]
    assert run(["pointcloud", *map(str, words)]) == 1
    err = capfd.readouterr().err
    assert "panicked" not in err
    assert len(err.strip().splitlines()) == 1
    assert "a.laz: the points cannot be decoded (Variable-size chunks" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.laz", "m.safetensors"]


def test_case_23_ctrl_c_is_not_taken_for_a_damaged_file(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    source = make_las(tmp_path / "a.laz")
    monkeypatch.setattr(laspy, "read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_cloud(source)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PDAL/garbage_nVariableLength.las", "counts 1069128089 variable length records"),
        ("PDAL/simple-laszip-compressor-version-1.2r0.laz", "rewrite the file with a current laszip"),
        ("ign-pdal-tools/Semis_2022_0906_6665_LA93_IGN69_nok.laz", "not written to its end"),
        ("lidar-prod/dummy_file1.las", r"is empty \(0 bytes\)"),
    ],
)
def test_case_23_damaged_real_files_fail_at_once_with_one_line(name, message):
    path = shared_data(f"pointcloud/{name}")
    with pytest.raises(FormatError, match=message) as caught:
        read_cloud(path)
    assert str(caught.value).startswith(str(path))


def test_case_23_damage_anywhere_is_an_error_of_ours_or_nothing(tmp_path):
    rng = np.random.default_rng(9)
    raws = [
        make_las(tmp_path / f"a{suffix}", count=200, extra=[("b", "u2")]).read_bytes()
        for suffix in (".las", ".laz")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(120):
            raw = bytearray(raws[number % 2])
            for place in rng.integers(0, len(raw), rng.integers(1, 12)):
                raw[place] = rng.integers(0, 256)
            path = tmp_path / f"damaged{number % 2}.laz"
            path.write_bytes(raw[: rng.integers(len(raw) // 2, len(raw) + 1)])
            with suppress(FormatError, InputError):  # anything else fails the test
                read_cloud(path)
