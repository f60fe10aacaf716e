from datetime import date

import numpy as np
import pytest
from rasterio.transform import Affine

from geomix.errors import FormatError, InputError, MissingFileError
from sits.grid import Window
from sits.io import open_series
from sits.io.options import ReadOptions
from tests.helpers import shared_data
from tests.sits.making import BANDS, DATES, TRANSFORM, grid, numbers, write_folder, write_tif


def test_a_folder_of_dated_files_is_a_series(tmp_path):
    files = write_folder(tmp_path / "s2")
    series = open_series(tmp_path / "s2")
    assert (series.dates, series.bands) == (DATES, BANDS)
    assert tuple(series.grid.transform) == tuple(TRANSFORM)
    values, valid = series.read(Window(3, 4, 10, 9))
    np.testing.assert_allclose(values, numbers()[:, :, 3:13, 4:13] * 1e-4, rtol=1e-6)
    assert valid.all()
    assert series.acquisitions[0].names == (str(files[0]),)


def test_a_pattern_and_a_list_give_the_same(tmp_path):
    files = write_folder(tmp_path / "s2")
    by_pattern = open_series(str(tmp_path / "s2" / "S2_*.tif"))
    by_list = open_series(files[::-1])
    np.testing.assert_array_equal(by_pattern.read()[0], by_list.read()[0])


def test_one_file_a_band_is_put_together(tmp_path):
    for day, image in zip(DATES, numbers(), strict=True):
        for band, layer in zip(BANDS, image, strict=True):
            name = f"T33TVL_{day:%Y%m%d}T101031_{band[0]}{int(band[1:]):02d}_10m.tif"
            write_tif(tmp_path / name, layer[None], names=None)
        write_tif(tmp_path / f"T33TVL_{day:%Y%m%d}T101031_SCL_20m.tif", image[:1], names=None)
    series = open_series(tmp_path)
    assert (series.dates, series.bands) == (DATES, BANDS)
    np.testing.assert_allclose(series.read()[0], numbers() * 1e-4, rtol=1e-6)


def test_a_date_comes_from_tags_or_a_table(tmp_path):
    tagged = write_tif(tmp_path / "a.tif", numbers()[0], tags={"ACQUISITION_DATE": "2019-03-10"})
    assert open_series([tagged]).dates == (date(2019, 3, 10),)
    table = tmp_path / "dates.csv"
    table.write_text("file,date\na.tif,2018-01-02\n")
    assert open_series([tagged], ReadOptions(dates=table)).dates == (date(2018, 1, 2),)
    table.write_text("file,date\nb.tif,2018-01-02\n")
    with pytest.raises(InputError, match=r"a\.tif: is not listed in the table"):
        open_series([tagged], ReadOptions(dates=table))


def test_the_time_of_writing_is_believed_last_and_aloud(tmp_path, caplog):
    file = write_tif(tmp_path / "a.tif", numbers()[0], tags={"TIFFTAG_DATETIME": "2019:03:10 10:00:00"})
    assert open_series([file]).dates == (date(2019, 3, 10),)
    assert "maybe the day of writing" in caplog.text


def test_several_dates_in_a_name_are_said_aloud(tmp_path, caplog):
    file = write_tif(tmp_path / "field_2019-03-10_2019-05-01.tif", numbers()[0])
    assert open_series([file]).dates == (date(2019, 3, 10),)
    assert "holds several dates" in caplog.text


def test_a_file_without_a_date_is_an_error_that_helps(tmp_path):
    write_folder(tmp_path)
    write_tif(tmp_path / "autumn.tif", numbers()[0])
    with pytest.raises(InputError, match=r"autumn\.tif: has no acquisition date.*--dates dates\.csv"):
        open_series(tmp_path)


def test_other_rasters_of_a_folder_are_passed_over_aloud(tmp_path, caplog):
    write_folder(tmp_path)
    write_tif(tmp_path / "labels.tif", numbers()[0, :1], names=("class",))
    assert open_series(tmp_path).dates == DATES
    assert "labels.tif: holds no band" in caplog.text


def test_other_systems_and_grids_are_refused(tmp_path):
    write_folder(tmp_path, numbers()[:2], DATES[:2])
    write_tif(tmp_path / "S2_20190701.tif", numbers()[2], grid(crs="EPSG:32632"))
    with pytest.raises(InputError, match=r"S2_20190701.tif: lies on another grid.*EPSG:32632.*--resample"):
        open_series(tmp_path)


def test_a_raster_without_a_system_wants_one_named(tmp_path):
    write_folder(tmp_path, place=grid(crs=None))
    with pytest.raises(InputError, match="has no coordinate system; name it with --crs"):
        open_series(tmp_path)
    assert open_series(tmp_path, ReadOptions(crs="EPSG:32633")).grid.crs.to_epsg() == 32633
    with pytest.raises(InputError, match="is not a coordinate system"):
        open_series(tmp_path, ReadOptions(crs="EPSG:0"))


def test_a_wrong_system_is_not_forced_on_a_raster(tmp_path):
    write_folder(tmp_path)
    with pytest.raises(InputError, match="is in EPSG:32633, not in EPSG:32632"):
        open_series(tmp_path, ReadOptions(crs="EPSG:32632"))


