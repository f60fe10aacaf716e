"""What users of satellite series stumble over while reading them, and what must happen instead."""

import logging
from datetime import date

import numpy as np
import pytest
import xarray as xr

from geomix.errors import InputError
from sits.grid import Window
from sits.io import open_series
from sits.io.cube import open_xarray
from sits.io.options import MapOptions, ReadOptions
from sits.predict import Scorer, score_blocks, segment
from tests.helpers import shared_data
from tests.sits.making import (
    BANDS,
    DATES,
    TRANSFORM,
    dataset,
    grid,
    model,
    numbers,
    series,
    write_folder,
    write_tif,
)

PRODUCT = "S2A_MSIL2A_{:%Y%m%d}T101031_N{}_R022_T33TVL_20230101T000000.tif"


def test_case_01_the_offset_of_new_baselines_is_taken_off_date_by_date(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="sits")
    # The second date is older but processed anew: the date of sensing tells nothing.
    baselines = ("0214", "0500", "0400")
    for day, baseline, image in zip(DATES, baselines, numbers(), strict=True):
        write_tif(tmp_path / PRODUCT.format(day, baseline), image)
    read = open_series(tmp_path)
    expected = numbers() * 1e-4
    expected[1:] = np.maximum(expected[1:] - 0.1, 0)
    np.testing.assert_allclose(read.read()[0], expected, atol=1e-6)
    assert "offset -1000 (baseline 05.00): 2019-05-02" in caplog.text
    raw = open_series(tmp_path, ReadOptions(offset="none")).read()[0]
    np.testing.assert_allclose(raw, numbers() * 1e-4, atol=1e-6)


def test_case_02_an_offset_that_one_date_still_carries_is_noticed(tmp_path, caplog):
    values = numbers()
    values[:, :, ::3] = 150  # some dark water in every date
    values[1] += 1000
    write_folder(tmp_path, values)
    open_series(tmp_path)
    warned = [record.message for record in caplog.records if "offset of 1000" in record.message]
    assert len(warned) == 1
    assert "2019-05-02" in warned[0]
    assert "--offset" in warned[0]


def test_case_02_an_offset_taken_off_twice_is_noticed(tmp_path, caplog):
    values = np.maximum(numbers().astype(int) - 1500, 0) + 1
    for day, image in zip(DATES, values.astype(np.uint16), strict=True):
        write_tif(tmp_path / PRODUCT.format(day, "0500"), image)
    open_series(tmp_path)
    assert "it may have been taken off before" in caplog.text


def test_case_03_dark_pixels_do_not_wrap_to_65036(tmp_path):
    values = numbers()
    values[0, :, 0, 0] = 536
    write_folder(tmp_path, values)
    read, valid = open_series(tmp_path, ReadOptions(offset="-1000")).read()
    assert (read[0, :, 0, 0] == 0).all()
    assert valid[0, 0, 0]
    assert read.max() < 1


@pytest.mark.parametrize(("factor", "dtype"), [(1, np.uint16), (1e-4, np.float32), (1.0, np.float64)])
def test_case_04_numbers_and_reflectance_are_told_apart_aloud(caplog, factor, dtype):
    cube = dataset((numbers() * factor).astype(dtype), attrs={"grid_mapping": "spatial_ref"})
    np.testing.assert_allclose(open_xarray(cube).read()[0], numbers() * 1e-4, rtol=1e-5)
    assert "no scale is stated" in caplog.text
    caplog.clear()
    stated = open_xarray(cube, ReadOptions(scale=5e-5 / factor)).read()[0]
    np.testing.assert_allclose(stated, numbers() * 5e-5, rtol=1e-5)
    assert "no scale is stated" not in caplog.text


