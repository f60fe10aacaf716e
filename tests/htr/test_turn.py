"""Pages on their side and upside down are read the right way up, in the pixels of their file."""

import numpy as np
import pytest

from htr.io.images import PageImage
from htr.io.pages import read_lines
from htr.io.pagexml import page_xml
from htr.layout.score import match_lines
from htr.layout.sheet import as_sheet
from htr.predict.turn import GARBAGE, read_sheet
from tests.htr.making import as_page, column, page_of, said

ROWS = column(60, 540, 60, 9)


def reader_of_upright(images):
    """Reads well where the darkest row of a line is in its lower half, as the strokes of these tests are."""
    return [said("words of a line", strip.shape[1], 0.9 if _stands(strip) else 0.4) for strip in images]


def _stands(strip):
    return strip[:, 4:-4].mean(axis=1).argmin() > 0.5 * len(strip)


def marked(quarter):
    """A page with a heavy stroke under each line, turned by quarters against the clock."""
    image, truth = page_of(ROWS)
    for x0, x1, y in ROWS:
        image[y - 2 : y + 1, x0:x1] = np.minimum(image[y - 2 : y + 1, x0:x1], 120)
    return np.ascontiguousarray(np.rot90(image, -quarter)), truth


@pytest.mark.parametrize(("quarter", "orientation"), [(0, 0), (1, -90), (2, 180), (3, 90)])
def test_a_page_is_read_the_right_way_up_wherever_its_top_is(tmp_path, quarter, orientation):
    image, truth = marked(quarter)
    page = read_sheet(as_sheet(as_page(image)), reader_of_upright)
    assert page.orientation == orientation
    assert (page.width, page.height) == image.shape[::-1]
    assert [line.confidence for line in page.lines] == [0.9] * 9
    upright = np.rot90(image, quarter)
    assert upright.shape == (truth.height, truth.width)
    for line in page.lines:
        # The baseline lies on the stroke, wherever that is in the file, and runs as the letters do.
        x, y = np.rint(line.baseline.mean(axis=0)).astype(int)
        assert image[max(y - 4, 0) : y + 5, max(x - 4, 0) : x + 5].min() < 140
        assert (line.char_boxes[:, 2:] >= line.char_boxes[:, :2]).all()
    run = page.lines[0].baseline[-1] - page.lines[0].baseline[0]
    expected = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}[quarter]
    assert np.allclose(run / np.linalg.norm(run), expected, atol=0.05)
    (tmp_path / "p.xml").write_bytes(page_xml(page))
    assert len(read_lines(tmp_path / "p.xml").lines) == 9
    assert (b'orientation="' in page_xml(page)) == bool(quarter)


def test_a_page_reduced_on_reading_is_turned_back_to_the_size_of_its_file():
    image, _ = marked(2)
    large = PageImage(image, 2 * image.shape[1], 2 * image.shape[0], "p.png", 0, 1)
    small = read_sheet(as_sheet(as_page(image)), reader_of_upright)
    page = read_sheet(as_sheet(large), reader_of_upright)
    assert (page.width, page.height) == (1200, 840)
    assert match_lines(page.lines, small.scaled(2, 2, 1200, 840).lines).f1 == 1.0


def test_a_page_that_no_turn_makes_readable_gets_a_warning(caplog):
    image, _ = page_of(ROWS)
    page = read_sheet(
        as_sheet(as_page(image)), lambda images: [said("x", i.shape[1], GARBAGE - 0.1) for i in images]
    )
    assert page.orientation == 0
    assert "its text is most likely wrong" in caplog.text


def test_a_page_that_is_read_well_is_not_tried_again():
    image, _ = page_of(ROWS)
    calls = []

    def reader(images):
        calls.append(len(images))
        return [said("x", strip.shape[1], 0.9) for strip in images]

    read_sheet(as_sheet(as_page(image)), reader)
    assert calls == [9]
