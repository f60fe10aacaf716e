import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from htr.data.sources import selection_pages
from htr.data.tars import read_tar, write_tar
from htr.synthetic import (
    FONT,
    draw_line,
    draw_page,
    find_fonts,
    font_lines,
    fonts,
    sentence,
    synthetic_samples,
)


def test_the_same_seed_writes_the_same_line():
    left, right = (draw_line("Été à Québec", np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(left, right)
    assert left.dtype == np.uint8
    assert left.min() < 110
    assert np.median(left) > 200


def test_more_text_is_wider_and_the_font_has_the_letters_of_french():
    rng = np.random.default_rng(0)
    assert draw_line("été été", rng).shape[1] > draw_line("été", rng).shape[1]
    boxes = draw_line("\uffff", np.random.default_rng(1), 40)
    for char in "àâçéèêëîïôùûüœÉÀ’«»°":
        drawn = draw_line(char, np.random.default_rng(1), 40)
        assert drawn.shape != boxes.shape or not np.array_equal(drawn, boxes), char


def test_a_page_says_where_its_lines_are():
    rng = np.random.default_rng(2)
    texts = [sentence(rng) for _ in range(5)]
    image, page = draw_page(texts, rng)
    assert image.shape == (page.height, page.width)
    assert [line.text for line in page.lines] == texts
    for line in page.lines:
        x0, y0, x1, y1 = (round(edge) for edge in line.bounds())
        base = round(float(line.baseline[0, 1]))
        inside = image[y0:y1, x0:x1] < 150
        assert inside.any(axis=0).mean() > 0.3  # ink all along
        assert y0 < base < y1
        above, below = image[base - 12 : base, x0:x1] < 150, image[base + 6 : y1, x0:x1] < 150
        assert above.mean() > 2 * below.mean()  # letters stand on the baseline
    tops = [line.bounds()[1] for line in page.lines]
    assert tops == sorted(tops)


def test_an_empty_page_is_paper():
    image, page = draw_page([], np.random.default_rng(0))
    assert page.lines == ()
    assert image.min() > 180


def test_samples_have_texts_and_both_splits():
    samples = synthetic_samples(60)
    assert {sample.split for sample in samples} == {"train", "val"}
    assert len({sample.id for sample in samples}) == 60
    assert all(sample.text for sample in samples)


def test_lines_of_fonts_come_back_from_their_tar(tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "SWASH", 9.0)
    texts = ["Été à Québec", "un >vieux< livre", "  "]
    lines = list(font_lines(texts, [FONT], 30, capitals=0.5, seed=3))
    words = {"Été à Québec", "ÉTÉ À QUÉBEC", "un vieux livre", "UN VIEUX LIVRE"}
    assert {line.text for line in lines} == words
    assert {line.split for line in lines} == {"train"}
    assert not selection_pages(lines * 20)  # drawn lines never choose a checkpoint
    assert write_tar(lines, tmp_path / "fonts.tar") == 30
    for read, line in zip(read_tar(tmp_path / "fonts.tar"), lines, strict=True):
        assert (read.id, read.text, read.source) == (line.id, line.text, "fonts")
        assert np.abs(read.image.astype(int) - line.image).mean() < 6


def test_the_share_of_capitals_is_kept(monkeypatch):
    assert fonts.overhang(FONT) > fonts.SWASH  # these capitals tangle
    assert {line.text for line in font_lines(["un a"], [FONT], 9, capitals=1.0)} == {"un a"}
    monkeypatch.setattr(fonts, "SWASH", 9.0)
    drawn = [line.text for line in font_lines(["un a"], [FONT], 200, capitals=0.3)]
    assert 40 < drawn.count("UN A") < 80
    monkeypatch.setattr(fonts, "unicase", lambda _: True)
    assert {line.text for line in font_lines(["un a"], [FONT], 9, capitals=0.0)} == {"UN A"}


def test_small_letters_in_the_form_of_capitals_are_noticed(monkeypatch):
    assert not fonts.unicase(FONT)
    form = fonts._form
    monkeypatch.setattr(fonts, "_form", lambda font, char: form(font, char.upper()))
    assert fonts.unicase.__wrapped__(FONT)


def test_a_text_that_the_font_cannot_write_is_not_drawn():
    assert {line.text for line in font_lines(["été", "été 漢字"], [FONT], 9, capitals=0)} == {"été"}
    with pytest.raises(InputError, match=r"no font can write any of the texts: caveat\.woff \(lacks 字漢\)"):
        list(font_lines(["漢字"], [FONT], 1))


def test_long_texts_become_several_lines():
    texts = {line.text for line in font_lines(["mot " * 400], [FONT], 9, capitals=0)}
    assert texts == {" ".join(["mot"] * 20)}


@pytest.mark.parametrize(
    ("texts", "count", "share", "seed"),
    [([], 1, 0.2, 0), (["  "], 1, 0.2, 0), (["a"], 0, 0.2, 0), (["a"], 1, 1.5, 0), (["a"], 1, 0.2, -1)],
)
def test_lines_of_fonts_need_sense(texts, count, share, seed):
    with pytest.raises(InputError):
        list(font_lines(texts, [FONT], count, capitals=share, seed=seed))


def test_fonts_are_found_in_folders_and_must_be_fonts(tmp_path):
    (tmp_path / "b.woff").write_bytes(FONT.read_bytes())
    (tmp_path / "a.ttf").write_bytes(b"no font")
    (tmp_path / "licence.txt").write_text("")
    assert [font.name for font in find_fonts([tmp_path])] == ["a.ttf", "b.woff"]
    with pytest.raises(FormatError, match="not a font"):
        list(font_lines(["a"], [tmp_path / "a.ttf"], 1))
    with pytest.raises(MissingFileError):
        find_fonts([tmp_path / "c.otf"])
    with pytest.raises(InputError, match="no font in"):
        find_fonts([tmp_path / "licence.txt"])
