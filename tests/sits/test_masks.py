"""Clouds: the mask layers of products and those of the user, beside or inside the images."""

import json

import numpy as np
import pytest
from rasterio.transform import Affine

from geomix.cli import run
from geomix.errors import InputError
from sits.io import open_series
from sits.io.masks import RULES, grow, layer_in, looks_like_mask, parse_rule
from sits.io.options import MapOptions, ReadOptions
from sits.predict import segment
from tests.sits.making import BANDS, DATES, dataset, grid, model, numbers, write_folder, write_tif

SHAPE = (30, 26)


def hole(kind, clear, cloud, shape=SHAPE):
    """A mask layer that hides rows 10 to 14 and columns 6 to 9."""
    layer = np.full((1, *shape), clear, dtype=kind)
    layer[:, 10:15, 6:10] = cloud
    return layer


def hidden(found):
    expected = np.zeros(SHAPE, dtype=bool)
    expected[10:15, 6:10] = True
    return np.array_equal(~found, expected)


@pytest.mark.parametrize(
    ("name", "clear", "cloud"),
    [
        ("SCL", (2, 4, 5, 6, 7, 11), (0, 1, 3, 8, 9, 10)),
        ("QA_PIXEL", (21824, 21952, 1 << 5), (1, 2, 4, 8, 16, 22280)),
        ("FMASK", (0, 1, 16, 32, 64, 192), (2, 4, 8, 255)),
        ("CLM", (0,), (1, 255)),
        ("CLP", (0, 101), (102, 255)),
    ],
)
def test_the_numbers_of_each_layer_mean_what_its_authors_say(name, clear, cloud):
    numbers = np.array([*clear, *cloud], dtype=np.uint16)
    assert RULES[name].hidden(numbers).tolist() == [False] * len(clear) + [True] * len(cloud)


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("T30UUU_20190424T110621_SCL_20m", "SCL"),
        ("LC08_L2SP_199026_20190424_20200825_02_T1_QA_PIXEL", "QA_PIXEL"),
        ("HLS.L30.T30UUU.2019114T105031.v2.0.Fmask", "FMASK"),
        ("qa_pixel", "QA_PIXEL"),
        ("B02", None),
        ("SR_QA_AEROSOL", None),
        ("SCLERA", None),
    ],
)
def test_layers_are_known_by_their_names(text, layer):
    assert layer_in(text) == layer


def test_areas_grow_by_as_many_pixels_as_asked():
    rng = np.random.default_rng(0)
    mask = rng.random((2, 11, 9)) > 0.95
    slow = np.zeros_like(mask)
    for step, row, col in np.argwhere(mask):
        slow[step, max(row - 3, 0) : row + 4, max(col - 3, 0) : col + 4] = True
    np.testing.assert_array_equal(grow(mask, 3), slow)
    np.testing.assert_array_equal(grow(mask, 0), mask)
    assert grow(mask, 50)[mask.any((1, 2))].all()


def write_cloudy(folder, places="beside"):
    """Dated images with a scene classification beside them, inside them, or named by its date alone."""
    images = numbers()
    if places == "inside":
        values = np.concatenate([images, np.stack([hole(np.uint16, 4, 9)] * 3)], axis=1)
        return write_folder(folder, values, names=(*BANDS, "SCL"))
    write_folder(folder, images)
    for day in DATES:
        name = f"S2_{day:%Y%m%d}_SCL.tif" if places == "beside" else f"SCL_{day:%Y-%m-%d}.tif"
        write_tif(folder / name, hole(np.uint8, 4, 9), names=())
    return folder


@pytest.mark.parametrize("places", ["beside", "inside", "dated"])
def test_a_mask_is_found_and_hides_the_clouds_of_every_date(tmp_path, places):
    series = open_series(write_cloudy(tmp_path, places))
    assert (series.bands, series.dates) == (BANDS, DATES)
    values, valid = series.read()
    assert all(hidden(one) for one in valid)
    assert (values[:, :, 10:15, 6:10] == 0).all()
    assert series.notes["mask"] == "SCL=0,1,3,8,9,10"
    assert open_series(tmp_path, ReadOptions(mask="none")).read()[1].all()


def test_a_mask_that_grows_is_the_same_in_every_window(tmp_path):
    series = open_series(write_cloudy(tmp_path), ReadOptions(dilate=3))
    whole = series.read()[1]
    assert (~whole[0]).sum() == 11 * 10
    for window in series.grid.blocks(8):
        np.testing.assert_array_equal(series.read(window)[1], whole[:, *window.slices])


