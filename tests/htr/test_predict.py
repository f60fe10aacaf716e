import logging
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import htr
from geomix.errors import InputError, MissingFileError
from htr.io.options import PageOptions
from htr.io.pages import read_lines, write
from htr.io.preview import preview, write_preview
from htr.page import Line, Page
from htr.predict import pages as predict
from htr.predict.pages import default_model, find_page, model_reader, read_page
from htr.predict.transcribe import transcribe_file
from tests.htr.making import as_page, column, fake_reader, page_of, rectangle, tiny_model

ROWS = column(60, 540, 60, 9)


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "tiny.safetensors")


@pytest.mark.parametrize("kind", ["path", "array", "colour", "pillow", "page image"])
def test_a_page_may_come_in_any_form(tmp_path, model, kind):
    image, _ = page_of(ROWS)
    path = tmp_path / "p.png"
    Image.fromarray(image).save(path)
    given = {
        "path": path,
        "array": image,
        "colour": np.stack([image] * 3, axis=-1),
        "pillow": Image.fromarray(image),
        "page image": as_page(image),
    }[kind]
    page = htr.transcribe(given, model)
    assert (page.width, page.height, len(page.lines)) == (600, 420, 9)
    assert all(line.text is not None for line in page.lines)
    assert [line.id for line in page.lines[:2]] == ["line_0001", "line_0002"]


def test_the_same_page_gives_the_same_result(model):
    image, _ = page_of(ROWS)
    first, second = (htr.transcribe(image, model) for _ in range(2))
    assert [line.text for line in first.lines] == [line.text for line in second.lines]
    assert [line.confidence for line in first.lines] == [line.confidence for line in second.lines]


@pytest.mark.parametrize("kind", ["page", "alto", "json"])
def test_given_lines_are_used_as_they_are(tmp_path, model, kind):
    image, truth = page_of(ROWS)
    lines = tuple(reversed(truth.lines[2:5]))
    given = replace(truth, lines=lines)
    write(given, tmp_path / f"p.{'json' if kind == 'json' else 'xml'}", kind)
    page = htr.transcribe(image, model, lines=next(tmp_path.glob("p.*")))
    assert [line.id for line in page.lines] == [line.id for line in lines]
    for read, line in zip(page.lines, lines, strict=True):
        assert read.baseline.tolist() == line.baseline.tolist()
        assert read.polygon.tolist() == line.polygon.tolist()


def test_places_of_characters_stay_on_the_page():
    image, truth = page_of([(2, 590, 12)], height=60, width=600)
    higher = truth.lines[0].polygon + np.array([[-20, -15], [20, -15], [20, 60], [-20, 60]])
    high = replace(truth.lines[0], polygon=higher)
    page = read_page(as_page(image), fake_reader, replace(truth, lines=(high,)))
    boxes = page.lines[0].char_boxes
    assert len(boxes)
    assert boxes.min() >= 0
    assert (boxes[:, 2] <= 600).all()
    assert (boxes[:, 3] <= 60).all()


@pytest.mark.parametrize("image", [None, [1, 2], b"x"], ids=["none", "list", "bytes"])
def test_what_is_no_image_is_refused(model, image):
    with pytest.raises(InputError, match="an image is a path, a Pillow image or an array"):
        htr.transcribe(image, model)


def test_given_lines_can_be_put_in_order_by_columns():
    image, truth = page_of(ROWS)
    given = replace(truth, lines=truth.lines[::-1])
    kept = find_page(as_page(image), given)
    sorted_again = find_page(as_page(image), given, PageOptions(order="columns"))
    assert [line.id for line in kept.lines] == [f"l{n}" for n in range(8, -1, -1)]
    assert [line.id for line in sorted_again.lines] == [f"l{n}" for n in range(9)]


def test_lines_of_another_size_are_scaled_and_those_of_another_shape_refused(caplog):
    image, truth = page_of(ROWS)
    with caplog.at_level(logging.WARNING):
        page = find_page(as_page(image), truth.scaled(2, 2, 1200, 840))
    assert page.lines[0].polygon == pytest.approx(truth.lines[0].polygon)
    assert "coordinates are scaled" in caplog.text
    with pytest.raises(InputError, match="describes an image of 500 x 420"):
        find_page(as_page(image), replace(truth, width=500))


