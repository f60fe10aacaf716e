import geopandas as gpd
import numpy as np
import pytest
from shapely.geometry import Polygon, box

from geomix.cli import run
from geomix.errors import FormatError, InputError, MissingFileError
from sits.io.cog import Layer, new_cog
from sits.io.legend import NODATA, Legend
from sits.polygons import zonal, zonal_file
from tests.helpers import shared_data
from tests.sits.making import CLASSES, TRANSFORM, grid, write_tif

LEGEND = Legend(CLASSES)


def pixels(left, top, right, bottom):
    """A box in pixels of the map, as a shape on the ground."""
    a, _, c, _, e, f = tuple(TRANSFORM)[:6]
    return box(c + left * a, f + bottom * e, c + right * a, f + top * e)


@pytest.fixture
def class_map(tmp_path):
    """Left half meadow, right half corn, a row of nothing on top."""
    codes = np.zeros((20, 20), dtype=np.uint8)
    codes[:, 10:] = 1
    codes[0] = NODATA
    path = tmp_path / "map.tif"
    tags = {"GEOMIX_CLASSES": LEGEND.to_json()}
    with new_cog(path, grid((20, 20)), Layer("uint8", NODATA, ("class",), tags, LEGEND.colormap)) as sink:
        sink.write(codes[None], grid((20, 20)).whole)
    return path


def write_fields(folder, shapes, crs="EPSG:32633", to=None, name="fields.gpkg"):
    frame = gpd.GeoDataFrame({"farm": [f"f{i}" for i in range(len(shapes))]}, geometry=shapes, crs=crs)
    path = folder / name
    (frame.to_crs(to) if to else frame).to_file(path)
    return path