def test_positions_need_names(tmp_path):
    write_folder(tmp_path, names=None)
    with pytest.raises(InputError, match="--bands"):
        open_series(sorted(tmp_path.glob("*.tif")))
    assert open_series(tmp_path, ReadOptions(bands="B2,B3,B4,B8")).bands == BANDS


def test_a_band_that_some_dates_lack_is_left_out_aloud(tmp_path, caplog):
    write_folder(tmp_path, numbers()[:2], DATES[:2])
    write_tif(tmp_path / "S2_20190701.tif", numbers()[2, :3], names=BANDS[:3])
    assert open_series(tmp_path).bands == BANDS[:3]
    assert "band B8 is missing in" in caplog.text


def test_truncated_files_are_said_so(tmp_path):
    file = write_folder(tmp_path)[0]
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    with pytest.raises(FormatError, match=r"S2_20190310.tif: is damaged, truncated or no raster"):
        open_series(tmp_path)
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"S2_20190310.tif: is damaged"):
        open_series(tmp_path).read()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("nothing_*.tif", "the pattern matches no file"),
        ("nothing.tif", "no such file or folder"),
        ([], "no input"),
    ],
)
def test_no_files_are_an_error(tmp_path, monkeypatch, inputs, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((MissingFileError, InputError), match=message):
        open_series(inputs)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(MissingFileError, match="holds no raster"):
        open_series(tmp_path)


def test_kinds_are_not_mixed(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "a.nc").touch()
    with pytest.raises(InputError, match="inputs of different kinds: cube, rasters"):
        open_series([*tmp_path.glob("*.tif"), tmp_path / "a.nc"])


def test_stated_scales_are_used_without_a_word(tmp_path, caplog):
    write_folder(tmp_path, scales=(1e-4,) * 4, offsets=(-0.1,) * 4)
    series = open_series(tmp_path)
    np.testing.assert_allclose(series.read()[0], np.maximum(numbers() * 1e-4 - 0.1, 0), atol=1e-6)
    assert series.acquisitions[0].offset == "-1000 (stated with the bands)"
    assert "no scale" not in caplog.text


def test_coarse_bands_come_to_the_finest_grid_on_request(tmp_path):
    values = numbers()
    coarse = Affine(TRANSFORM.a * 2, 0, TRANSFORM.c, 0, TRANSFORM.e * 2, TRANSFORM.f)
    for day, image in zip(DATES, values, strict=True):
        write_tif(tmp_path / f"S2_{day:%Y%m%d}_B2_10m.tif", image[:1], names=None)
        half = np.ascontiguousarray(image[1:2, ::2, ::2])
        write_tif(
            tmp_path / f"S2_{day:%Y%m%d}_B3_20m.tif", half, grid((15, 13), transform=coarse), names=None
        )
    with pytest.raises(InputError, match=r"B3_20m.tif: lies on another grid.*--resample"):
        open_series(tmp_path)
    series = open_series(tmp_path, ReadOptions(resample="nearest"))
    assert series.grid.shape == (30, 26)
    assert tuple(series.grid.transform) == tuple(TRANSFORM)
    read, valid = series.read()
    np.testing.assert_allclose(read[:, 0], values[:, 0] * 1e-4, rtol=1e-6)
    repeated = values[:, 1, ::2, ::2].repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_allclose(read[:, 1], repeated * 1e-4, rtol=1e-6)
    assert valid.all()
    part = series.read(Window(7, 5, 11, 13))[0]
    np.testing.assert_array_equal(part, read[:, :, 7:18, 5:18])


def test_tiles_beside_each_other_are_brought_to_one_grid(tmp_path):
    right = Affine(TRANSFORM.a, 0, TRANSFORM.c + 26 * TRANSFORM.a, 0, TRANSFORM.e, TRANSFORM.f)
    write_tif(tmp_path / "T1_20190310.tif", numbers()[0])
    write_tif(tmp_path / "T2_20190310.tif", numbers(seed=1)[0], grid(transform=right))
    series = open_series(tmp_path, ReadOptions(resample="nearest"))
    assert series.grid.shape == (30, 52)
    read, valid = series.read()
    assert read.shape == (1, 4, 30, 52)
    assert valid.all()
    np.testing.assert_allclose(read[0, :, :, 26:], numbers(seed=1)[0] * 1e-4, rtol=1e-6)


def test_like_takes_the_grid_of_a_file(tmp_path):
    small = grid((10, 8))
    like = write_tif(tmp_path / "like.tif", numbers(shape=(10, 8))[0], small)
    write_folder(tmp_path / "s2")
    series = open_series(tmp_path / "s2", ReadOptions(like=like))
    assert series.grid.difference(small) is None
    np.testing.assert_allclose(series.read()[0], numbers()[:, :, :10, :8] * 1e-4, rtol=1e-6)


def test_the_real_scene_reads_as_its_netcdf():
    tifs = open_series(str(shared_data("sits/derived") / "S2_L1C_*.tif"))
    # The NetCDF brings a mask of its own, the GeoTIFFs do not.
    options = ReadOptions(mask="none")
    cube = open_series(shared_data("sits/derived/eolearn_s2_l1c_2015_5dates.nc"), options)
    assert tifs.dates == cube.dates
    assert tifs.bands == cube.bands
    assert tuple(tifs.grid.transform) == tuple(cube.grid.transform)
    assert tifs.grid.difference(cube.grid) is None
    for first, second in zip(tifs.read(), cube.read(), strict=True):
        np.testing.assert_array_equal(first, second)
