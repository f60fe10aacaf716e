import json
import shutil

import numpy as np
import pytest
from pyproj import Transformer

from geomix.errors import FormatError, InputError, MissingFileError, UnsupportedError
from sits.grid import Window
from sits.io import open_series
from sits.synthetic import write_pastis
from tests.helpers import shared_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_pastis(tmp_path_factory.mktemp("pastis") / "PASTIS", patches=2, size=16, dates=4)


def test_a_patch_lies_on_its_footprint(folder):
    series = open_series(folder / "DATA_S2" / "S2_10000.npy")
    assert series.grid.crs.to_epsg() == 32630
    rows = json.loads((folder / "metadata.geojson").read_text())["features"]
    ring = np.array(rows[0]["geometry"]["coordinates"][0][0])
    x, y = Transformer.from_crs("EPSG:2154", "EPSG:32630", always_xy=True).transform(ring[:, 0], ring[:, 1])
    np.testing.assert_allclose(series.grid.bounds, (x.min(), y.min(), x.max(), y.max()), atol=0.01)


def test_a_patch_reads_as_its_array(folder):
    numbers = np.load(folder / "DATA_S2" / "S2_10000.npy")
    values, valid = open_series(folder / "DATA_S2" / "S2_10000.npy").read(Window(3, 2, 7, 9))
    seen = (numbers != -10000).all(axis=1)[:, 3:10, 2:11]
    np.testing.assert_array_equal(valid, seen)
    part = numbers[:, :, 3:10, 2:11] * np.float32(1e-4)
    np.testing.assert_allclose(values, np.where(seen[:, None], part, 0), rtol=1e-6)


def test_a_patch_may_lie_beside_its_metadata(folder, tmp_path):
    for name in ("metadata.geojson", "DATA_S2/S2_10001.npy"):
        shutil.copy(folder / name, tmp_path)
    assert len(open_series(tmp_path / "S2_10001.npy").dates) == 2
    (tmp_path / "metadata.geojson").unlink()
    with pytest.raises(MissingFileError, match=r"needs metadata\.geojson"):
        open_series(tmp_path / "S2_10001.npy")


def test_a_whole_folder_is_many_series(folder):
    with pytest.raises(UnsupportedError, match="holds 2 patches, each a series"):
        open_series(folder)


def test_what_is_no_patch_is_refused(folder, tmp_path):
    shutil.copy(folder / "metadata.geojson", tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"whose name would be S2_<id>\.npy"):
        open_series(tmp_path / "labels.npy")
    np.save(tmp_path / "S2_99.npy", np.zeros(3))
    with pytest.raises(InputError, match="does not list patch 99"):
        open_series(tmp_path / "S2_99.npy")
    np.save(tmp_path / "S2_10000.npy", np.zeros(3))
    with pytest.raises(FormatError, match=r"expected \[dates, 10"):
        open_series(tmp_path / "S2_10000.npy")


def test_the_real_footprints_are_squares_of_1280_metres(tmp_path):
    shutil.copy(shared_data("sits/pastis/metadata_9patches.geojson"), tmp_path / "metadata.geojson")
    rows = json.loads((tmp_path / "metadata.geojson").read_text())["features"]
    for row in rows:
        fields = row["properties"]
        path = tmp_path / f"S2_{fields['ID_PATCH']}.npy"
        np.save(path, np.zeros((len(fields["dates-S2"]), 10, 128, 128), dtype=np.int16))
        grid = open_series(path).grid
        assert (grid.transform.a, grid.transform.e) == (10.0, -10.0)
        west, south, east, north = grid.bounds
        assert (east - west, north - south) == pytest.approx((1280, 1280))
        # The published lattice: steps of 1280 m, .364 and .621 m off whole metres.
        assert west % 1 == pytest.approx(0.364, abs=0.01)
        assert north % 1 == pytest.approx(0.621, abs=0.01)
        path.unlink()