def test_case_05_bands_are_matched_by_name_not_by_place(tmp_path):
    write_folder(tmp_path / "turned", numbers()[:, ::-1], names=BANDS[::-1])
    write_folder(tmp_path / "straight")
    scorer = Scorer(model())
    turned, straight = (
        next(score_blocks(scorer, scorer.series(open_series(tmp_path / name)), 32)).logits
        for name in ("turned", "straight")
    )
    np.testing.assert_array_equal(turned, straight)
    chosen = open_series(tmp_path / "straight").select([BANDS[3], BANDS[0]]).read()[0]
    np.testing.assert_array_equal(chosen, open_series(tmp_path / "straight").read()[0][:, [3, 0]])
    write_folder(tmp_path / "few", numbers()[:, :3], names=BANDS[:3])
    with pytest.raises(InputError, match="lacks band B8, which the model needs; found B2, B3, B4"):
        scorer.series(open_series(tmp_path / "few"))
    write_folder(tmp_path / "bare", names=None)
    with pytest.raises(InputError, match="--bands"):
        open_series(sorted((tmp_path / "bare").glob("*.tif")))


def test_case_06_undeclared_65535_is_missing_not_bright():
    series_ = open_series(shared_data("sits/worldcereal/worldcereal_preprocessed_inputs.nc"))
    values, valid = series_.read()
    empty = [day.isoformat()[:7] for day, seen in zip(series_.dates, valid, strict=True) if not seen.any()]
    assert empty == ["2020-12", "2021-01"]
    assert values.max() < 2


def test_case_06_a_date_of_one_number_is_left_out(tmp_path, caplog):
    values = numbers()
    values[1] = 12345
    write_folder(tmp_path, values)
    assert open_series(tmp_path).dates == (DATES[0], DATES[2])
    assert "2019-05-02 shows 1.234 in every band" in caplog.text
    assert open_series(tmp_path, ReadOptions(nodata=0)).dates == DATES
    assert open_series(dataset(values)).dates == (DATES[0], DATES[2])
    assert segment(dataset(values), model=model()).attrs["dates"] == "2019-03-10 2019-06-21"


def test_case_07_a_missing_date_is_dropped_pixel_by_pixel():
    valid = np.ones((3, 30, 26), dtype=bool)
    valid[1, :, :13] = False
    valid[:, 0, 0] = False
    scorer = Scorer(model())
    (scores,) = score_blocks(scorer, series(valid=valid), 32)
    assert np.isfinite(scores.logits).all()
    assert (scores.dates[0, 0], scores.dates[5, 5], scores.dates[5, 20]) == (0, 2, 3)
    assert scores.codes(scorer.legend)[0, 0] == 255


def test_case_08_padding_does_not_take_part():
    scorer, short = Scorer(model()), series()
    (plain,) = score_blocks(scorer, short, 32)
    values = np.concatenate([numbers(), np.zeros((2, 4, 30, 26), dtype=np.uint16)])
    valid = np.concatenate([np.ones((3, 30, 26), dtype=bool), np.zeros((2, 30, 26), dtype=bool)])
    longer = series(values, (*DATES, date(2019, 8, 1), date(2019, 9, 9)), valid=valid)
    (padded,) = score_blocks(scorer, longer, 32)
    np.testing.assert_allclose(padded.logits, plain.logits, atol=1e-5)


