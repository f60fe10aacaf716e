import logging
import struct

import laspy
import numpy as np
import pyproj
import pytest

from geomix.errors import FormatError, InputError
from pointcloud.cloud import Cloud
from pointcloud.io import ReadOptions, WriteOptions, read_cloud, write_cloud
from tests.helpers import shared_data
from tests.pointcloud.making import cloud_of, except_class, las_parts, make_las, scatter

FORMATS = [("1.2", 0), ("1.2", 1), ("1.2", 2), ("1.2", 3), ("1.4", 1), ("1.4", 6), ("1.4", 7), ("1.4", 8)]
REAL = [
    "laspy/autzen_trim.laz",
    "laspy/extrabytes.las",
    "laspy/file_with_both_wkt_and_geotiff_vlrs.las",
    "laspy/simple.copc.laz",
    "laspy/vegetation_1_3.las",
    "PDAL/no-points.las",
    "PDAL/sample_c.las",
    "ign-pdal-tools/test_pdalfail_0643_6319_LA93_IGN69.laz",
    "ign-pdal-tools/las_with_origin_dsmMarker.laz",
    "ign-pdal-tools/classified_laz/test_data_77050_627755_LA93_IGN69.laz",
    "ign-pdal-tools/test_data_0436_6384_LA93_IGN69_single_point.laz",
    "myria3d/single-point-cloud.laz",
    "lidR/Topography.laz",
]


@pytest.fixture(params=[".las", ".laz"])
def suffix(request):
    return request.param


@pytest.mark.parametrize(("version", "point_format"), FORMATS)
def test_a_file_that_is_read_and_written_is_the_same_file(tmp_path, version, point_format, suffix):
    source = make_las(
        tmp_path / f"in{suffix}", version=version, point_format=point_format, extra=[("more", "f4")]
    )
    write_cloud(read_cloud(source), tmp_path / f"out{suffix}")
    assert (tmp_path / f"out{suffix}").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_that_is_read_and_written_is_the_same_file(tmp_path, name):
    source = shared_data(f"pointcloud/{name}")
    out = tmp_path / f"out{source.suffix}"
    write_cloud(read_cloud(source), out)
    assert out.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(("version", "point_format"), FORMATS)
def test_only_the_class_changes(tmp_path, version, point_format, suffix):
    evlr = b"tail" * 20 if version == "1.4" else None
    source = make_las(
        tmp_path / f"in{suffix}",
        version=version,
        point_format=point_format,
        evlr=evlr,
        vlr=b"keep",
        extra=[("a", "3u2")],
    )
    cloud = read_cloud(source)
    classes = np.arange(len(cloud)) % 32
    out = tmp_path / f"out{suffix}"
    write_cloud(cloud.with_fields(classification=classes), out)
    old, new = las_parts(source), las_parts(out)
    assert np.array_equal(np.asarray(new["data"].classification), classes)
    for part in ("header", "vlrs", "gap", "evlrs"):
        assert new[part] == old[part], part
    assert np.array_equal(except_class(new["points"]), except_class(old["points"]))


def test_laz_and_las_turn_into_each_other_without_a_loss(tmp_path):
    source = make_las(tmp_path / "a.las", evlr=b"tail" * 9, vlr=b"keep", extra=[("a", "f8")])
    write_cloud(read_cloud(source), tmp_path / "b.laz")
    write_cloud(read_cloud(tmp_path / "b.laz"), tmp_path / "c.las")
    assert (tmp_path / "c.las").read_bytes() == source.read_bytes()


def test_confidence_and_entropy_are_appended_as_described_dimensions(tmp_path, suffix):
    source = make_las(tmp_path / f"in{suffix}", extra=[("a", "u2")], evlr=b"end")
    cloud = read_cloud(source)
    values = np.linspace(0, 1, len(cloud), dtype=np.float32)
    out = tmp_path / f"out{suffix}"
    write_cloud(
        cloud.with_fields(confidence=values, entropy=values * 2),
        out,
        WriteOptions(extra=("confidence", "entropy")),
    )
    old, new = las_parts(source), las_parts(out)
    assert np.array_equal(np.asarray(new["data"]["confidence"]), values)
    assert np.array_equal(np.asarray(new["data"]["entropy"]), values * 2)
    assert new["evlrs"] == old["evlrs"]
    for name in old["points"].dtype.names:
        assert np.array_equal(new["points"][name], old["points"][name]), name


