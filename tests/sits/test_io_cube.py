from datetime import date

import dask.array as da
import numpy as np
import pytest
import xarray as xr

from geomix.errors import FormatError, InputError
from sits.grid import Window
from sits.io import open_series
from sits.io.cube import open_xarray
from sits.io.cubegrid import _axis
from sits.io.options import ReadOptions
from tests.helpers import shared_data
from tests.sits.making import BANDS, DATES, TRANSFORM, dataset, numbers, write_folder


def reflectance(values):
    return values * np.float32(1e-4)


def test_a_netcdf_and_a_zarr_store_read_as_the_dataset(tmp_path):
    dataset().to_netcdf(tmp_path / "s2.nc")
    dataset().to_zarr(tmp_path / "s2.zarr", zarr_format=2)
    for source in (tmp_path / "s2.nc", tmp_path / "s2.zarr", dataset()):
        series = open_series(source)
        assert (series.dates, series.bands) == (DATES, BANDS)
        assert tuple(series.grid.transform) == tuple(TRANSFORM)
        values, valid = series.read(Window(3, 4, 10, 9))
        np.testing.assert_allclose(values, reflectance(numbers())[:, :, 3:13, 4:13], rtol=1e-6)
        assert valid.all()


@pytest.mark.parametrize("name", ["t", "time", "T", "date"])
def test_time_has_many_names(name):
    assert open_xarray(dataset().rename(time=name)).dates == DATES


def test_bands_may_be_variables():
    stacked = dataset()
    flat = xr.Dataset(
        {
            f"S2-L2A-{band[0]}{int(band[1:]):02d}": stacked.reflectance.sel(band=band, drop=True)
            for band in BANDS
        }
    )
    flat["crs"] = stacked.spatial_ref
    for array in flat.data_vars.values():
        array.attrs.pop("grid_mapping", None)
    flat["slope"] = flat["S2-L2A-B02"]
    series = open_xarray(flat)
    assert series.bands == BANDS
    np.testing.assert_array_equal(series.read()[0], open_xarray(stacked).read()[0])


def test_dimensions_may_come_in_any_order():
    turned = dataset().transpose("x", "band", "y", "time")
    np.testing.assert_array_equal(open_xarray(turned).read()[0], open_xarray(dataset()).read()[0])


def test_a_data_array_is_a_series_too():
    array = dataset().reflectance.assign_coords(spatial_ref=dataset().spatial_ref)
    assert open_xarray(array).grid.crs.to_epsg() == 32633


def test_a_band_dimension_is_read_by_wavelength():
    waves = dataset().assign_coords(band=[492.4, 559.8, 664.6, 832.8])
    assert open_xarray(waves).bands == BANDS
    with pytest.raises(InputError, match="4 bands have no name"):
        open_xarray(dataset().assign_coords(band=[1, 2, 3, 4]))
    assert (
        open_xarray(dataset().assign_coords(band=[1, 2, 3, 4]), ReadOptions(bands="B2,B3,B4,B8")).bands
        == BANDS
    )


def test_unsigned_numbers_in_a_signed_type(caplog):
    values = numbers()
    values[0] = 65535
    flat = dataset(values.view(np.int16), attrs={"_Unsigned": "true", "grid_mapping": "spatial_ref"})
    read, valid = open_xarray(flat).read()
    assert not valid[0].any()
    assert valid[1:].all()
    np.testing.assert_allclose(read[1:], reflectance(numbers())[1:], rtol=1e-6)
    assert "65535 is taken for missing" in caplog.text


def test_zero_in_all_bands_is_missing_where_nothing_is_declared(caplog):
    values = numbers()
    values[0, :, :5] = 0
    values[1, 0, :5] = 0  # one dark band is no gap
    _, valid = open_xarray(dataset(values, attrs={})).read()
    assert not valid[0, :5].any()
    assert valid.sum() == valid.size - 5 * 26
    assert "0 in all bands is taken for missing" in caplog.text