def test_lines_whose_file_gives_no_size_are_those_of_the_image(tmp_path):
    (tmp_path / "p.xml").write_text(
        '<PcGts><Page imageFilename="i" imageWidth="0" imageHeight="0"><TextRegion id="r"><TextLine id="l">'
        '<Coords points="50,40 540,40 540,70 50,70"/></TextLine></TextRegion></Page></PcGts>'
    )
    given = read_lines(tmp_path / "p.xml")
    assert not given.size_known
    page = find_page(as_page(page_of(ROWS)[0]), given)
    assert (page.width, page.height) == (600, 420)
    assert page.lines[0].bounds() == (50, 40, 540, 70)


def test_a_reduced_scan_keeps_the_coordinates_of_the_file(tmp_path):
    image, truth = page_of(ROWS)
    large = image.repeat(2, axis=0).repeat(2, axis=1)
    Image.fromarray(large).save(tmp_path / "p.jpg", quality=95)
    options = PageOptions(max_pixels=400_000)
    (picture, page), *_ = transcribe_file(tmp_path / "p.jpg", fake_reader, options=options)
    assert picture.pixels.shape == (420, 600)
    assert (page.width, page.height) == (1200, 840)
    assert page.lines[0].baseline[0, 1] == pytest.approx(2 * truth.lines[0].baseline[0, 1], abs=8)
    boxes = page.lines[0].char_boxes
    assert boxes[-1, 2] == pytest.approx(page.lines[0].bounds()[2], abs=8)


def test_lines_for_a_pile_of_pages_are_refused(tmp_path, model):
    image, truth = page_of(ROWS)
    frames = [Image.fromarray(image)] * 2
    frames[0].save(tmp_path / "two.tif", save_all=True, append_images=frames[1:])
    write(truth, tmp_path / "two.xml", "page")
    with pytest.raises(InputError, match=r"has 2 pages, but .*two\.xml describes one"):
        list(transcribe_file(tmp_path / "two.tif", fake_reader, lines=tmp_path / "two.xml"))
    with pytest.raises(InputError, match="has 2 pages"):
        htr.transcribe(tmp_path / "two.tif", model)


def test_a_line_without_text_has_no_confidence(model):
    image, page = page_of(ROWS[:1])
    read = read_page(as_page(image), lambda images: [*fake_reader(images[:0]), *empty(images)], page)
    assert read.lines[0].text == ""
    assert read.lines[0].confidence is None
    assert read.lines[0].char_boxes.shape == (0, 4)


def empty(images):
    from htr.predict.lines import Transcription

    return [Transcription("", 1.0, ()) for _ in images]


def test_without_a_bundled_model_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(predict, "bundled_models", lambda domain: [])
    with pytest.raises(MissingFileError, match="--model FILE"):
        default_model()
    monkeypatch.setattr(
        predict, "bundled_models", lambda domain: [("other", None), (predict.DEFAULT_MODEL, None)]
    )
    assert default_model() == predict.DEFAULT_MODEL


def test_a_model_reads_all_lines_of_a_page_at_once(model):
    from geomix.checkpoint import load_model

    image, page = page_of(ROWS)
    read = read_page(as_page(image), model_reader(load_model(model)), page)
    assert all(set(line.text) <= set("abc ") for line in read.lines)
    for line in read.lines:
        assert len(line.char_confidences) == len(line.char_boxes) == len(line.text)


def test_the_preview_shows_lines_and_numbers(tmp_path):
    image, page = page_of(ROWS)
    lines = (
        replace(page.lines[0], confidence=0.2),
        replace(page.lines[1], error="x"),
        *page.lines[2:],
        Line(id="?"),
    )
    picture = np.asarray(preview(image, replace(page, lines=lines)))
    assert picture.shape == (420, 600, 3)
    blue = (picture == (30, 60, 220)).all(axis=2)
    assert blue[60, 100:500].mean() > 0.9
    red = (picture == (210, 40, 30)).all(axis=2)
    green = (picture == (0, 130, 60)).all(axis=2)
    assert red[:130].any()
    assert green[130:].any()
    write_preview(image, page, tmp_path / "o.png")
    with Image.open(tmp_path / "o.png") as written:
        assert written.size == (600, 420)
    large = preview(np.full((3000, 4000), 255, np.uint8), Page(width=8000, height=6000))
    assert large.size == (2000, 1500)


def test_a_page_given_as_a_value_needs_no_file(model):
    image, _ = page_of(ROWS)
    line = Line(id="mine", polygon=rectangle(50, 35, 550, 70))
    page = htr.transcribe(image, model, lines=Page(width=600, height=420, lines=(line,)))
    assert [found.id for found in page.lines] == ["mine"]
