import json

import numpy as np
import pytest
import rasterio
from pyproj import Transformer

from geomix.cli import run
from geomix.errors import InputError
from sits.io import open_series
from sits.io.export import write_series
from sits.predict.names import is_batch, series_in
from sits.synthetic import write_pastis
from tests.sits.making import dataset, model_file, write_folder


@pytest.fixture(scope="module")
def pastis(tmp_path_factory):
    return write_pastis(tmp_path_factory.mktemp("pastis") / "PASTIS", patches=2, size=16, dates=4)


def test_a_folder_of_patches_becomes_a_folder_of_maps(pastis, tmp_path, capsys):
    weights = model_file(tmp_path)
    code = run(
        ["sits", "segment", str(pastis), "--model", str(weights), "-o", str(tmp_path / "maps"), "--quiet"]
    )
    assert code == 0
    names = {file.name for file in (tmp_path / "maps").iterdir() if file.suffix == ".tif"}
    assert names == {"S2_10000.tif", "S2_10001.tif"}
    assert str(tmp_path / "maps" / "S2_10000.tif") in capsys.readouterr().out
    with rasterio.open(tmp_path / "maps" / "S2_10001.tif") as found:
        rows = json.loads((pastis / "metadata.geojson").read_text())["features"]
        ring = np.array(rows[1]["geometry"]["coordinates"][0][0])
        x, y = Transformer.from_crs("EPSG:2154", found.crs, always_xy=True).transform(ring[:, 0], ring[:, 1])
        np.testing.assert_allclose(found.bounds, (x.min(), y.min(), x.max(), y.max()), atol=0.01)


def test_a_bad_series_is_reported_and_the_rest_goes_on(tmp_path, capsys):
    weights = model_file(tmp_path)
    dataset().to_netcdf(tmp_path / "good.nc")
    (tmp_path / "bad.nc").write_text("nothing")
    inputs = [str(tmp_path / name) for name in ("bad.nc", "good.nc")]
    out = tmp_path / "maps"
    assert run(["sits", "segment", *inputs, "--model", str(weights), "-o", str(out), "--quiet"]) == 1
    assert sorted(file.name for file in out.iterdir()) == ["good.qml", "good.tif", "good.tif.aux.xml"]
    assert "bad.nc: is damaged" in capsys.readouterr().err


def test_loose_rasters_are_one_series(tmp_path):
    files = write_folder(tmp_path / "field")
    found = series_in([*files])
    assert list(found) == ["field"]
    assert len(found["field"]().dates) == 3


def test_two_maps_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        write_folder(tmp_path / folder / "s2")
    with pytest.raises(InputError, match=r"two inputs would become s2\.tif"):
        series_in([tmp_path / "a" / "s2", tmp_path / "b" / "s2"])


def test_a_folder_is_told_from_a_file(tmp_path):
    assert is_batch(tmp_path)
    assert is_batch(tmp_path / "maps")
    assert not is_batch(tmp_path / "map.tif")
    assert not is_batch(tmp_path / "map.jpg")


def test_an_exported_patch_comes_back_as_it_was(pastis, tmp_path, capsys):
    source = pastis / "DATA_S2" / "S2_10000.npy"
    assert run(["sits", "export", str(source), "-o", str(tmp_path / "tifs"), "--quiet"]) == 0
    assert len(capsys.readouterr().out.split()) == 4
    again, patch = open_series(tmp_path / "tifs"), open_series(source)
    assert (again.dates, again.bands) == (patch.dates, patch.bands)
    assert again.grid.difference(patch.grid) is None
    for first, second in zip(again.read(), patch.read(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-7)
    with rasterio.open(sorted((tmp_path / "tifs").glob("*.tif"))[0]) as dataset_:
        numbers = np.load(source)
        np.testing.assert_array_equal(dataset_.read(), numbers[0])


def test_an_export_takes_the_offset_off(tmp_path):
    cube = dataset().assign_coords({"s2:processing_baseline": "05.10"})
    files = write_series(open_series(cube), tmp_path)
    with rasterio.open(files[0]) as written:
        expected = np.maximum(cube.reflectance.values[0].astype(int) - 1000, 0)
        np.testing.assert_array_equal(written.read(), expected)
        assert written.tags()["GEOMIX_OFFSET"] == "-1000 (baseline 05.10)"


def test_an_export_says_what_it_cuts_off(tmp_path, caplog):
    cube = dataset()
    cube.reflectance[0, 0, :2, :3] = 60000
    write_series(open_series(cube), tmp_path)
    assert "6 values lie beyond -0.9999 to 3.2767 reflectance" in caplog.text
    assert caplog.text.count("are cut off there") == 1