def test_scale_and_fill_are_the_file_s(tmp_path, caplog):
    written = dataset(numbers() * 1e-4, attrs={})
    encoding = {"dtype": "uint16", "scale_factor": 1e-4, "_FillValue": 65535}
    written.to_netcdf(tmp_path / "s2.nc", encoding={"reflectance": encoding})
    expected = reflectance(numbers())
    np.testing.assert_allclose(open_series(tmp_path / "s2.nc").read()[0], expected, atol=1e-6)
    with xr.open_dataset(tmp_path / "s2.nc", decode_coords="all") as decoded:
        np.testing.assert_allclose(open_xarray(decoded).read()[0], expected, atol=1e-6)
    assert "no scale" not in caplog.text


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rioxarray with affine 3
def test_the_scale_of_1_that_rioxarray_writes_says_nothing(tmp_path, caplog):
    import rioxarray

    file = write_folder(tmp_path)[0]
    with rioxarray.open_rasterio(file) as image:
        assert image.attrs["scale_factor"] == 1.0
        cube = image.expand_dims(time=[np.datetime64(DATES[0], "ns")]).assign_coords(band=list(BANDS))
        np.testing.assert_allclose(open_xarray(cube).read()[0], reflectance(numbers()[:1]), rtol=1e-6)
    assert "read as digital numbers" in caplog.text


def test_float_reflectance_is_taken_as_it_stands_aloud(caplog):
    series = open_xarray(dataset(numbers() * 1e-4, attrs={}))
    np.testing.assert_allclose(series.read()[0], reflectance(numbers()), rtol=1e-5)
    assert "as reflectance as they stand" in caplog.text


def test_same_day_steps_are_fused_first_valid_first():
    values = numbers()
    values[0, :, :, :10] = 0
    moments = ["2019-03-10T10:10:00", "2019-03-10T10:10:20", "2019-06-21T10:10:00"]
    cube = dataset(values, dates=[np.datetime64(moment) for moment in moments])
    series = open_xarray(cube)
    assert series.dates == (date(2019, 3, 10), date(2019, 6, 21))
    read, valid = series.read()
    assert valid.all()
    np.testing.assert_allclose(read[0, :, :, :10], reflectance(values)[1, :, :, :10], rtol=1e-6)
    np.testing.assert_allclose(read[0, :, :, 10:], reflectance(values)[0, :, :, 10:], rtol=1e-6)


def test_unsorted_dates_are_put_in_order():
    turned = dataset().isel(time=[2, 0, 1])
    series = open_xarray(turned)
    assert series.dates == DATES
    np.testing.assert_array_equal(series.read()[0], open_xarray(dataset()).read()[0])


def test_the_offset_is_decided_for_each_date():
    cube = dataset().assign_coords({"s2:processing_baseline": ("time", ["02.12", "04.00", "05.10"])})
    series = open_xarray(cube)
    expected = reflectance(numbers())
    expected[1:] = np.maximum(expected[1:] - 0.1, 0)
    np.testing.assert_allclose(series.read()[0], expected, atol=1e-6)
    assert [one.offset for one in series.acquisitions] == [
        "none (baseline 02.12)",
        "-1000 (baseline 04.00)",
        "-1000 (baseline 05.10)",
    ]


@pytest.mark.parametrize("where", ["variable", "coordinate", "attribute", "array attribute", "epsg"])
def test_the_coordinate_system_is_found_wherever_it_hides(where):
    cube = dataset(attrs={})
    wkt = cube.spatial_ref.attrs["crs_wkt"]
    cube = cube.drop_vars("spatial_ref")
    if where == "variable":
        cube["crs"] = ((), b"", {"spatial_ref": wkt})
    elif where == "coordinate":
        cube = cube.assign_coords(spatial_ref=((), 0, {"crs_wkt": wkt}))
    elif where == "attribute":
        cube.attrs["crs"] = "EPSG:32633"
    elif where == "array attribute":
        cube.reflectance.attrs["crs"] = "EPSG:32633"
    else:
        cube = cube.assign_coords({"proj:epsg": 32633})
    assert open_xarray(cube).grid.crs.to_epsg() == 32633


