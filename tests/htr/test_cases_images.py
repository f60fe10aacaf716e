"""Cases of page images that other tools read wrongly; the list of all cases is in test_cases_layout."""

import builtins
import logging
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from geomix.cli import run
from geomix.errors import InputError, MissingPackageError
from htr.io.images import read_image, read_images, to_grey
from htr.predict.transcribe import transcribe_file
from tests.htr.making import column, fake_reader, page_of


def corner():
    """White with a black corner at the top left: it shows how an image was turned."""
    image = np.full((30, 50), 255, np.uint8)
    image[:10, :10] = 0
    return image


def with_exif(path, orientation):
    image = Image.fromarray(corner())
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(path, exif=exif, quality=95)
    return path


@pytest.mark.parametrize(("orientation", "dark"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
def test_case_11_the_page_is_turned_upright_as_its_exif_says(tmp_path, orientation, dark):
    page = read_image(with_exif(tmp_path / "p.jpg", orientation))
    assert page.pixels[dark] < 60
    assert (page.width, page.height) == ((50, 30) if orientation < 5 else (30, 50))
    assert page.pixels.shape == (page.height, page.width)


def test_case_11_xml_made_on_the_stored_image_keeps_it_as_stored(tmp_path, caplog):
    path = with_exif(tmp_path / "p.jpg", 6)
    with caplog.at_level(logging.WARNING):
        (page,) = read_images(path, stored_size=(50, 30))
    assert (page.width, page.height) == (50, 30)
    assert page.pixels[0, 0] < 60
    assert "EXIF rotation is left out" in caplog.text
    (page,) = read_images(path, stored_size=(30, 50))
    assert (page.width, page.height) == (30, 50)


@pytest.mark.parametrize("kind", ["I;16", "I;16B", "I", "F"])
def test_case_12_deep_grey_keeps_its_shades(tmp_path, kind):
    values = np.tile(np.linspace(0, 65535, 256), (4, 1))
    dtype = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4", "F": "<f4"}[kind]
    path = tmp_path / "deep.tif"
    if kind == "I;16B":
        Image.frombytes("I;16B", (256, 4), values.astype(dtype).tobytes()).save(path)
    else:
        Image.fromarray(values.astype(dtype)).save(path)
    pixels = read_image(path).pixels
    assert len(np.unique(pixels)) > 200
    assert np.abs(pixels[0].astype(int) - np.arange(256)).max() <= 1


def test_case_12_a_page_of_16_bits_is_read_like_one_of_8(tmp_path):
    image, _ = page_of(column(60, 540, 60, 9))
    Image.fromarray(image.astype(np.uint16) * 257).save(tmp_path / "p.png")
    (_, page), *_ = transcribe_file(tmp_path / "p.png", fake_reader)
    assert len(page.lines) == 9


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_case_13_what_is_transparent_is_white(tmp_path, mode):
    image = Image.new(mode, (8, 8), (0, 0, 0, 0) if mode == "RGBA" else (0, 0))
    image.putpixel((3, 3), (0, 0, 0, 255) if mode == "RGBA" else (0, 255))
    image.save(tmp_path / "p.png")
    pixels = read_image(tmp_path / "p.png").pixels
    assert pixels[0, 0] == 255
    assert pixels[3, 3] == 0


def test_case_14_cmyk_is_neither_black_nor_inverted(tmp_path):
    image = Image.new("CMYK", (32, 16), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 16, 16))
    image.save(tmp_path / "p.tif")
    stream = BytesIO()
    image.save(stream, format="JPEG", quality=95)  # Pillow writes the marker of Adobe and inverted values
    for pixels in (read_image(tmp_path / "p.tif").pixels, to_grey(Image.open(BytesIO(stream.getvalue())))):
        assert pixels[:, :12].max() < 60
        assert pixels[:, 20:].min() > 230


def test_case_15_a_huge_scan_is_refused_with_its_name_and_the_way_out(tmp_path):
    Image.new("1", (3000, 2000)).save(tmp_path / "huge.png")
    message = r"huge\.png: 3000 x 2000 pixels are 6,000,000 in all, over the limit of 1,000,000.*--max-pixels"
    with pytest.raises(InputError, match=message):
        read_image(tmp_path / "huge.png", max_pixels=1_000_000)
    assert read_image(tmp_path / "huge.png", max_pixels=6_000_000).width == 3000


def test_case_15_pillow_s_limit_does_not_stand_in_the_way(tmp_path, monkeypatch):
    Image.new("L", (300, 200), 255).save(tmp_path / "p.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read_image(tmp_path / "p.png").width == 300


def test_case_16_a_truncated_page_is_reported_and_the_batch_goes_on(tmp_path, capsys):
    image, _ = page_of(column(60, 540, 60, 9))
    for name in "abc":
        Image.fromarray(image).save(tmp_path / f"{name}.jpg")
    data = (tmp_path / "b.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(data[: len(data) // 2])
    pages = [str(tmp_path / f"{name}.jpg") for name in "abc"]
    code = run(["htr", "lines", *pages, "-o", str(tmp_path / "out"), "--no-preview"])
    errors = capsys.readouterr().err
    assert code == 1
    assert "b.jpg: damaged or truncated image" in errors
    assert "1 of 3 inputs failed" in errors
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.xml", "c.xml"]


def test_case_17_every_page_of_a_tiff_is_read_and_named(tmp_path):
    frames = [Image.fromarray(page_of(column(60, 540, 60, n))[0]) for n in (6, 8)]
    frames[0].save(tmp_path / "book.tif", save_all=True, append_images=frames[1:])
    pages = list(transcribe_file(tmp_path / "book.tif", fake_reader))
    assert [image.name for image, _ in pages] == ["book_0001", "book_0002"]
    assert [len(page.lines) for _, page in pages] == [6, 8]
    assert [page.frame for _, page in pages] == [0, 1]


def test_case_18_a_pdf_is_read_page_by_page(tmp_path):
    pytest.importorskip("pypdfium2")
    frames = [Image.fromarray(page_of(column(60, 540, 60, n))[0]) for n in (6, 8)]
    frames[0].save(tmp_path / "book.pdf", save_all=True, append_images=frames[1:], resolution=300)
    pages = list(read_images(tmp_path / "book.pdf"))
    assert [image.name for image in pages] == ["book_0001", "book_0002"]
    assert pages[0].pixels.shape == pytest.approx((420, 600), abs=2)
    with pytest.raises(InputError, match=r"book\.pdf: page 1 is"):
        next(read_images(tmp_path / "book.pdf", max_pixels=1000))


def test_case_18_without_its_reader_a_pdf_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "book.pdf").write_bytes(b"%PDF-1.4\n")
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pypdfium2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackageError, match=r"book\.pdf.*geomix\[pdf\]"):
        next(read_images(tmp_path / "book.pdf"))