def test_a_dimension_of_that_name_is_filled_if_it_holds_fractions(tmp_path):
    source = make_las(tmp_path / "in.las", extra=[("first", "u1"), ("confidence", "f8"), ("last", "u1")])
    cloud = read_cloud(source)
    values = np.linspace(0, 1, len(cloud), dtype=np.float32)
    write_cloud(
        cloud.with_fields(confidence=values), tmp_path / "out.las", WriteOptions(extra=("confidence",))
    )
    old, new = las_parts(source), las_parts(tmp_path / "out.las")
    assert new["points"].dtype == old["points"].dtype
    assert np.array_equal(new["points"]["confidence"], values.astype(np.float64))
    for name in ("X", "first", "last"):
        assert np.array_equal(new["points"][name], old["points"][name])


def test_a_dimension_of_whole_numbers_is_left_alone(tmp_path, caplog):
    source = make_las(tmp_path / "in.las", extra=[("confidence", "u1")])
    cloud = read_cloud(source)
    values = np.linspace(0, 1, len(cloud), dtype=np.float32)
    write_cloud(
        cloud.with_fields(confidence=values), tmp_path / "out.las", WriteOptions(extra=("confidence",))
    )
    old, new = las_parts(source), las_parts(tmp_path / "out.las")
    assert np.array_equal(new["points"]["confidence"], old["points"]["confidence"])
    assert np.array_equal(new["points"]["geomix_confidence"], values)
    assert "geomix_confidence" in caplog.text


def test_bytes_that_nothing_describes_stay_before_new_dimensions(tmp_path):
    source = make_las(tmp_path / "in.las", extra=[("a", "u2"), ("b", "f4")])
    raw = bytearray(source.read_bytes())
    place = raw.index(b"LASF_Spec")
    raw[place : place + 9] = b"somewhere"  # nobody reads the descriptions any more
    source.write_bytes(raw)
    cloud = read_cloud(source)
    entropy = np.linspace(0, 1, len(cloud), dtype=np.float32)
    write_cloud(cloud.with_fields(entropy=entropy), tmp_path / "out.las", WriteOptions(extra=("entropy",)))
    new = laspy.read(tmp_path / "out.las")
    assert np.array_equal(np.asarray(new["entropy"]), entropy)
    old_record, new_record = read_raw(source), read_raw(tmp_path / "out.las")
    assert np.array_equal(new_record[:, : old_record.shape[1]], old_record)


def read_raw(path):
    array = laspy.read(path).points.array
    return np.frombuffer(array.tobytes(), np.uint8).reshape(len(array), -1)


def test_a_second_description_is_taken_along(tmp_path):
    source = shared_data("pointcloud/ign-pdal-tools/test_pdalfail_0643_6319_LA93_IGN69.laz")
    cloud = read_cloud(source)
    entropy = np.linspace(0, 1, len(cloud), dtype=np.float32)
    out = tmp_path / "out.laz"
    write_cloud(cloud.with_fields(entropy=entropy), out, WriteOptions(extra=("entropy",)))
    assert np.array_equal(np.asarray(laspy.read(out)["entropy"]), entropy)
    old_record, new_record = read_raw(source), read_raw(out)
    assert np.array_equal(new_record[:, : old_record.shape[1]], old_record)


def test_an_octree_still_leads_to_its_points(tmp_path):
    source = shared_data("pointcloud/laspy/simple.copc.laz")
    cloud = read_cloud(source)
    out = tmp_path / "out.copc.laz"
    classes = (np.arange(len(cloud)) % 200).astype(np.uint8)
    write_cloud(
        cloud.with_fields(classification=classes, entropy=np.ones(len(cloud), np.float32)),
        out,
        WriteOptions(extra=("entropy",)),
    )
    with laspy.CopcReader.open(source) as old, laspy.CopcReader.open(out) as new:
        for level in range(4):
            a, b = old.query(level=level), new.query(level=level)
            assert len(a) == len(b) > 0
            for axis in "XYZ":
                assert np.array_equal(a.array[axis], b.array[axis])
        everything = new.query()
        assert len(everything) == len(cloud)
    assert np.array_equal(np.asarray(laspy.read(out).classification), classes)


