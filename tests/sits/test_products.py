"""Series as they are delivered: the products of several sensors, their names, their fill and their scales."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from rasterio.transform import Affine

from geomix.errors import InputError
from sits.bands import BandLabel, identify, informative
from sits.io import open_series
from sits.io.options import ReadOptions
from sits.io.products import product_of, read_mtl
from sits.radiometry import decide_offset, guess_scale
from tests.sits.making import BANDS, DATES, dataset, grid, numbers, write_folder, write_tif

SHAPE = (12, 10)


def layer(value, kind=np.uint16):
    return np.full((1, *SHAPE), value, dtype=kind)


def write_landsat(folder, product, values, mtl=None):
    """One file per band, without band names or scales in the files, as USGS delivers them."""
    home = folder / product
    home.mkdir(parents=True)
    for band, value in values.items():
        write_tif(home / f"{product}_{band}.TIF", layer(value), names=(), nodata=None)
    if mtl:
        (home / f"{product}_MTL.txt").write_text(mtl)
    return home


def test_landsat_numbers_bands_scale_and_fill_by_its_product(tmp_path):
    values = {"SR_B2": 9000, "SR_B5": 20000, "SR_B6": 15000, "ST_B10": 40000, "QA_PIXEL": 21824}
    write_landsat(tmp_path, "LC08_L2SP_199026_20190424_20200825_02_T1", values)
    write_landsat(
        tmp_path, "LE07_L2SP_199026_20190502_20200825_02_T1", {"SR_B1": 9000, "SR_B4": 20000, "SR_B5": 15000}
    )
    series = open_series(tmp_path)
    assert series.bands == ("B2", "B8A", "B11")
    read, valid = series.read()
    expected = [9000 * 2.75e-5 - 0.2, 20000 * 2.75e-5 - 0.2, 15000 * 2.75e-5 - 0.2]
    np.testing.assert_allclose(read[:, :, 0, 0], [expected] * 2, atol=1e-6)
    assert valid.all()


MTL = """GROUP = LANDSAT_METADATA_FILE
  GROUP = LEVEL1_RADIOMETRIC_RESCALING
    REFLECTANCE_MULT_BAND_2 = 9.0000E-01
  END_GROUP = LEVEL1_RADIOMETRIC_RESCALING
  GROUP = LEVEL2_SURFACE_REFLECTANCE_PARAMETERS
    REFLECTANCE_MULT_BAND_2 = 0.00005
    REFLECTANCE_ADD_BAND_2 = -0.1
  END_GROUP = LEVEL2_SURFACE_REFLECTANCE_PARAMETERS
