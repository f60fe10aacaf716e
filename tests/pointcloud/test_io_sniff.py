import shutil
from dataclasses import replace

import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError, OutputExistsError, UnsupportedError
from pointcloud.io import FORMATS, ReadOptions, format_of, read_cloud, sniff, write_cloud
from tests.pointcloud.making import cloud_of, scatter

NAMES = ["a.las", "a.laz", "a.ply", "a.pcd", "a.npz", "a.csv"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", ["thing", "thing.las", "thing.bin", "thing.pcd", "thing.txt"])
def test_content_decides_and_not_the_name(tmp_path, name, wrong):
    cloud = cloud_of(30)
    write_cloud(cloud, tmp_path / name)
    shutil.copy(tmp_path / name, tmp_path / wrong)
    assert sniff(tmp_path / wrong) == format_of(tmp_path / name)
    assert len(read_cloud(tmp_path / wrong)) == 30


def test_kitti_is_what_is_left(tmp_path):
    scatter(40).astype("<f4").repeat(4, axis=0).tofile(tmp_path / "a.bin")
    assert sniff(tmp_path / "a.bin") == "floats"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        (b"\x89PNG\r\n\x1a\n0000", "PNG picture"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b'{"a": 1}', "JSON"),
        (b"\x1f\x8b\x08\x00rest", "gzip"),
        (b"just some words about a cloud\n" * 9, "text without points"),
    ],
)
def test_what_is_no_cloud_is_called_by_its_name(tmp_path, content, message):
    path = tmp_path / "a.xyz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_cloud(path)


@pytest.mark.parametrize("suffix", [".las", ".ply", ".npy"])
def test_a_name_that_promises_another_format(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    np.arange(99, dtype=np.float32).tofile(path)
    with pytest.raises(FormatError, match=rf"does not start as a \{suffix} file does"):
        read_cloud(path)


def test_the_caller_names_the_format(tmp_path):
    write_cloud(cloud_of(5), tmp_path / "a.csv")
    assert len(read_cloud(tmp_path / "a.csv", ReadOptions(format="text"))) == 5
    with pytest.raises(InputError, match="choose one of las, ply"):
        read_cloud(tmp_path / "a.csv", ReadOptions(format="laz"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MissingFileError, match=r"a\.las"):
        read_cloud(tmp_path / "a.las")


def test_a_suffix_that_means_nothing_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"'\.xls' names no format; choose one of \.las, \.laz"):
        write_cloud(cloud_of(5), tmp_path / "a.xls")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_there_is_not_overwritten_unasked(tmp_path, name):
    cloud = cloud_of(5)
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputExistsError):
        write_cloud(cloud, tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"
    write_cloud(cloud, tmp_path / name, overwrite=True)
    assert len(read_cloud(tmp_path / name)) == 5


@pytest.mark.parametrize("name", [name for name in NAMES if name != "a.csv"])
def test_a_file_may_be_replaced_by_its_own_result(tmp_path, name):
    write_cloud(cloud_of(50), tmp_path / name)
    cloud = read_cloud(tmp_path / name)
    write_cloud(cloud.with_fields(classification=np.full(50, 9)), tmp_path / name, overwrite=True)
    again = read_cloud(tmp_path / name)
    assert again.fields["classification"].tolist() == [9] * 50
    assert np.array_equal(again.coord, cloud.coord)


@pytest.mark.parametrize("target", [".las", ".laz", ".ply", ".pcd", ".npz", ".csv"])
@pytest.mark.parametrize("source", NAMES)
def test_every_format_becomes_every_other_with_all_points_in_order(tmp_path, source, target):
    write_cloud(cloud_of(60), tmp_path / source)
    cloud = read_cloud(tmp_path / source)
    write_cloud(cloud, tmp_path / f"out{target}")
    again = read_cloud(tmp_path / f"out{target}")
    assert np.abs(again.coord - cloud.coord).max() < 1e-4
    assert np.array_equal(again.fields["classification"], cloud.fields["classification"])
    assert np.abs(again.fields["intensity"] - cloud.fields["intensity"]).max() < 1e-4


def test_every_format_has_its_modules():
    from importlib import import_module

    for form in FORMATS.values():
        assert callable(import_module(f"pointcloud.io.{form.reader}").read)
        assert callable(import_module(f"pointcloud.io.{form.writer}").write)


@pytest.mark.parametrize("name", NAMES)
def test_moved_coordinates_are_not_dropped_in_silence(tmp_path, name):
    write_cloud(cloud_of(5), tmp_path / name)
    cloud = read_cloud(tmp_path / name)
    moved = replace(cloud, coord=cloud.coord + 1)
    with pytest.raises(InputError, match="no longer those of"):
        write_cloud(moved, tmp_path / f"b{name}")
    write_cloud(replace(moved, source=None), tmp_path / f"b{name}")
    assert np.abs(read_cloud(tmp_path / f"b{name}").coord - moved.coord).max() < 1e-4