def test_copc_becomes_plain_las(tmp_path):
    source = shared_data("pointcloud/laspy/simple.copc.laz")
    write_cloud(read_cloud(source), tmp_path / "out.las")
    new = las_parts(tmp_path / "out.las")
    assert np.array_equal(new["points"], laspy.read(source).points.array)
    assert new["evlrs"] == []
    assert not any(b"copc" in vlr[:20] for vlr in new["vlrs"])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_files_keep_their_points(tmp_path, count, suffix):
    source = make_las(tmp_path / f"in{suffix}", count=count)
    cloud = read_cloud(source)
    assert cloud.coord.shape == (count, 3)
    write_cloud(cloud.with_fields(classification=np.full(count, 5)), tmp_path / f"out{suffix}")
    assert np.asarray(laspy.read(tmp_path / f"out{suffix}").classification).tolist() == [5] * count


def test_waveforms_behind_the_points_move_along(tmp_path):
    source = make_las(tmp_path / "in.las", version="1.3", point_format=4)
    raw = bytearray(source.read_bytes())
    struct.pack_into("<Q", raw, 227, len(raw))
    source.write_bytes(raw + b"waveforms")
    cloud = read_cloud(source)
    out = tmp_path / "out.las"
    entropy = np.ones(len(cloud), np.float32)
    write_cloud(cloud.with_fields(entropy=entropy), out, WriteOptions(extra=("entropy",)))
    written = out.read_bytes()
    place = struct.unpack_from("<Q", written, 227)[0]
    assert written[place:] == b"waveforms"


def test_fields_have_the_words_of_a_cloud(tmp_path):
    source = make_las(tmp_path / "a.las", point_format=8)
    raw = laspy.read(source)
    cloud = read_cloud(source)
    assert cloud.fields["intensity"] == pytest.approx(np.asarray(raw.intensity) / 65535)
    assert cloud.fields["color"][:, 1] == pytest.approx(np.asarray(raw.green) / 65535)
    assert cloud.fields["nir"] == pytest.approx(np.asarray(raw.nir) / 65535)
    assert cloud.fields["scan_angle"] == pytest.approx(np.asarray(raw.scan_angle) * 0.006)
    for name in ("return_number", "number_of_returns", "classification", "withheld", "gps_time"):
        assert np.array_equal(cloud.fields[name], np.asarray(raw[name])), name
    assert np.array_equal(cloud.coord, raw.xyz)


def test_what_was_not_measured_is_no_field(tmp_path):
    path = make_las(tmp_path / "a.las", point_format=7)
    data = laspy.read(path)
    data.intensity[:] = 0
    data.red[:] = data.green[:] = data.blue[:] = 0
    data.write(path)
    assert not {"intensity", "color"} & read_cloud(path).fields.keys()


def test_a_name_in_latin_1_does_not_stop_the_reader(tmp_path):
    source = make_las(tmp_path / "a.las")
    raw = bytearray(source.read_bytes())
    raw[26:32] = "é à ù ".encode("latin-1")[:6]
    source.write_bytes(raw)
    write_cloud(read_cloud(source), tmp_path / "b.las")
    assert (tmp_path / "b.las").read_bytes() == bytes(raw)


def test_a_new_file_holds_a_cloud_of_another_format(tmp_path, suffix):
    cloud = cloud_of(origin=(500_000.0, 5_400_000.0, 300.0)).with_fields(
        curvature=np.linspace(0, 1, 500, dtype=np.float32),
        normal=np.ones((500, 3), np.float32),
        flag=np.ones(500, bool),
    )
    cloud = Cloud(cloud.coord, cloud.fields, crs=pyproj.CRS("EPSG:32632").to_wkt())
    out = tmp_path / f"new{suffix}"
    write_cloud(cloud, out)
    again = read_cloud(out)
    assert np.abs(again.coord - cloud.coord).max() < 1e-4
    assert pyproj.CRS(again.crs).to_epsg() == 32632
    assert np.array_equal(again.fields["classification"], cloud.fields["classification"])
    assert np.abs(again.fields["intensity"] - cloud.fields["intensity"]).max() < 1e-5
    assert np.abs(again.fields["color"] - cloud.fields["color"]).max() < 1e-5
    for name in ("curvature", "normal", "flag"):
        assert np.array_equal(again.fields[name], cloud.fields[name]), name


def test_a_cloud_wider_than_32_bits_of_tenths_of_a_millimetre_is_rounded_coarser(tmp_path):
    coord = np.array([[0.0, 0, 0], [3e6, 1, 1]])
    write_cloud(Cloud.from_arrays(coord), tmp_path / "a.las")
    assert np.abs(read_cloud(tmp_path / "a.las").coord - coord).max() <= 0.001


