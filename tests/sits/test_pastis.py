"""The PASTIS format: real metadata rows, both spellings of dates, what is wrong with a folder."""

import json
import shutil
from datetime import date

import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from sits.io.pastis import ROTATION, PastisFolder, parse_dates
from sits.synthetic import write_pastis
from tests.helpers import shared_data


@pytest.fixture
def real(tmp_path):
    shutil.copy(shared_data("sits/pastis/metadata_9patches.geojson"), tmp_path / "metadata.geojson")
    shutil.copy(shared_data("sits/pastis/NORM_S2_patch.json"), tmp_path)
    return PastisFolder(tmp_path)


def test_real_footprints_give_squares_on_the_grid_of_the_tile(real):
    assert len(real.patches) == 9
    for patch in real.patches.values():
        a, b, west, d, e, north = tuple(patch.transform(128))[:6]
        assert (a, b, d, e) == (10.0, 0.0, 0.0, -10.0)
        # All patches share one lattice of 1280 m.
        assert ((west - 364.0 - 0.364) % 1280, (north - 0.621) % 1280) == pytest.approx(
            ((624892.364 - 364.364) % 1280, (5499520.621 - 0.621) % 1280), abs=0.01
        )


def test_real_dates_and_folds(real):
    patch = real.patches[10000]
    assert (patch.fold, patch.tile, patch.crs.to_epsg()) == (1, "t30uxv", 32630)
    assert len(patch.dates) == 43
    assert patch.dates[0] == date(2018, 9, 24)
    assert list(patch.dates) == sorted(patch.dates)
    assert [one.id for one in real.of_folds((2, 5))] == [10001, 10003]


def test_real_norms_have_ten_bands_for_each_fold(real):
    mean, std = real.published_norms[1]
    assert (len(real.published_norms), mean.shape, std.shape) == (5, (10,), (10,))
    assert mean[0] == pytest.approx(1165.94, abs=0.01)


@pytest.mark.parametrize(
    "value",
    [{"0": 20180924, "1": 20181004}, '{"0": 20180924, "1": 20181004}', "{'0': 20180924, '1': 20181004}"],
)
def test_dates_may_be_a_mapping_or_its_text(value):
    assert parse_dates(value, "here") == (date(2018, 9, 24), date(2018, 10, 4))


def test_ten_dates_keep_their_order():
    many = {str(index): 20180901 + index for index in range(12)}
    assert [day.day for day in parse_dates(dict(sorted(many.items())), "here")] == list(range(1, 13))


@pytest.mark.parametrize("value", ["nonsense", {"0": 20181341}, [1, 2], None])
def test_other_dates_are_an_error(value):
    with pytest.raises(FormatError, match="row 3: dates-S2"):
        parse_dates(value, "row 3")


def test_the_rotation_uses_each_fold_once():
    for train, val, test in ROTATION.values():
        assert sorted([*train, val, test]) == [1, 2, 3, 4, 5]
    assert sorted(test for _, _, test in ROTATION.values()) == [1, 2, 3, 4, 5]
    assert ROTATION[2] == ((2, 3, 4), 5, 1)


def test_southern_tiles_lie_in_southern_zones(real):
    patch = real.patches[10000]
    south = type(patch)(1, 1, "t35mnm", patch.dates, patch.footprint_xy)
    assert south.crs.to_epsg() == 32735
    with pytest.raises(InputError, match="t30uxv"):
        _ = type(patch)(1, 1, "x", patch.dates, patch.footprint_xy).crs
    with pytest.raises(FormatError, match="no square"):
        type(patch)(1, 1, "t33uxv", patch.dates, patch.footprint_xy).transform(128)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda f: (f / "metadata.geojson").unlink(), MissingFileError, "metadata.geojson"),
        (lambda f: (f / "metadata.geojson").write_text("{"), FormatError, "no JSON"),
        (lambda f: (f / "metadata.geojson").write_text('{"features": []}'), FormatError, "no patches"),
        (lambda f: (f / "DATA_S2" / "S2_10000.npy").unlink(), MissingFileError, "S2_10000"),
        (lambda f: (f / "DATA_S2" / "S2_10000.npy").write_bytes(b"xx"), FormatError, "truncated"),
        (lambda f: np.save(f / "DATA_S2" / "S2_10000.npy", np.zeros((2, 3, 4, 4))), FormatError, "expected"),
        (lambda f: np.save(f / "DATA_S2" / "S2_10000.npy", np.zeros((9, 10, 4, 4))), FormatError, "9 dates"),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(tmp_path, damage, kind, message):
    root = write_pastis(tmp_path / "set", patches=5, size=8, dates=5)
    damage(root)
    with pytest.raises(kind, match=message):
        (folder := PastisFolder(root)).values(folder.patches[10000])


def test_a_row_without_a_field_is_named(tmp_path):
    root = write_pastis(tmp_path / "set", patches=5, size=8, dates=5)
    rows = json.loads((root / "metadata.geojson").read_text())
    del rows["features"][2]["properties"]["Fold"]
    (root / "metadata.geojson").write_text(json.dumps(rows))
    with pytest.raises(FormatError, match="patch 10002: the field Fold"):
        PastisFolder(root)
