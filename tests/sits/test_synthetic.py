"""Made-up farmland: what is in it, and that it looks like PASTIS on disk."""

import json

import numpy as np
import pytest
import rasterio

from geomix.errors import OutputExistsError
from sits.io.pastis import PastisFolder
from sits.synthetic import BANDS, CLASSES, make_scene, write_geotiffs, write_pastis
from sits.synthetic.phenology import cover_of_crop
from tests.helpers import shared_data


@pytest.fixture(scope="module")
def scene():
    return make_scene((64, 80), seed=5, dates=12)


def test_the_same_seed_makes_the_same_scene(scene):
    again = make_scene((64, 80), seed=5, dates=12)
    assert np.array_equal(again.values, scene.values)
    assert not np.array_equal(make_scene((64, 80), seed=6, dates=12).labels, scene.labels)


def test_a_scene_holds_dated_images_of_labelled_parcels(scene):
    assert scene.values.shape == (12, len(BANDS), 64, 80)
    assert scene.values.dtype == np.int16
    assert list(scene.dates) == sorted(set(scene.dates))
    gaps = np.diff([day.toordinal() for day in scene.dates])
    assert gaps.min() < gaps.max()
    assert set(np.unique(scene.labels)) <= {*range(len(CLASSES)), 19}
    for parcel in np.unique(scene.parcels)[1:]:
        assert len(set(scene.labels[scene.parcels == parcel])) == 1
    assert (scene.values == -10000).any()
    assert make_scene((32, 32), 1, 3, clouds=False).values.min() > 0


def test_parcels_are_as_large_as_real_ones():
    real = np.load(shared_data("sits/pastis/ParcelIDs_10000.npy"))
    made = make_scene((128, 128), seed=1, dates=3).parcels
    sizes = [np.median(np.bincount(np.unique(one[one > 0], return_inverse=True)[1])) for one in (real, made)]
    assert 0.5 < sizes[1] / sizes[0] < 2


@pytest.mark.parametrize("crop", CLASSES[1:])
def test_the_ground_is_covered_once(crop):
    days = np.arange(0, 430, 5, dtype=np.float32)
    shares = cover_of_crop(crop, days, np.random.default_rng(0))
    assert shares.min() >= 0
    assert shares.sum(1) == pytest.approx(1, abs=1e-5)


def test_a_pastis_folder_reads_back(tmp_path):
    write_pastis(tmp_path / "set", patches=6, size=16, dates=5, seed=3)
    folder = PastisFolder(tmp_path / "set")
    assert [patch.fold for patch in folder.patches.values()] == [1, 2, 3, 4, 5, 1]
    patch = folder.patches[10001]
    assert folder.values(patch).shape == (3, 10, 16, 16)
    assert folder.labels(patch).shape == (16, 16)
    assert (tuple(patch.transform(16))[:6], patch.crs.to_epsg()) == (
        (10.0, 0.0, 400120.0, 0.0, -10.0, 5400000.0),
        32630,
    )
    assert set(folder.published_norms) == {1, 2, 3, 4, 5}
    with pytest.raises(OutputExistsError, match="not empty"):
        write_pastis(tmp_path / "set", patches=6, size=16, dates=5)


def test_its_metadata_has_the_fields_of_the_real_one(tmp_path):
    real = json.loads(shared_data("sits/pastis/metadata_9patches.geojson").read_text())
    made = json.loads((write_pastis(tmp_path / "set", 5, 16, 3) / "metadata.geojson").read_text())
    one, other = made["features"][0], real["features"][0]
    assert made["crs"] == real["crs"]
    assert set(one) == set(other)
    assert set(one["properties"]) == set(other["properties"])
    assert one["geometry"]["type"] == other["geometry"]["type"]


def test_another_scene_takes_the_place_of_the_last_and_of_nothing_else(tmp_path, scene):
    own = write_geotiffs(scene, tmp_path)
    mine = tmp_path / "S2_L2A_20000101.tif"
    with rasterio.open(own[0]) as source, rasterio.open(mine, "w", **source.profile) as target:
        target.write(source.read())
    (tmp_path / "S2_L2A_notes.tif").write_text("not an image")
    (tmp_path / f"{own[0].name}.aux.xml").write_text("<PAMDataset/>")
    with pytest.raises(OutputExistsError):
        write_geotiffs(scene, tmp_path)
    few = write_geotiffs(make_scene((16, 16), 5, 2), tmp_path, overwrite=True)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {mine.name, "S2_L2A_notes.tif", "labels.tif", *(file.name for file in few)}


def test_geotiffs_carry_dates_bands_nodata_and_place(tmp_path, scene):
    files = write_geotiffs(scene, tmp_path / "images")
    assert files[0].name == f"S2_L2A_{scene.dates[0]:%Y%m%d}.tif"
    with rasterio.open(files[0]) as image:
        assert image.descriptions == BANDS
        assert (image.nodata, image.dtypes[0], image.crs.to_epsg()) == (0, "uint16", 32630)
        hidden = scene.values[0] == -10000
        assert np.array_equal(image.read() == 0, hidden)
        assert np.array_equal(image.read()[~hidden], scene.values[0][~hidden])
    with rasterio.open(tmp_path / "images" / "labels.tif") as labels:
        assert np.array_equal(labels.read(1), scene.labels)
    with pytest.raises(OutputExistsError):
        write_geotiffs(scene, tmp_path / "images")