def test_a_coarser_mask_is_brought_to_the_images_by_its_nearest_pixel(tmp_path):
    fine = grid((24, 24), transform=Affine(10, 0, 400_000, 0, -10, 5_000_000))
    coarse = grid((12, 12), transform=Affine(20, 0, 400_000, 0, -20, 5_000_000))
    write_tif(tmp_path / "S2_20190424.tif", numbers(1, shape=(24, 24))[0], fine)
    scl = np.full((1, 12, 12), 4, dtype=np.uint8)
    scl[:, 2:4, 5] = 8
    write_tif(tmp_path / "S2_20190424_SCL_20m.tif", scl, coarse, names=(), nodata=None)
    [valid] = open_series(tmp_path).read()[1]
    expected = np.ones((24, 24), dtype=bool)
    expected[4:8, 10:12] = False
    np.testing.assert_array_equal(valid, expected)


def test_the_user_says_which_values_of_which_layer_hide_the_ground(tmp_path, caplog):
    values = np.concatenate([numbers(), np.stack([hole(np.uint16, 0, 1 << 10)] * 3)], axis=1)
    files = write_folder(tmp_path, values, names=(*BANDS, "QA60"))
    assert open_series(files).read()[1].all()
    assert "layer QA60 looks like a mask and is not understood" in caplog.text
    assert looks_like_mask("QA60")
    assert not looks_like_mask("SCL")
    found = open_series(files, ReadOptions(mask="QA60=bit10,bit11"))
    assert all(hidden(one) for one in found.read()[1])
    with pytest.raises(InputError, match="has no layer CLM for --mask CLM=1"):
        open_series(files, ReadOptions(mask="CLM=1"))
    with pytest.raises(InputError, match="'x' is no value"):
        parse_rule("SCL=3,x")


def test_a_raster_of_the_user_hides_the_same_pixels_on_every_date(tmp_path):
    files = write_folder(tmp_path / "images")
    file = write_tif(tmp_path / "mine.tif", hole(np.uint8, 0, 7), names=(), nodata=None)
    series = open_series(files, ReadOptions(mask=str(file)))
    assert all(hidden(one) for one in series.read()[1])
    with pytest.raises(InputError, match="must be auto, none, a raster, or a layer"):
        open_series(files, ReadOptions(mask="clouds"))


def test_masks_of_a_cube_hide_alike_in_memory_and_lazily():
    images = dataset()
    scl = np.stack([hole(np.int16, 4, 9)[0]] * 3)
    cube = images.assign(SCL=(("time", "y", "x"), scl))
    assert all(hidden(one) for one in open_series(cube).read()[1])
    options = MapOptions(block=8, reading=ReadOptions(dilate=2))
    plain = segment(cube, model=model(), options=options)
    lazy = segment(cube.chunk({"y": 7}), model=model(), options=options)
    np.testing.assert_array_equal(plain, lazy.compute())
    assert (plain == 255).sum() == 9 * 8
    with pytest.raises(InputError, match="takes no mask file"):
        open_series(cube, ReadOptions(mask="mine.tif"))


def test_info_counts_what_is_masked_on_each_date(tmp_path, capsys):
    write_cloudy(tmp_path)
    write_tif(tmp_path / f"S2_{DATES[1]:%Y%m%d}_SCL.tif", hole(np.uint8, 4, 4), names=())
    assert run(["sits", "info", str(tmp_path), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    share = round(100 * 20 / (SHAPE[0] * SHAPE[1]), 1)
    assert [one["masked %"] for one in found["dates"]] == [share, 0, share]
    assert [one["valid %"] for one in found["dates"]] == [round(100 - share, 1), 100, round(100 - share, 1)]


def test_a_stac_item_brings_its_mask(tmp_path):
    write_tif(tmp_path / "b.tif", numbers(1, 1)[0], names=(), nodata=0)
    write_tif(tmp_path / "m.tif", hole(np.uint8, 4, 9), names=(), nodata=None)
    item = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": "S2A_30UUU_20190424_0_L2A",
        "properties": {"datetime": "2019-04-24T10:00:00Z"},
        "geometry": None,
        "links": [],
        "assets": {
            "red": {"href": "b.tif", "type": "image/tiff"},
            "scl": {"href": "m.tif", "type": "image/tiff"},
        },
    }
    (tmp_path / "item.json").write_text(json.dumps(item))
    [valid] = open_series(tmp_path / "item.json").read()[1]
    assert hidden(valid)