def test_shares_count_pixels_by_the_part_that_is_covered(class_map, tmp_path):
    fields = write_fields(tmp_path, [pixels(5, 5, 10.5, 9), pixels(12, 0, 14, 4), pixels(19, 5, 23, 6)])
    found = zonal(class_map, fields)
    assert found["farm"].tolist() == ["f0", "f1", "f2"]
    assert found["class_id"].tolist() == [0, 1, 1]
    assert found["class_name"].tolist() == ["Meadow", "Corn", "Corn"]
    np.testing.assert_allclose(found["share_meadow"], [5 / 5.5, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found["share_corn"], [0.5 / 5.5, 1, 1], atol=1e-6)
    np.testing.assert_allclose(found["share_fruits_vegetables"], 0)
    np.testing.assert_allclose(found["confidence"], [5 / 5.5, 1, 1], atol=1e-6)
    # A row of nothing, and three quarters off the map.
    np.testing.assert_allclose(found["valid_share"], [1, 0.75, 0.25], atol=1e-6)
    hectare = abs(TRANSFORM.a * TRANSFORM.e) / 1e4
    np.testing.assert_allclose(found["valid_ha"], [22 * hectare, 6 * hectare, hectare], rtol=1e-5)


def test_parcels_come_from_any_coordinate_system(class_map, tmp_path, caplog):
    shapes = [pixels(2, 2, 8, 8), pixels(11, 3, 15, 9)]
    here = zonal(class_map, write_fields(tmp_path, shapes))
    lonlat = zonal(class_map, write_fields(tmp_path, shapes, to="EPSG:4326", name="lonlat.geojson"))
    assert "brought from EPSG:4326 to EPSG:32633" in caplog.text
    assert lonlat.crs.to_epsg() == 4326
    assert lonlat["class_id"].tolist() == here["class_id"].tolist() == [0, 1]
    np.testing.assert_allclose(lonlat["valid_ha"], here["valid_ha"], rtol=1e-4)


def test_a_parcel_without_valid_pixels_stays_empty(class_map, tmp_path, caplog):
    found = zonal(class_map, write_fields(tmp_path, [pixels(2, 0, 5, 1), pixels(2, 2, 5, 5)]))
    assert found["class_id"].isna().tolist() == [True, False]
    assert found["confidence"].isna().tolist() == [True, False]
    assert found["valid_share"].tolist() == [0, pytest.approx(1)]
    assert "1 of 2 parcels have no valid pixel" in caplog.text


def test_probabilities_give_the_confidence(class_map, tmp_path):
    shares = np.zeros((3, 20, 20), dtype=np.uint8)
    shares[0, :, :10], shares[1, :, 10:] = 80, 60
    shares[2] = 5
    proba = write_tif(tmp_path / "p.tif", shares, grid((20, 20)), names=LEGEND.names, nodata=255)
    fields = write_fields(tmp_path, [pixels(2, 2, 8, 8), pixels(11, 3, 15, 9)])
    np.testing.assert_allclose(zonal(class_map, fields, proba)["confidence"], [0.8, 0.6], atol=1e-6)
    other = write_tif(tmp_path / "q.tif", shares, grid((20, 20)), names=("a", "b", "c"), nodata=255)
    with pytest.raises(InputError, match="its bands or its system are not those"):
        zonal(class_map, fields, other)


def test_crossing_rings_are_mended(class_map, tmp_path, caplog):
    a, _, c, _, e, f = tuple(TRANSFORM)[:6]
    knot = Polygon([(c + x * a, f + y * e) for x, y in ((2, 2), (8, 8), (8, 2), (2, 8))])
    found = zonal(class_map, write_fields(tmp_path, [knot]))
    assert "are mended" in caplog.text
    assert found["class_name"].tolist() == ["Meadow"]


def test_parcels_elsewhere_are_an_error(class_map, tmp_path):
    fields = write_fields(tmp_path, [pixels(900, 2, 905, 8)])
    with pytest.raises(InputError, match=r"no parcel lies on .*map\.tif; in EPSG:32633 parcels span"):
        zonal(class_map, fields)


def test_parcels_without_a_system_are_an_error(class_map, tmp_path):
    frame = gpd.GeoDataFrame(geometry=[pixels(2, 2, 8, 8)])
    frame.to_parquet(tmp_path / "fields.parquet")
    with pytest.raises(InputError, match="has no coordinate system"):
        zonal(class_map, tmp_path / "fields.parquet")


def test_unreadable_files_are_named(class_map, tmp_path):
    (tmp_path / "fields.gpkg").write_text("nothing")
    with pytest.raises(FormatError, match=r"fields\.gpkg: cannot be read as parcels"):
        zonal(class_map, tmp_path / "fields.gpkg")
    with pytest.raises(MissingFileError):
        zonal(class_map, tmp_path / "none.gpkg")
    bare = write_tif(tmp_path / "bare.tif", np.zeros((1, 5, 5), dtype=np.uint8), grid((5, 5)), names=None)
    with pytest.raises(FormatError, match=r"neither its tags nor bare\.tif\.aux\.xml name its classes"):
        zonal(bare, write_fields(tmp_path, [pixels(2, 2, 4, 4)], name="some.gpkg"))


@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".parquet", ".csv"])
def test_the_command_writes_what_the_suffix_says(class_map, tmp_path, suffix, capsys):
    fields = write_fields(tmp_path, [pixels(2, 2, 8, 8)])
    out = tmp_path / f"out{suffix}"
    assert run(["sits", "zonal", str(class_map), str(fields), "-o", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    if suffix == ".csv":
        assert "share_meadow" in out.read_text().splitlines()[0]
    else:
        read = gpd.read_parquet(out) if suffix == ".parquet" else gpd.read_file(out)
        assert read["class_name"].tolist() == ["Meadow"]


def test_an_unknown_format_is_refused_at_once(class_map, tmp_path):
    with pytest.raises(InputError, match=r"the format must be one of \.gpkg"):
        zonal_file(class_map, tmp_path / "none.gpkg", tmp_path / "out.shp")


def test_the_register_agrees_with_its_own_raster(tmp_path):
    from sits.io.pam import pam_path, pam_text

    codes = shared_data("sits/derived/eolearn_lulc.tif")
    entries = [(1, "cultivated land"), (2, "forest"), (3, "grassland"), (4, "shrubland"), (8, "artificial")]
    legend = Legend(tuple(CLASSES[0].model_copy(update={"id": code, "name": name}) for code, name in entries))
    copy = tmp_path / "lulc.tif"
    copy.write_bytes(codes.read_bytes())
    pam_path(copy).write_bytes(pam_text(legend))
    fields = shared_data("sits/eolearn/LULC.gpkg")
    found = zonal(copy, fields)
    # The register made the raster, so parcels of a few pixels and more must come out as registered.
    large = found[found["valid_ha"] > 0.1]
    assert (large["class_id"] == large["LULC_ID"].astype(int)).mean() > 0.95
    assert large["confidence"].median() > 0.85


def test_a_column_of_the_parcels_is_never_overwritten(class_map, tmp_path, caplog):
    shapes = [pixels(5, 5, 9, 9), pixels(12, 4, 14, 8)]
    told = {"class_name": ["declared", "crop"], "Confidence": [1, 2]}
    fields = tmp_path / "declared.gpkg"
    gpd.GeoDataFrame(told, geometry=shapes, crs="EPSG:32633").to_file(fields)
    found = zonal(class_map, fields)
    assert found["class_name"].tolist() == ["declared", "crop"]
    assert found["Confidence"].tolist() == [1, 2]
    assert found["map_class_name"].tolist() == ["Meadow", "Corn"]
    assert "map_class_name instead of class_name, map_confidence instead of confidence" in caplog.text