END_GROUP = LANDSAT_METADATA_FILE
"""


def test_the_scale_of_the_mtl_file_counts_and_its_groups_are_kept_apart(tmp_path):
    product = "LC09_L2SP_199026_20190424_20200825_02_T1"
    home = write_landsat(tmp_path, product, {"SR_B2": 9000}, MTL)
    found = product_of(home / f"{product}_SR_B2.TIF")
    assert (found.sensor, found.scale) == ("oli", 5e-5)
    assert found.offset == pytest.approx(-2000)
    groups = read_mtl(home / f"{product}_MTL.txt")
    assert groups["LEVEL1_RADIOMETRIC_RESCALING"]["REFLECTANCE_MULT_BAND_2"] == "9.0000E-01"


def test_both_products_of_hls_in_one_folder_mean_the_same_bands(tmp_path):
    for product, bands in (
        ("HLS.L30.T30UUU.2019114T105031.v2.0", {"B04": 500, "B05": 3000, "B06": 2000}),
        ("HLS.S30.T30UUU.2019126T105031.v2.0", {"B04": 500, "B8A": 3000, "B11": 2000, "B05": 900}),
    ):
        for band, value in bands.items():
            write_tif(tmp_path / f"{product}.{band}.tif", layer(value, np.int16), names=(), nodata=None)
    series = open_series(tmp_path)
    assert series.bands == ("B4", "B8A", "B11")
    np.testing.assert_allclose(series.read()[0][:, :, 0, 0], [[0.05, 0.3, 0.2]] * 2, atol=1e-6)


def test_a_number_that_contradicts_its_wavelength_or_common_name_is_another_sensor_s():
    assert identify(BandLabel("B5", "nir08")) == "B8A"
    assert identify(BandLabel("band 6", wavelength=1.61)) == "B11"
    assert identify(BandLabel("B5", "nir08", 0.87, sensor="oli")) == "B8A"
    assert identify(BandLabel("OLI_B5")) == "B8A"
    assert identify(BandLabel("B8", "nir", 842)) == "B8"
    assert identify(BandLabel("B8A", "nir", 865)) == "B8A"


def write_safe(folder, name, offset=0):
    """A tree of Level-2A: R10m, R20m and R60m, and masks that are called like bands."""
    inner = folder / f"{name}.SAFE" / "GRANULE" / "L2A_T30UUU_A012"
    stem = "T30UUU_" + name.split("_")[2]
    for size, bands in ((10, ("B02", "B04")), (20, ("B02", "B11")), (60, ("B02", "B09"))):
        home = inner / "IMG_DATA" / f"R{size}m"
        home.mkdir(parents=True)
        side = 120 // size
        place = grid((side, side), transform=Affine(size, 0, 400_000, 0, -size, 5_000_000))
        for band in bands:
            image = np.full((1, side, side), 1000 + offset + size, dtype=np.uint16)
            write_tif(home / f"{stem}_{band}_{size}m.tif", image, place, names=())
    masks = inner / "QI_DATA"
    masks.mkdir()
    write_tif(masks / "MSK_DETFOO_B02.tif", layer(1), names=())


def test_a_tree_of_level_2a_is_one_scene_with_the_finest_file_of_each_band(tmp_path):
    write_safe(tmp_path, "S2A_MSIL2A_20190424T110621_N0209_R137_T30UUU_20190424T140000")
    write_safe(tmp_path, "S2A_MSIL2A_20190613T110621_N0510_R137_T30UUU_20190613T140000", 1000)
    series = open_series(tmp_path, ReadOptions(resample="nearest"))
    assert series.bands == ("B2", "B4", "B9", "B11")
    assert [len(one.names) for one in series.acquisitions] == [1, 1]
    values = series.read()[0][:, :, 5, 5]
    np.testing.assert_allclose(values, [[0.101, 0.101, 0.106, 0.102]] * 2, atol=1e-6)


def test_reflectance_takes_no_offset_of_digital_numbers(tmp_path):
    values = numbers() * np.float32(1e-4)
    name = "S2A_MSIL2A_{:%Y%m%d}T110621_N0510_R137_T30UUU_20190424T140000.tif"
    for day, image in zip(DATES, values, strict=True):
        write_tif(tmp_path / name.format(day), image, nodata=None)
    series = open_series(tmp_path)
    assert {one.offset for one in series.acquisitions} == {"none (reflectance as it stands)"}
    np.testing.assert_allclose(series.read()[0], values)
    assert decide_offset(_stated(), "auto", 1.0)[0] == -1000


def _stated():
    from sits.radiometry import Evidence

    return Evidence(baseline="05.10", offset=-1000.0)


def test_positions_are_no_names_and_unknown_names_are_told(tmp_path, caplog):
    counted = [BandLabel(f"Band {place}") for place in (1, 2, 3)]
    assert [one.text for one in informative(counted)] == ["", "", ""]
    assert informative(counted[1:]) == tuple(counted[1:])
    files = write_folder(tmp_path / "a", names=("Band 1", "Band 2", "Band 3", "Band 4"))
    with pytest.raises(InputError, match=r"4 bands have no name.*--bands"):
        open_series(files)
    files = write_folder(tmp_path / "b", names=("Blau", "Grün", "Rot", "Wärme"))
    assert open_series(files).bands == ("B2", "B3", "B4")
    assert "bands with a name that is not known are left out: Wärme" in caplog.text


def test_names_that_the_model_asks_for_are_bands(tmp_path):
    files = write_folder(tmp_path, names=("vv", "VH", "ndvi", "SCL"))
    assert open_series(files).bands == ("VH", "VV")
    assert open_series(files, ReadOptions(known=("NDVI",))).bands == ("NDVI", "VH", "VV")


def test_names_in_a_band_s_description_tag_are_read(tmp_path):
    import rasterio

    [file, *_] = write_folder(tmp_path, names=())
    with rasterio.open(file, "r+") as image:
        for index, name in enumerate(BANDS, 1):
            image.update_tags(index, Description=name)
    assert open_series(file).bands == BANDS


@pytest.mark.parametrize("fill", [-9999.0, 0.0])
def test_undeclared_fill_of_reflectance_is_no_data(tmp_path, caplog, fill):
    values = numbers() * np.float32(1e-4)
    values[:, :, :7] = fill
    files = write_folder(tmp_path, values, nodata=None)
    for series in (open_series(files), open_series(dataset(values, attrs={}))):
        read, valid = series.read()
        assert not valid[:, :7].any()
        assert valid[:, 7:].all()
        assert (read[:, :, :7] == 0).all()
    assert "no nodata value is declared" in caplog.text


@pytest.mark.parametrize(("kind", "fill"), [(np.uint16, 0), (np.int16, -9999), (np.float32, -9999.0)])
def test_undeclared_fill_is_taken_out_before_it_is_resampled(tmp_path, kind, fill):
    fine = grid((24, 24), transform=Affine(10, 0, 400_000, 0, -10, 5_000_000))
    coarse = grid((12, 12), transform=Affine(20, 0, 400_000, 0, -20, 5_000_000))
    step = 1 if kind is np.float32 else 10000
    near, far = np.full((1, 24, 24), 0.1 * step, dtype=kind), np.full((1, 12, 12), 0.3 * step, dtype=kind)
    far[:, :4] = fill
    write_tif(tmp_path / "S2_20190424_B02.tif", near, fine, names=(), nodata=None)
    write_tif(tmp_path / "S2_20190424_B11.tif", far, coarse, names=(), nodata=None)
    series = open_series(tmp_path, ReadOptions(resample="bilinear", scale=1 / step))
    read, valid = series.read()
    assert not valid[0, :7].any()
    assert valid[0, 9:].all()
    np.testing.assert_allclose(read[0, 1][valid[0]], 0.3, atol=1e-4)


def test_scales_are_guessed_as_per_cent_or_refused_for_pictures():
    assert guess_scale(np.dtype("float32"), 14.4, "a.tif") == 0.01
    assert guess_scale(np.dtype("float32"), 1.2, "a.tif") == 1.0
    with pytest.raises(InputError, match="8 bits hold pictures"):
        guess_scale(np.dtype("uint8"), 61.0, "a.tif")


def test_new_products_without_a_baseline_and_without_dark_pixels_are_warned_of(tmp_path, caplog):
    days = [day.replace(year=2023) for day in DATES]
    write_folder(tmp_path / "bright", numbers() + np.uint16(1000), days)
    open_series(tmp_path / "bright")
    assert "products from 2022-01-25 on carry an offset of 1000" in caplog.text
    caplog.clear()
    dark = numbers()
    dark[:, 0] //= 10
    write_folder(tmp_path / "dark", dark, days)
    open_series(tmp_path / "dark")
    assert "carry an offset" not in caplog.text


def test_a_store_of_groups_names_them_and_a_group_takes_its_date_from_the_product(tmp_path):
    store = tmp_path / "S2A_MSIL2A_20190424T110621_N0500_R137_T30UUU.zarr"
    one = dataset().isel(time=0, drop=True)
    flat = xr.Dataset({name.lower(): one.reflectance.sel(band=name, drop=True) for name in BANDS})
    flat.attrs["crs"] = "EPSG:32633"
    flat.to_zarr(store, group="measurements/reflectance/r10m", zarr_format=2)
    with pytest.raises(InputError, match="holds groups .* measurements/reflectance/r10m"):
        open_series(store)
    series = open_series(store / "measurements/reflectance/r10m", ReadOptions(crs="EPSG:32633"))
    assert series.dates == (pd.Timestamp("2019-04-24").date(),)
    assert series.acquisitions[0].offset == "-1000 (baseline 05.00)"


def test_the_bands_of_a_stac_item_are_those_of_its_sensor(tmp_path):
    assets = {}
    for key, name in (("nir08", "OLI_B5"), ("swir16", "OLI_B6"), ("SR_B2.TIF", "SR_B2")):
        write_tif(tmp_path / f"{key}.tif", layer(20000), names=(), nodata=0)
        assets[key] = {"href": f"{key}.tif", "type": "image/tiff", "eo:bands": [{"name": name}]}
    item = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": "LC08_L2SP_199026_20190424_02_T1",
        "properties": {"datetime": "2019-04-24T10:00:00Z", "platform": "landsat-8"},
        "geometry": None,
        "links": [],
        "assets": assets,
    }
    (tmp_path / "item.json").write_text(json.dumps(item))
    assert open_series(tmp_path / "item.json").bands == ("B2", "B8A", "B11")
