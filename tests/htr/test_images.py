import logging
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from geomix.errors import FormatError, InputError, MissingFileError
from htr.io.images import array_to_grey, read_image, read_images, to_grey
from tests.helpers import shared_data


def ramp(high, dtype, height=8, width=64):
    return np.tile(np.linspace(0, high, width), (height, 1)).astype(dtype)


def save(image, path, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "bmp"])
def test_every_format_gives_the_same_grey(tmp_path, suffix):
    options = {"lossless": True} if suffix == "webp" else {"quality": 100} if suffix == "jpg" else {}
    path = save(Image.fromarray(ramp(255, np.uint8)), tmp_path / f"page.{suffix}", **options)
    pixels = read_image(path).pixels
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - ramp(255, np.uint8)).max() <= 2


@pytest.mark.parametrize("mode", ["1", "P", "RGB", "L"])
def test_black_stays_black_and_white_stays_white(mode):
    image = Image.fromarray(np.array([[0, 255]], np.uint8)).convert(mode)
    assert to_grey(image).tolist() == [[0, 255]]


def test_a_palette_with_transparency_is_laid_on_white():
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 10, 10])
    image.putpixel((1, 0), 1)
    image.info["transparency"] = 0
    assert to_grey(image).tolist() == [[255, 10]]


def test_half_transparent_ink_is_half_dark():
    image = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert abs(int(to_grey(image)[0, 0]) - 127) <= 1


def test_float_pixels_from_0_to_1_are_scaled():
    assert to_grey(Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)))[0].tolist() == [0, 128, 255]


def test_twelve_bits_in_sixteen_fill_the_range():
    assert to_grey(Image.fromarray(ramp(4095, np.uint16)))[0, -1] == 255


def test_negative_floats_are_named_and_black(caplog):
    with caplog.at_level(logging.WARNING):
        grey = to_grey(Image.fromarray(np.array([[-1.0, 1.0]], np.float32)))
    assert grey.tolist() == [[0, 255]]
    assert "down to -1" in caplog.text


@pytest.mark.parametrize(
    "array",
    [
        np.full((4, 5), 255, np.uint8),
        np.full((4, 5, 1), 255, np.uint8),
        np.full((4, 5, 3), 255, np.uint8),
        np.full((4, 5, 4), 255, np.uint8),
        np.full((4, 5), 65535, np.uint16),
        np.ones((4, 5), bool),
        np.ones((4, 5, 3), np.float32),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_of_every_kind_become_grey(array):
    grey = array_to_grey(array)
    assert (grey.shape, grey.dtype, int(grey.min())) == ((4, 5), np.uint8, 255)


@pytest.mark.parametrize("shape", [(4,), (4, 5, 2), (0, 5), (1, 2, 3, 4)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(InputError, match="an image is"):
        array_to_grey(np.zeros(shape, np.uint8))


def test_a_missing_file_and_a_text_file_say_so(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.jpg: no such image"):
        read_image(tmp_path / "none.jpg")
    (tmp_path / "text.jpg").write_text("not an image")
    with pytest.raises(FormatError, match=r"text\.jpg: is not an image"):
        read_image(tmp_path / "text.jpg")


def test_a_pile_of_pages_is_refused_where_one_is_wanted(tmp_path):
    frames = [Image.new("L", (4, 4), level) for level in (0, 9)]
    frames[0].save(tmp_path / "two.tif", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="has 2 pages"):
        read_image(tmp_path / "two.tif")


def test_another_image_may_be_read_between_two_pages(tmp_path):
    frames = [Image.new("L", (4, 4), level) for level in (0, 9)]
    frames[0].save(tmp_path / "two.tif", save_all=True, append_images=frames[1:])
    levels = [
        (int(page.pixels[0, 0]), int(next(read_images(tmp_path / "two.tif")).pixels[0, 0]))
        for page in read_images(tmp_path / "two.tif")
    ]
    assert levels == [(0, 0), (9, 0)]


def test_pillow_s_own_limit_is_as_it_was(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    read_image(save(Image.new("L", (4, 4)), tmp_path / "a.png"))
    assert before == Image.MAX_IMAGE_PIXELS


def test_a_jpeg_over_the_limit_is_decoded_smaller(tmp_path, caplog):
    path = save(Image.fromarray(ramp(255, np.uint8, 400, 640)), tmp_path / "big.jpg")
    with caplog.at_level(logging.WARNING):
        page = read_image(path, max_pixels=100_000)
    assert (page.width, page.height) == (640, 400)
    assert page.pixels.shape == (200, 320)
    assert "1/2 of their size" in caplog.text


def test_an_animation_is_one_picture(tmp_path):
    frames = [Image.new("L", (4, 4), level) for level in (0, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif").frames == 1


def test_a_real_webp_page_opens():
    page = read_image(shared_data("htr/xml/arabic.webp"))
    assert page.pixels.std() > 5


def cmyk(colour):
    stream = BytesIO()
    Image.new("CMYK", (16, 16), colour).save(stream, format="JPEG", quality=95)
    return Image.open(BytesIO(stream.getvalue()))


def test_adobe_s_inverted_cmyk_jpeg_keeps_white_white():
    assert int(to_grey(cmyk((0, 0, 0, 0))).min()) > 245
    assert int(to_grey(cmyk((0, 0, 0, 255))).max()) < 40