def test_without_a_coordinate_system_one_must_be_named():
    cube = dataset(attrs={}).drop_vars("spatial_ref")
    with pytest.raises(InputError, match=r"no coordinate system \(looked in .*--crs"):
        open_xarray(cube)
    assert open_xarray(cube, ReadOptions(crs="EPSG:32633")).grid.crs.to_epsg() == 32633


def test_rows_may_run_northwards():
    turned = dataset().isel(y=slice(None, None, -1))
    series = open_xarray(turned)
    assert series.grid.transform.e > 0
    np.testing.assert_array_equal(series.read()[0], open_xarray(dataset()).read()[0][:, :, ::-1])


def test_a_kept_transform_counts_unless_the_object_was_cut():
    cube = dataset().drop_vars(["y", "x"])
    cube.spatial_ref.attrs["GeoTransform"] = " ".join(map(str, TRANSFORM.to_gdal()))
    assert tuple(open_xarray(cube).grid.transform) == tuple(TRANSFORM)
    cut = dataset().isel(x=slice(5, None))
    cut.spatial_ref.attrs["GeoTransform"] = " ".join(map(str, TRANSFORM.to_gdal()))
    moved = open_xarray(cut).grid.transform
    assert moved.c == pytest.approx(TRANSFORM.c + 5 * TRANSFORM.a, abs=1e-8)


def test_a_transform_between_edges_comes_back_bit_for_bit():
    rng = np.random.default_rng(0)
    for _ in range(50):
        start, count = rng.uniform(1e5, 9e5), int(rng.integers(2, 3000))
        step = (start + rng.uniform(5, 30) * count - start) / count
        end = start + step * count
        step = (end - start) / count
        assert _axis(start + (np.arange(count) + 0.5) * step, "x") == (step, start)


def test_uneven_coordinates_are_refused():
    x = dataset().x.values.copy()
    x[5] += 3
    with pytest.raises(InputError, match="is not evenly spaced"):
        open_xarray(dataset().assign_coords(x=x))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.isel(time=0, drop=True), "no dimension for time"),
        (lambda d: d.drop_vars("time"), "has no coordinates, so no dates"),
        (lambda d: d.assign_coords(time=[0, 1, 2]), "without units"),
        (lambda d: d.assign_coords(time=["soon", "later", "never"]), "is not a date"),
        (lambda d: d.rename(x="u", y="v"), "no dimensions for rows and columns"),
        (
            lambda d: d.rename(band="time2").drop_vars("time2").isel(time2=0),
            "none of its variables is a band",
        ),
        (lambda d: d.assign(more=d.reflectance), "all have a band dimension"),
    ],
)
def test_what_is_no_series_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        open_xarray(change(dataset()))


def test_truncated_and_foreign_files_are_said_so(tmp_path):
    path = tmp_path / "s2.nc"
    dataset().to_netcdf(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(FormatError, match=r"s2\.nc: is damaged, truncated or no NetCDF"):
        open_series(path)
    path.write_text("not a cube")
    with pytest.raises(FormatError, match=r"s2\.nc: is damaged"):
        open_series(path)
    (tmp_path / "s2.zarr").mkdir()
    with pytest.raises(FormatError, match=r"s2\.zarr: is damaged"):
        open_series(tmp_path / "s2.zarr")


def test_chunks_along_time_do_not_matter():
    chunked = dataset().chunk(time=1, y=7, x=9)
    assert isinstance(chunked.reflectance.data, da.Array)
    np.testing.assert_array_equal(open_xarray(chunked).read()[0], open_xarray(dataset()).read()[0])


def test_the_real_openeo_file_reads_with_its_traps(caplog):
    series = open_series(shared_data("sits/worldcereal/worldcereal_preprocessed_inputs.nc"))
    assert series.grid.crs.to_epsg() == 32631
    assert len(series.dates) == 12
    assert "B8A" not in series.bands
    _, valid = series.read()
    assert valid.all(axis=(1, 2)).tolist() == [True, False, False] + [True] * 9
    assert not valid[1:3].any()
    assert "65535 is taken for missing" in caplog.text