def test_case_09_tiles_of_one_overpass_are_fused_over_midnight(tmp_path):
    # Far in the east the overpass lies around midnight UTC: one day by the sun, two by the clock.
    place = grid(crs="EPSG:32757", transform=TRANSFORM)
    left, right = numbers()[:1], numbers(seed=1)[:1]
    left[:, :, :, 10:] = 0
    for stamp, image in (("20190310T235955", left), ("20190311T000012", right), ("20190502T000012", right)):
        write_tif(tmp_path / f"S2_{stamp}.tif", image[0], place)
    read = open_series(tmp_path)
    assert read.dates == (date(2019, 3, 10), date(2019, 5, 2))
    moments = [
        np.datetime64(f"2019-{text}") for text in ("03-10T23:59:55", "03-11T00:00:12", "05-02T00:00:12")
    ]
    cube = dataset(np.concatenate([left, right, right]), moments, place)
    as_cube = open_xarray(cube)
    assert as_cube.dates == read.dates
    values, valid = read.read()
    for mine, other in zip((values, valid), as_cube.read(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert valid.all()
    np.testing.assert_allclose(values[0, :, :, :10], left[0, :, :, :10] * 1e-4, rtol=1e-6)
    np.testing.assert_allclose(values[0, :, :, 10:], right[0, :, :, 10:] * 1e-4, rtol=1e-6)


def test_case_09_unsorted_dates_are_put_in_order():
    folder = shared_data("sits/eolearn")
    stack = np.load(folder / "REFERENCE_SCENES.npy").transpose(0, 3, 1, 2)[:, [1, 2, 3, 7]]
    # The real file lists its scenes as August, July, September, August, July.
    taken = [date(2015, 8, 20), date(2015, 7, 31), date(2015, 9, 9), date(2015, 8, 30), date(2015, 7, 11)]
    cube = dataset(stack, dates=taken, attrs={"grid_mapping": "spatial_ref", "scale_factor": 1.0})
    read = open_xarray(cube)
    assert list(read.dates) == sorted(taken)
    np.testing.assert_array_equal(read.read()[0][0], stack[4])


def test_case_10_days_go_on_over_the_year_and_day_366_is_one():
    # As in PASTIS, where days 267, 282 and 292 of the year come twice in one series.
    dates = [date(2018, 9, 24), date(2018, 10, 19), date(2019, 1, 2), date(2019, 9, 24), date(2019, 10, 19)]
    scorer, pixels = Scorer(model()), np.repeat(numbers()[:1], len(dates), 0)
    read = series(pixels[::-1], dates[::-1])
    assert list(read.dates) == dates
    assert scorer.days(read).tolist() == [23, 48, 123, 388, 413]
    leap = scorer.days(series(numbers(), [date(2020, 12, 30), date(2020, 12, 31), date(2021, 1, 1)]))
    assert leap.tolist() == [120, 121, 122]
    by_year = Scorer(model({"day_code": "table"}, days="year"))
    of_leap_year = series(numbers(), [date(2020, 12, 29), date(2020, 12, 30), date(2020, 12, 31)])
    assert by_year.days(of_leap_year).tolist() == [364, 365, 366]
    assert np.isfinite(next(score_blocks(by_year, of_leap_year, 32)).logits).all()


def test_case_10_real_dates_of_two_years_stay_apart():
    import json

    rows = json.loads(shared_data("sits/pastis/metadata_9patches.geojson").read_text())["features"]
    listed = rows[0]["properties"]["dates-S2"]
    dates = [date.fromisoformat(str(day)) for day in listed.values()]
    days = Scorer(model()).days(series(np.repeat(numbers()[:1], len(dates), 0), dates))
    assert len(set(days)) == len(dates)
    assert (np.diff(days) > 0).all()
    assert (days[0], days[-1]) == (23, 413)


def test_case_11_more_dates_than_any_cap_all_count():
    from datetime import timedelta

    count = 130
    dates = [date(2018, 9, 5) + timedelta(days=3 * step) for step in range(count)]
    values = numbers(dates=count, shape=(4, 4))
    changed = values.copy()
    changed[-1] = 9000
    scorer = Scorer(model())
    first, second = (next(score_blocks(scorer, series(v, dates), 4)).logits for v in (values, changed))
    assert np.abs(first - second).max() > 1e-4


def test_case_12_a_coordinate_system_that_xarray_loses_is_found():
    cube = dataset().rename(spatial_ref="crs")  # as openEO writes it, with nothing that points to it
    for array in cube.data_vars.values():
        array.attrs.pop("grid_mapping", None)
    import rioxarray  # noqa: F401

    assert cube.rio.crs is None
    assert open_xarray(cube).grid.crs.to_epsg() == 32633
    with pytest.raises(InputError, match=r"no coordinate system.*--crs"):
        open_xarray(cube.drop_vars("crs"))


def test_case_12_a_lost_coordinate_system_is_looked_for_and_then_refused():
    folder = shared_data("sits/worldcereal/worldcereal_preprocessed_inputs.nc")
    with xr.open_dataset(folder, mask_and_scale=False) as plain:
        assert plain.rio.crs is None  # rioxarray does not see it
        assert open_xarray(plain).grid.crs.to_epsg() == 32631
        with pytest.raises(InputError, match=r"no coordinate system.*--crs"):
            open_xarray(_without_crs(plain))


def _without_crs(cube):
    bare = cube.drop_vars("crs")
    for array in bare.variables.values():
        array.attrs = {}
    bare.attrs = {}
    return bare


def test_case_13_the_grid_is_kept_bit_for_bit_whatever_it_is(tmp_path):
    from rasterio.transform import Affine

    from sits.predict import segment_file
    from tests.sits.making import model_file

    weights = model_file(tmp_path)
    grids = {
        "odd": TRANSFORM,
        "turned": Affine(8.66, 5.0, 465181.05, 5.0, -8.66, 5080254.63),
        "south_up": Affine(10.0, 0.0, 465181.05, 0.0, 10.0, 5080254.63),
        "oblong": Affine(10.0, 0.0, 465181.05, 0.0, -20.0, 5080254.63),
    }
    import rasterio

    for name, transform in grids.items():
        write_folder(tmp_path / name, place=grid(transform=transform))
        segment_file(tmp_path / name, tmp_path / f"{name}.tif", weights)
        with rasterio.open(tmp_path / f"{name}.tif") as found:
            assert tuple(found.transform) == tuple(transform), name


@pytest.mark.parametrize("name", ["t", "time", "T"])
def test_case_14_time_and_bands_by_any_name(name, caplog):
    caplog.set_level(logging.INFO, logger="sits")
    stacked = dataset().rename(time=name)
    flat = stacked.reflectance.to_dataset(dim="band").assign(spatial_ref=stacked.spatial_ref)
    for cube in (stacked, flat):
        read = open_xarray(cube)
        assert (read.dates, read.bands) == (DATES, BANDS)
    assert f"time is '{name}'" in caplog.text


def test_case_15_time_may_be_chunked():
    lazy = dataset().chunk(time=1, band=2, y=7, x=13)
    found = segment(lazy, model=model(), options=MapOptions(block=8))
    np.testing.assert_array_equal(found.compute().values, segment(dataset(), model=model()).values)


def test_case_16_numbers_keep_their_type_until_a_window_is_read():
    import dask.array as da

    seen = []

    def watch(block):
        seen.append(block.dtype)
        return block

    cube = dataset().chunk(time=1, y=10, x=10)
    values = da.map_blocks(watch, cube.reflectance.data, dtype=np.uint16, meta=np.empty((0,) * 4, np.uint16))
    read = open_xarray(cube.assign(reflectance=cube.reflectance.copy(data=values)))
    assert seen == []
    part, _ = read.read(Window(0, 0, 5, 5))
    assert part.dtype == np.float32
    assert len(seen) == 3  # one chunk a date, not nine
    assert set(seen) == {np.dtype("uint16")}


def test_case_23_float_nodata_is_compared_in_its_own_type():
    values = numbers().astype(np.float64) * 1e-4
    values[0, :, :4] = -1.7e308  # becomes -inf in float32 and would match nothing
    cube = dataset(values, attrs={"grid_mapping": "spatial_ref", "_FillValue": -1.7e308})
    read, valid = open_xarray(cube).read()
    assert not valid[0, :4].any()
    assert valid.sum() == valid.size - 4 * 26
    assert np.isfinite(read).all()


def test_case_02_a_cloudy_date_is_no_offset(caplog):
    open_series(str(shared_data("sits/derived") / "S2_L1C_*.tif"))  # 2015-08-20 is hazy all over
    assert "offset of 1000" not in caplog.text


def test_case_02_an_index_that_moves_with_the_season_is_no_offset(caplog):
    values = numbers(bands=1)
    values[1] += 1000
    read = open_series(dataset(values, names=BANDS[:1]))
    assert read.dates == DATES
    assert "offset of 1000" not in caplog.text
