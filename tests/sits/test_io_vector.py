import logging

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from shapely.geometry import LineString, MultiPoint, Point, Polygon, box

from geomix.errors import FormatError, InputError, MissingFileError
from sits.io.vector import TableColumns, read_labels

SQUARES = [box(500000, 5000000, 500100, 5000100), box(500200, 5000000, 500300, 5000100)]


def frame(shapes=SQUARES, crop=("wheat", "maize"), crs="EPSG:32633"):
    return gpd.GeoDataFrame({"crop": list(crop), "code": range(len(shapes))}, geometry=list(shapes), crs=crs)


def raster(path, codes, dtype, nodata=None):
    profile = {"driver": "GTiff", "height": 2, "width": 3, "count": 1, "dtype": dtype, "nodata": nodata}
    with rasterio.open(
        path, "w", **profile, crs="EPSG:32633", transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)
    ) as file:
        file.write(np.array(codes, dtype=dtype), 1)
    return path


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "shp", "fgb", "parquet"])
def test_every_format_gives_the_same_shapes_labels_and_keys(tmp_path, suffix):
    table = frame()
    file = tmp_path / f"fields.{suffix}"
    if suffix == "parquet":
        table.to_parquet(file)
    else:
        (table.to_crs(4326) if suffix == "geojson" else table).to_file(file, engine="pyogrio")
    found = read_labels(file, "crop")
    assert sorted(found.values) == ["maize", "wheat"]
    moved = found.to("EPSG:32633")
    assert sum(shape.area for shape in moved.shapes) == pytest.approx(20000, rel=1e-3)
    table.to_file(tmp_path / "other.gpkg", engine="pyogrio")
    assert {*found.keys()} == {*read_labels(tmp_path / "other.gpkg", "crop").keys()}


def test_a_layer_is_chosen_by_name_and_asked_for_where_there_are_several(tmp_path):
    file = tmp_path / "two.gpkg"
    frame().to_file(file, layer="fields", engine="pyogrio")
    frame(crop=("a", "b")).to_file(file, layer="other", engine="pyogrio")
    assert read_labels(file, "crop", "other").values == ["a", "b"]
    with pytest.raises(InputError, match="layers fields, other; name one with --layer"):
        read_labels(file, "crop")
    with pytest.raises(InputError, match="no layer 'field'; did you mean 'fields'"):
        read_labels(file, "crop", "field")


def test_a_column_that_is_missing_or_not_named_is_told_with_those_there_are(tmp_path):
    frame().to_file(tmp_path / "f.gpkg", engine="pyogrio")
    with pytest.raises(InputError, match="no column 'crops'; did you mean 'crop'"):
        read_labels(tmp_path / "f.gpkg", "crops")
    with pytest.raises(InputError, match="--field; there are crop, code"):
        read_labels(tmp_path / "f.gpkg")


def test_lines_are_refused_and_many_points_are_taken_one_by_one(tmp_path):
    frame([LineString([(0, 0), (9, 9)]), Point(1, 1)]).to_file(tmp_path / "lines.gpkg", engine="pyogrio")
    with pytest.raises(InputError, match="shape 1 is a LineString, but labels are polygons or points"):
        read_labels(tmp_path / "lines.gpkg", "crop")
    frame([MultiPoint([(0, 0), (9, 9)]), Point(1, 1)]).to_file(tmp_path / "points.gpkg", engine="pyogrio")
    assert read_labels(tmp_path / "points.gpkg", "crop").values == ["wheat", "wheat", "maize"]


def test_shapes_without_a_label_or_a_place_are_counted_and_left_out(tmp_path, caplog):
    frame([SQUARES[0], SQUARES[1], None], ("wheat", None, "maize")).to_file(
        tmp_path / "f.gpkg", engine="pyogrio"
    )
    with caplog.at_level(logging.WARNING):
        assert read_labels(tmp_path / "f.gpkg", "crop").values == ["wheat"]
    assert "2 shapes without a place or a label are left out" in caplog.text


def test_rings_that_cross_themselves_are_mended_with_a_warning(tmp_path, caplog):
    bow = Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])
    frame([bow, SQUARES[0]]).to_file(tmp_path / "f.gpkg", engine="pyogrio")
    with caplog.at_level(logging.WARNING):
        found = read_labels(tmp_path / "f.gpkg", "crop")
    assert found.shapes[0].area == pytest.approx(50)
    assert "the rings of 1 shapes cross themselves" in caplog.text


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "shp", "fgb", "parquet"])
def test_a_damaged_file_is_one_clear_error(tmp_path, suffix):
    (tmp_path / f"f.{suffix}").write_bytes(b"SQLite format 3\0 and then nothing of use")
    with pytest.raises(FormatError, match="damaged or holds no shapes"):
        read_labels(tmp_path / f"f.{suffix}", "crop")


def test_a_file_that_is_absent_or_has_no_coordinate_system_is_refused(tmp_path):
    with pytest.raises(MissingFileError):
        read_labels(tmp_path / "none.gpkg", "crop")
    frame(crs=None).to_parquet(tmp_path / "f.parquet")
    with pytest.raises(InputError, match="no coordinate system"):
        read_labels(tmp_path / "f.parquet", "crop")


def test_a_table_of_coordinates_gives_points(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text("id;Lon;Lat;crop\n1;15.0;45.1;wheat\n2;15.1;45.2;maize\n", encoding="utf-8")
    found = read_labels(file, "crop")
    assert found.crs.to_epsg() == 4326
    assert [shape.x for shape in found.shapes] == [15.0, 15.1]
    file.write_text("e,n,crop\n500000,5000000,wheat\n", encoding="utf-8")
    found = read_labels(file, "crop", columns=TableColumns("e", "n", "EPSG:32633"))
    assert found.crs.to_epsg() == 32633
    with pytest.raises(InputError, match="column of coordinates with --x; there are e, n, crop"):
        read_labels(file, "crop")
    with pytest.raises(InputError, match="coordinate system of e and n with --crs"):
        read_labels(file, "crop", columns=TableColumns("e", "n"))


def test_a_coordinate_that_is_no_number_is_told_with_its_line(tmp_path):
    (tmp_path / "p.csv").write_text("lon,lat,crop\n1,2,a\n3,x,b\n", encoding="utf-8")
    with pytest.raises(FormatError, match="line 3: lon or lat is no number"):
        read_labels(tmp_path / "p.csv", "crop")


def test_a_label_raster_becomes_one_polygon_for_each_connected_area(tmp_path):
    found = read_labels(raster(tmp_path / "l.tif", [[1, 1, 2], [0, 1, 2]], "uint8", nodata=0))
    assert sorted(zip(found.values, [shape.area for shape in found.shapes], strict=True)) == [
        (1, 300),
        (2, 200),
    ]


def test_nan_in_a_label_raster_is_unlabelled_and_fractions_are_refused(tmp_path):
    found = read_labels(raster(tmp_path / "l.tif", [[1, 1, np.nan], [np.nan, 1, 2]], "float32"))
    assert sorted(found.values) == [1, 2]
    with pytest.raises(InputError, match=r"holds 1.5, but labels are whole numbers"):
        read_labels(raster(tmp_path / "h.tif", [[1, 1.5, 2]] * 2, "float32"))
    with pytest.raises(InputError, match="no label at all"):
        read_labels(raster(tmp_path / "e.tif", [[0] * 3] * 2, "uint8", nodata=0))
