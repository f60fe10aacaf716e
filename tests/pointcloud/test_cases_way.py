"""What users of point-cloud tools complained about: the whole way from a file to its classes."""

import logging
import re

import laspy
import numpy as np
import pyproj
import pytest

from geomix.cli import run
from geomix.errors import InputError, MemoryBudgetError
from pointcloud import Cloud, read_cloud, segment, write_cloud
from pointcloud.io import ReadOptions, WriteOptions
from pointcloud.predict import segment_file
from tests.helpers import shared_data
from tests.pointcloud.making import (
    CLASSES,
    Layers,
    cloud_of,
    layers_of,
    make_las,
    scatter,
    tiny_model,
    tiny_model_file,
)


def test_case_01_a_file_without_labels_is_segmented_by_one_command(tmp_path):
    model = tiny_model_file(tmp_path / "m.safetensors")
    coord = scatter(80)
    write_cloud(Cloud.from_arrays(coord), tmp_path / "in.ply")
    words = ["segment", tmp_path / "in.ply", "-o", tmp_path / "out.ply", "--model", model, "--device", "cpu"]
    assert run(["pointcloud", *map(str, words)]) == 0
    out = read_cloud(tmp_path / "out.ply")
    assert np.array_equal(out.coord, coord)
    assert set(out.fields["classification"]) <= {info.id for info in CLASSES}


def test_case_07_a_scene_beyond_the_memory_is_estimated_and_refused_before_the_work_or_streamed(caplog):
    caplog.set_level(logging.INFO)
    cloud, model = cloud_of(40_000, size=(300, 300, 5)), tiny_model()
    whole = segment(cloud, model, memory="4GB")
    said = re.search(r"40000 points in (\d+) voxels; needs about [\d.]+ MB, may use 4 GB\n", caplog.text)
    streamed = segment(cloud, model, memory=model.memory_estimate(int(said[1])) - 1)
    assert "so it works in slices" in caplog.text
    assert np.array_equal(streamed.fields["classification"], whole.fields["classification"])
    assert streamed.fields["confidence"] == pytest.approx(whole.fields["confidence"], abs=1e-5)
    with pytest.raises(MemoryBudgetError, match="raise --memory"):
        segment(cloud, model, memory="1kB")


@pytest.mark.parametrize("shift", [6e6, -6e6, 123_456.0])
def test_case_09_a_cloud_far_from_the_origin_is_labelled_as_the_same_cloud_near_it(shift):
    coord, model = scatter(800), tiny_model()
    here = segment(Cloud.from_arrays(coord), model)
    there = segment(Cloud.from_arrays(coord + np.array([shift, 0, 0])), model)
    assert np.array_equal(here.fields["classification"], there.fields["classification"])
    assert here.fields["confidence"] == pytest.approx(there.fields["confidence"], abs=1e-5)


def test_case_09_no_reader_rounds_coordinates_to_float32(tmp_path):
    coord = scatter(50, origin=(700_000.0, 6_600_000.0, 100.0))
    for suffix in (".laz", ".ply", ".pcd", ".npz", ".csv"):
        write_cloud(Cloud.from_arrays(coord), tmp_path / f"a{suffix}")
        assert np.abs(read_cloud(tmp_path / f"a{suffix}").coord - coord).max() < 1e-4, suffix


def test_case_09_a_file_that_was_rounded_before_says_so(caplog):
    read_cloud(shared_data("pointcloud/data/samp11-utm.pcd"))
    assert "stored as float32, in steps of 0.5 m" in caplog.text


def test_case_10_degrees_are_refused_with_the_way_out(tmp_path):
    degrees = scatter(300, size=(0.02, 0.02, 30), origin=(5.1, 45.2, 200))
    header = laspy.LasHeader(version="1.4", point_format=6)
    header.scales, header.offsets = [1e-7, 1e-7, 0.001], [5, 45, 200]
    header.add_crs(pyproj.CRS("EPSG:4326"))
    data = laspy.LasData(header)
    data.xyz = degrees
    data.write(tmp_path / "a.las")
    data.header.vlrs.clear()
    data.header.global_encoding.wkt = False
    data.write(tmp_path / "silent.las")
    for name in ("a.las", "silent.las"):
        with pytest.raises(InputError, match="degrees, the model needs metres; allow --project"):
            segment(tmp_path / name, Layers())
        out = tmp_path / f"out_{name}"
        segment_file(tmp_path / name, out, Layers(), project=True)
        assert np.array_equal(read_cloud(out).coord, read_cloud(tmp_path / name).coord)


def test_case_10_feet_are_scaled_aloud_and_stay_in_the_file(tmp_path, caplog):
    source = make_las(tmp_path / "a.las", crs=pyproj.CRS("EPSG:2994"), origin=(1e6, 1e6, 300))
    out = tmp_path / "b.las"
    segment_file(source, out, Layers())
    assert "in feet by its reference system; 1 unit = 0.3048 m" in caplog.text
    metres = Cloud.from_arrays(laspy.read(source).xyz * 0.3048)
    assert np.array_equal(read_cloud(out).fields["classification"], layers_of(metres))
    assert np.array_equal(laspy.read(out).points.array["X"], laspy.read(source).points.array["X"])


