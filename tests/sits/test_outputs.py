import json

import numpy as np
import pytest
import rasterio
from lxml import etree
from PIL import Image
from rio_cogeo.cogeo import cog_validate

from geomix.checkpoint import ClassInfo
from geomix.errors import FormatError, InputError, OutputExistsError
from sits.grid import Window
from sits.io.cog import Layer, new_cog
from sits.io.item import item_text
from sits.io.legend import NODATA, Legend
from sits.io.pam import pam_path, pam_text
from sits.io.preview import write_preview
from sits.io.qml import qml_text
from tests.sits.making import CLASSES, DATES, TRANSFORM, grid

LEGEND = Legend(CLASSES)


def write(path, codes, overwrite=False):
    layer = Layer("uint8", NODATA, ("class",), {"GEOMIX_MODEL": "fake"}, LEGEND.colormap, "mode")
    place = grid(codes.shape)
    with new_cog(path, place, layer, overwrite) as sink:
        for window in place.blocks(7):
            sink.write(codes[window.slices][None], window)


def codes(shape=(30, 26)):
    values = LEGEND.codes[np.random.default_rng(0).integers(0, 3, shape)]
    values[:4] = NODATA
    return values


def test_a_map_is_a_valid_cog_on_the_input_s_grid(tmp_path):
    path = tmp_path / "map.tif"
    write(path, codes())
    assert cog_validate(path, strict=True)[0]
    with rasterio.open(path) as dataset:
        assert tuple(dataset.transform) == tuple(TRANSFORM)
        assert dataset.crs.to_epsg() == 32633
        assert (dataset.nodata, dataset.dtypes, dataset.descriptions) == (255, ("uint8",), ("class",))
        assert dataset.colormap(1)[8] == (0xE3, 0x77, 0xC2, 255)
        assert dataset.tags()["GEOMIX_MODEL"] == "fake"
        np.testing.assert_array_equal(dataset.read(1), codes())
    assert [file.name for file in tmp_path.iterdir()] == ["map.tif"]


def test_a_large_map_has_overviews_of_real_classes(tmp_path):
    path = tmp_path / "map.tif"
    write(path, codes((1100, 600)))
    with rasterio.open(path) as dataset:
        assert dataset.overviews(1)
        small = dataset.read(1, out_shape=(275, 150))
    assert set(np.unique(small)) <= {0, 1, 8, NODATA}
    assert cog_validate(path, strict=True)[0]


def test_a_map_that_fails_leaves_nothing(tmp_path):
    def fail():
        layer = Layer("uint8", NODATA, ("class",))
        with new_cog(tmp_path / "map.tif", grid(), layer) as sink:
            sink.write(np.zeros((1, 5, 5), dtype=np.uint8), Window(0, 0, 5, 5))
            raise FormatError("the input is damaged")

    with pytest.raises(FormatError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_map_replaces_another_only_when_asked(tmp_path):
    path = tmp_path / "map.tif"
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="--overwrite"):
        write(path, codes())
    assert path.read_text() == "mine"
    write(path, codes(), overwrite=True)
    with rasterio.open(path) as dataset:
        assert dataset.shape == (30, 26)


def test_gdal_reads_the_names_of_the_classes(tmp_path):
    path = tmp_path / "map.tif"
    write(path, codes())
    pam_path(path).write_bytes(pam_text(LEGEND))
    root = etree.parse(pam_path(path)).getroot()
    names = [node.text or "" for node in root.findall(".//CategoryNames/Category")]
    assert names == ["Meadow", "Corn", "", "", "", "", "", "", "Fruits, vegetables"]
    rows = [[cell.text for cell in row] for row in root.findall(".//Row")]
    assert rows[2] == ["8", "Fruits, vegetables", "227", "119", "194"]
    with rasterio.open(path) as dataset:  # GDAL takes the side file without a word
        assert dataset.colormap(1)[1] == (0xFF, 0xBB, 0x78, 255)


def test_qgis_finds_names_and_colours_in_the_style():
    root = etree.fromstring(qml_text(LEGEND))
    entries = [dict(node.attrib) for node in root.iter("paletteEntry")]
    assert entries[1] == {"value": "1", "label": "Corn", "color": "#ffbb78", "alpha": "255"}
    assert root.find(".//rasterrenderer").get("type") == "paletted"


def test_the_item_follows_the_standards(tmp_path):
    text = item_text(tmp_path / "map.tif", grid(), LEGEND, DATES, {"geomix:model": "fake"}, {})
    item = json.loads(text)
    classes = item["assets"]["map"]["classification:classes"]
    assert [entry["value"] for entry in classes] == [0, 1, 8, 255]
    assert classes[2]["name"] == "Fruits_vegetables"
    assert classes[2]["color_hint"] == "E377C2"
    properties = item["properties"]
    assert properties["proj:code"] == "EPSG:32633"
    assert properties["proj:shape"] == [30, 26]
    assert properties["start_datetime"].startswith("2019-03-10")
    assert properties["end_datetime"].startswith("2019-06-21")
    west, south, east, north = item["bbox"]
    assert 14 < west < east < 15
    assert 45 < south < north < 46


def test_the_preview_shows_the_colours_of_the_map(tmp_path):
    path = tmp_path / "map.tif"
    write(path, codes())
    write_preview(path, tmp_path / "map.png", LEGEND, "a title")
    with Image.open(tmp_path / "map.png") as picture:
        pixels = {color for _, color in picture.convert("RGB").getcolors(1 << 20)}
    assert {entry.rgb for entry in CLASSES} <= pixels


def test_the_preview_of_a_large_map_is_small(tmp_path):
    path = tmp_path / "map.tif"
    write(path, codes((2400, 300)))
    write_preview(path, tmp_path / "map.png", LEGEND)
    with Image.open(tmp_path / "map.png") as picture:
        assert picture.height < 1100


def test_codes_must_leave_room_for_nodata():
    with pytest.raises(InputError, match="within 0 and 254"):
        Legend((ClassInfo(id=255, name="a", color="#000000"),))
    with pytest.raises(InputError, match="must be different"):
        Legend((CLASSES[0], CLASSES[0]))
    with pytest.raises(InputError, match="lists no classes"):
        Legend.of(None, "fake")
