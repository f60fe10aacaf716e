import json
from datetime import date

import numpy as np
import pytest
import rasterio
from affine import Affine

from geomix.errors import FormatError, InputError, MissingFileError
from sits.io import open_series
from sits.io.options import ReadOptions
from sits.io.stac import read_items
from tests.helpers import shared_data
from tests.sits.making import BANDS, DATES, TRANSFORM, grid, numbers, write_tif

COMMON = {"B2": "blue", "B3": "green", "B4": "red", "B8": "nir"}


def item(name, moment, assets, **properties):
    square = [[[14, 45], [15, 45], [15, 46], [14, 46], [14, 45]]]
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "geometry": {"type": "Polygon", "coordinates": square},
        "bbox": [14, 45, 15, 46],
        "properties": {"datetime": moment, **properties},
        "links": [],
        "assets": assets,
    }


def collection(folder, features):
    path = folder / "items.json"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def scene(folder, day, image, names="{}", raster=None, **properties):
    """Files of one date, a band each, and the item that lists them."""
    assets = {"thumbnail": {"href": "thumb.jpg", "type": "image/jpeg", "roles": ["thumbnail"]}}
    for band, layer in zip(BANDS, image, strict=True):
        file = write_tif(folder / f"{day:%Y%m%d}_{COMMON[band]}.tif", layer[None], names=None, nodata=None)
        assets[names.format(COMMON[band])] = {
            "href": f"./{file.name}",
            "type": "image/tiff; application=geotiff; profile=cloud-optimized",
            "roles": ["data"],
            "eo:bands": [{"name": COMMON[band], "common_name": COMMON[band]}],
            **({"raster:bands": [raster]} if raster else {}),
        }
    return item(f"S2_{day}", f"{day}T10:10:31Z", assets, **properties)


def test_items_with_local_assets_are_a_series(tmp_path):
    features = [scene(tmp_path, day, image) for day, image in zip(DATES, numbers(), strict=True)]
    series = open_series(collection(tmp_path, features[::-1]))
    assert (series.dates, series.bands) == (DATES, BANDS)
    np.testing.assert_allclose(series.read()[0], numbers() * 1e-4, rtol=1e-6)


def test_a_single_item_is_a_series_of_one(tmp_path):
    path = tmp_path / "item.json"
    path.write_text(json.dumps(scene(tmp_path, DATES[0], numbers()[0])))
    assert open_series(path).dates == DATES[:1]


def test_the_items_tell_offset_scale_and_nodata(tmp_path):
    fields = {"scale": 0.0001, "offset": -0.1, "nodata": 0}
    values = numbers()
    values[0, :, :3] = 0
    features = [
        scene(tmp_path, DATES[0], values[0], raster=fields),
        scene(tmp_path, DATES[1], values[1], raster=fields, **{"earthsearch:boa_offset_applied": True}),
        scene(tmp_path, DATES[2], values[2], **{"s2:processing_baseline": "05.10"}),
    ]
    series = open_series(collection(tmp_path, features), ReadOptions(scale=1e-4))
    read, valid = series.read()
    assert [one.offset for one in series.acquisitions] == [
        "-1000 (stated with the bands)",
        "none (applied upstream, as the item says)",
        "-1000 (baseline 05.10)",
    ]
    assert not valid[0, :3].any()
    np.testing.assert_allclose(read[0, :, 3:], np.maximum(values[0, :, 3:] * 1e-4 - 0.1, 0), atol=1e-6)
    np.testing.assert_allclose(read[1], values[1] * 1e-4, atol=1e-6)
    np.testing.assert_allclose(read[2], np.maximum(values[2] * 1e-4 - 0.1, 0), atol=1e-6)


def test_what_the_items_leave_open_is_as_the_files_say(tmp_path):
    features = [scene(tmp_path, day, image) for day, image in zip(DATES, numbers(), strict=True)]
    for band in COMMON.values():
        with rasterio.open(tmp_path / f"{DATES[1]:%Y%m%d}_{band}.tif", "r+") as file:
            file.update_tags(PROCESSING_BASELINE="05.10")
    features[0]["properties"]["s2:processing_baseline"] = "02.14"
    found = [one.offset for one in open_series(collection(tmp_path, features)).acquisitions]
    assert found == ["none (baseline 02.14)", "-1000 (baseline 05.10)", "none (nothing states a baseline)"]


def test_the_finest_of_several_resolutions_is_taken(tmp_path):
    feature = scene(tmp_path, DATES[0], numbers()[0], names="{}_10m")
    a, b, c, d, e, f = tuple(TRANSFORM)[:6]
    place = grid((15, 13), transform=Affine(2 * a, b, c, d, 2 * e, f))
    coarse = write_tif(tmp_path / "coarse.tif", numbers()[0][:1, ::2, ::2], place, names=None, nodata=None)
    fine = feature["assets"].pop("red_10m")
    feature["assets"]["red_20m"] = {**fine, "href": f"./{coarse.name}"}
    feature["assets"]["red_10m"] = fine
    series = open_series(collection(tmp_path, [feature]))
    np.testing.assert_allclose(series.read()[0][0], numbers()[0] * 1e-4, rtol=1e-6)


def test_remote_assets_are_refused_with_the_remedy():
    with pytest.raises(InputError, match=r"its 12 bands are remote; download them"):
        open_series(shared_data("sits/stac/site2-2020_jun_jul-35MNM.geojson"))


def test_real_items_of_old_versions_are_read():
    (item,) = read_items(shared_data("sits/stac/S2A_28QCH_20200714_0_L2A.json"))
    assert item.datetime.date() == date(2020, 7, 14)
    items = read_items(shared_data("sits/stac/site2-2020_jun_jul-35MNM.geojson"))
    assert len(items) == 13


def test_what_is_missing_is_named(tmp_path):
    feature = scene(tmp_path, DATES[0], numbers()[0])
    (tmp_path / "20190310_red.tif").unlink()
    with pytest.raises(MissingFileError, match="asset red of S2_2019-03-10 is not there"):
        open_series(collection(tmp_path, [feature]))
    with pytest.raises(InputError, match="none of its assets is a band"):
        open_series(collection(tmp_path, [item("a", "2019-03-10T00:00:00Z", {})]))
    with pytest.raises(InputError, match="lists no items"):
        open_series(collection(tmp_path, []))


@pytest.mark.parametrize("text", ["[]", "{", '{"type": "Feature"}', '{"type": "Polygon"}'])
def test_what_is_no_stac_is_said_so(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"a\.json: (is no STAC|is not JSON|should hold)"):
        open_series(path)