def test_a_new_file_holds_no_nan(tmp_path):
    coord = scatter(20)
    coord[3] = np.nan
    with pytest.raises(InputError, match=r"1 of 20 points.*write PLY"):
        write_cloud(Cloud.from_arrays(coord), tmp_path / "a.las")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_new_files(tmp_path, count):
    write_cloud(Cloud.from_arrays(scatter(count)), tmp_path / "a.laz")
    assert len(read_cloud(tmp_path / "a.laz")) == count


def damaged(path, tmp_path, **patches):
    raw = bytearray(path.read_bytes())
    for place, (form, value) in patches.items():
        struct.pack_into(form, raw, int(place[1:]), value)
    out = tmp_path / f"damaged{path.suffix}"
    out.write_bytes(raw)
    return out


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"_24": ("B", 2)}, "version 2.4"),
        ({"_94": ("<H", 0)}, "which cannot be"),
        ({"_96": ("<I", 10**9)}, "which cannot be"),
        ({"_100": ("<I", 10**9)}, "counts 1000000000 variable length records"),
        ({"_104": ("B", 42)}, "point format 42"),
        ({"_105": ("<H", 5)}, "gives a point 5 bytes"),
        ({"_131": ("<d", 0.0)}, "scale and offset"),
        ({"_131": ("<d", float("nan"))}, "scale and offset"),
        ({"_247": ("<Q", 10**12)}, "counts 1000000000000 points"),
        ({"_247": ("<Q", 301)}, "the file holds 300"),
    ],
    ids=str,
)
def test_a_header_that_lies_is_one_clear_line(tmp_path, patch, message):
    source = make_las(tmp_path / "a.las")
    with pytest.raises(FormatError, match=message):
        read_cloud(damaged(source, tmp_path, **patch))


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"_247": ("<Q", 10**9)}, "counts 1000000000 points"),
        ({"_247": ("<Q", 60_000)}, "counts 60000 points"),
    ],
    ids=str,
)
def test_a_count_that_the_chunks_cannot_hold_is_one_clear_line(tmp_path, patch, message):
    source = make_las(tmp_path / "a.laz")
    with pytest.raises(FormatError, match=message):
        read_cloud(damaged(source, tmp_path, **patch))


def test_a_layer_of_gigabytes_is_not_believed(tmp_path):
    source = make_las(tmp_path / "a.laz")
    raw = bytearray(source.read_bytes())
    start, record = struct.unpack_from("<I", raw, 96)[0], struct.unpack_from("<H", raw, 105)[0]
    struct.pack_into("<I", raw, start + 8 + record + 4, 0xFFFFFF00)
    source.write_bytes(raw)
    with pytest.raises(FormatError, match="layers of chunk 1 of 1"):
        read_cloud(source)


@pytest.mark.parametrize("cut", [0, 100, 300, 1000, -1, -30])
def test_a_file_that_was_cut_off_is_one_clear_line(tmp_path, cut, suffix):
    source = make_las(tmp_path / f"a{suffix}", point_format=3, version="1.2")
    source.write_bytes(source.read_bytes()[:cut])
    with pytest.raises(FormatError, match="cut off|empty|damaged|misnamed"):
        read_cloud(source)


def test_a_reference_system_that_nobody_understands_is_kept_and_named(tmp_path, caplog):
    source = make_las(tmp_path / "a.las")
    data = laspy.read(source)
    data.header.vlrs.append(laspy.VLR("LASF_Projection", 2112, "wkt", b'PROJCS["broken'))
    data.header.global_encoding.wkt = True
    data.write(source)
    cloud = read_cloud(source)
    assert cloud.crs is None
    assert "cannot be understood" in caplog.text
    write_cloud(cloud, tmp_path / "b.las")
    assert (tmp_path / "b.las").read_bytes() == source.read_bytes()


def test_colours_in_16_bits_are_said_quietly(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    read_cloud(make_las(tmp_path / "a.las", point_format=7))
    assert [r.levelname for r in caplog.records if "16-bit" in r.message] == ["INFO"]


def test_the_caller_decides_the_brightness(tmp_path):
    source = make_las(tmp_path / "a.las", point_format=7)
    full = read_cloud(source).fields["color"]
    halved = read_cloud(source, ReadOptions(rgb_max=131070)).fields["color"]
    assert halved == pytest.approx(full / 2)
    with pytest.raises(InputError, match="rgb_max"):
        read_cloud(source, ReadOptions(rgb_max=0))