def test_case_10_the_caller_may_say_the_unit(tmp_path):
    coord = scatter(200)
    np.save(tmp_path / "a.npy", coord * 1000)
    found = segment(read_cloud(tmp_path / "a.npy", ReadOptions(unit="0.001")), Layers())
    assert np.array_equal(found.fields["classification"], layers_of(Cloud.from_arrays(coord)))


def test_case_15_what_a_model_needs_and_a_file_lacks_is_named_with_what_it_has(tmp_path):
    model = Layers(inputs={"voxel": 0.5, "features": ["offset", "intensity", "color"]})
    write_cloud(Cloud.from_arrays(scatter(20), curvature=np.zeros(20)), tmp_path / "a.ply")
    with pytest.raises(InputError, match=r"a\.ply: the model needs intensity; the cloud has curvature"):
        segment(tmp_path / "a.ply", model)


def test_case_15_a_colour_that_is_black_everywhere_counts_as_missing(tmp_path):
    source = make_las(tmp_path / "a.las", point_format=7)
    data = laspy.read(source)
    for channel in ("red", "green", "blue"):
        data[channel][:] = 0
    data.write(source)
    with pytest.raises(InputError, match="needs color"):
        segment(source, Layers(inputs={"voxel": 0.5, "features": ["offset", "color"]}))
    optional = {"voxel": 0.5, "features": ["offset", "color"], "optional": ["color"]}
    assert len(segment(source, Layers(inputs=optional))) == 300


@pytest.mark.parametrize("suffix", [".las", ".laz", ".ply", ".pcd", ".npz", ".csv", ".xyz"])
def test_case_16_every_point_comes_out_in_its_place_duplicates_included(tmp_path, suffix):
    coord = scatter(400)
    coord[50:60] = coord[0]
    shuffled = coord[np.random.default_rng(7).permutation(400)]
    write_cloud(Cloud.from_arrays(shuffled), tmp_path / f"a{suffix}")
    source = read_cloud(tmp_path / f"a{suffix}")
    segment_file(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", Layers())
    out = read_cloud(tmp_path / f"b{suffix}")
    if suffix == ".npz":
        out = out.with_fields(classification=np.load(tmp_path / "b.npz")["classification"])
    assert np.array_equal(out.coord, source.coord)
    assert np.array_equal(out.fields["classification"], layers_of(source))


def test_case_16_a_permutation_of_the_input_permutes_the_output():
    coord, model = scatter(600), tiny_model()
    order = np.random.default_rng(8).permutation(600)
    straight = segment(Cloud.from_arrays(coord), model)
    mixed = segment(Cloud.from_arrays(coord[order]), model)
    assert np.array_equal(straight.fields["classification"][order], mixed.fields["classification"])
    assert straight.fields["confidence"][order] == pytest.approx(mixed.fields["confidence"], abs=1e-5)


def test_case_20_points_without_a_return_keep_their_row_and_get_a_code(tmp_path):
    coord = scatter(100)
    coord[10:20], coord[40:45] = np.nan, 0
    for suffix in (".ply", ".pcd", ".xyz"):
        write_cloud(Cloud.from_arrays(coord), tmp_path / f"a{suffix}")
        segment_file(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", Layers())
        out = read_cloud(tmp_path / f"b{suffix}")
        bad = out.fields["classification"] == 0
        assert np.flatnonzero(bad).tolist() == [*range(10, 20), *range(40, 45)], suffix
        good = Cloud.from_arrays(coord[~bad])
        assert np.array_equal(out.fields["classification"][~bad], layers_of(good)), suffix


def test_case_20_a_real_kinect_image_keeps_its_124908_holes(tmp_path):
    source = shared_data("pointcloud/data/learn0.pcd")
    segment_file(source, tmp_path / "b.pcd", Layers())
    out = read_cloud(tmp_path / "b.pcd")
    assert len(out) == 307_200
    assert np.count_nonzero(out.fields["classification"] == 0) == 124_908


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("suffix", [".las", ".laz", ".ply", ".pcd"])
def test_case_25_empty_and_tiny_clouds_have_a_result(tmp_path, suffix, count):
    write_cloud(Cloud.from_arrays(scatter(count)), tmp_path / f"a{suffix}")
    model = tiny_model_file(tmp_path / "m.safetensors")
    words = ["segment", tmp_path / f"a{suffix}", "-o", tmp_path / f"b{suffix}", "--model", model]
    assert run(["pointcloud", *map(str, words), "--preview", str(tmp_path / "b.png")]) == 0
    out = read_cloud(tmp_path / f"b{suffix}")
    assert out.fields["classification"].shape == (count,)
    assert (tmp_path / "b.png").is_file()


@pytest.mark.parametrize(
    "name",
    [
        "PDAL/no-points.las",
        "myria3d/single-point-cloud.laz",
        "ign-pdal-tools/test_data_0436_6384_LA93_IGN69_single_point.laz",
    ],
)
def test_case_25_real_files_with_no_point_or_one(tmp_path, name):
    source = shared_data(f"pointcloud/{name}")
    result = segment_file(
        source, tmp_path / f"b{source.suffix}", tiny_model(), writing=WriteOptions(extra=("entropy",))
    )
    assert len(result) == laspy.read(tmp_path / f"b{source.suffix}").header.point_count <= 1
