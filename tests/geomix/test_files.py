import os

import pytest

from geomix.errors import MissingFileError, OutputExistsError
from geomix.files import make_folder, new_file


def test_file_appears_only_when_the_block_ends_well(tmp_path):
    path = tmp_path / "map.tif"
    with new_file(path) as temporary:
        temporary.write_text("whole")
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".tif"
        assert not path.exists()
    assert path.read_text() == "whole"
    assert os.listdir(tmp_path) == ["map.tif"]


def test_side_files_move_along(tmp_path):
    with new_file(tmp_path / "map.tif") as temporary:
        temporary.write_text("map")
        temporary.with_name(temporary.name + ".aux.xml").write_text("names")
    assert (tmp_path / "map.tif.aux.xml").read_text() == "names"
    assert sorted(os.listdir(tmp_path)) == ["map.tif", "map.tif.aux.xml"]


def test_nothing_is_left_when_the_block_fails(tmp_path):
    with pytest.raises(RuntimeError, match="half way"), new_file(tmp_path / "map.tif") as temporary:
        temporary.write_text("half")
        temporary.with_name(temporary.name + ".aux.xml").write_text("names")
        raise RuntimeError("half way")
    assert os.listdir(tmp_path) == []


def test_an_old_file_survives_a_failed_overwrite(tmp_path):
    path = tmp_path / "map.tif"
    path.write_text("old")
    with pytest.raises(RuntimeError), new_file(path, overwrite=True) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"


def test_an_existing_file_is_kept_unless_overwriting_is_allowed(tmp_path):
    path = tmp_path / "map.tif"
    path.write_text("old")
    with pytest.raises(OutputExistsError, match=r"map\.tif: exists already.*--overwrite"), new_file(path):
        pass
    with new_file(path, overwrite=True) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "map.tif"
    with pytest.raises(OutputExistsError), new_file(path) as temporary:
        temporary.write_text("ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs"


def test_a_missing_folder_and_a_folder_in_place_of_the_file_are_errors(tmp_path):
    with (
        pytest.raises(MissingFileError, match=r"folder .*none does not exist"),
        new_file(tmp_path / "none" / "a.tif"),
    ):
        pass
    with pytest.raises(OutputExistsError, match="is a folder"), new_file(tmp_path, overwrite=True):
        pass


def test_a_new_file_can_be_read_by_others(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("")
    with new_file(ours) as temporary:
        temporary.write_text("")
    assert ours.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_way_of_a_folder_is_named(tmp_path, place):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OutputExistsError, match="taken.*a file is in the way"):
        make_folder(tmp_path / place)
    assert make_folder(tmp_path / "new" / "deep").is_dir()
    assert make_folder(tmp_path / "new").is_dir()
