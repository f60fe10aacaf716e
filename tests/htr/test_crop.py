import cv2
import numpy as np
import pytest

from geomix.errors import InputError
from htr.layout.crop import crop, cut, holds_several_lines, orient
from htr.page import Line
from tests.htr.making import page_of, paper, rectangle, scribble


def sample(slope=0.0):
    image, page = page_of([(40, 400, 120)], height=240, width=440, slope=slope)
    return image, page.lines[0]


def test_a_crop_has_the_height_asked_for_and_keeps_its_proportions():
    image, line = sample()
    strip = crop(image, line, 48)
    assert strip.shape == (48, 360 * 48 // 30)
    assert strip.dtype == np.uint8


def test_a_slanting_line_becomes_level():
    _, flat = sample()
    image, line = sample(slope=0.15)
    level, reference = cut(image, line, 30), cut(sample()[0], flat, 30)
    rows = [np.average(np.arange(30), weights=(255 - c.pixels).sum(axis=1)) for c in (level, reference)]
    assert abs(rows[0] - rows[1]) < 1.5
    halves = [(255.0 - part).sum(axis=1) for part in np.array_split(level.pixels, 2, axis=1)]
    middles = [np.average(np.arange(30), weights=np.maximum(half - half.min(), 0)) for half in halves]
    assert abs(middles[0] - middles[1]) < 2.5


def test_a_bent_line_becomes_straight():
    x = np.arange(20, 420)
    y = 100 + 18 * np.sin((x - 20) / 400 * np.pi)
    image = paper(200, 440)
    cv2.polylines(image, [np.stack([x, y], 1).astype(np.int32)], False, 30, 3)
    base = np.stack([x[::20], y[::20]], 1).astype(float)
    polygon = np.concatenate([base - np.array([0, 20]), base[::-1] + np.array([0, 10])])
    strip = crop(image, Line(id="a", baseline=base, polygon=polygon), 30)
    dark = strip.argmin(axis=0)[20:-20]
    assert np.ptp(dark) <= 4


def test_places_in_the_crop_come_back_to_the_page():
    image, line = sample(slope=0.15)
    found = cut(image, line, 60)
    scale = found.scale
    along = np.array([1.0, 0.15]) / np.hypot(1, 0.15)
    start = found.to_page(np.array([[0.0, 0.0]]))
    step = found.to_page(np.array([[100.0, 0.0]])) - start
    assert step[0] == pytest.approx(100 / scale * along, abs=0.6)
    box = found.boxes_to_page(np.array([[0.0, 0.0, float(found.pixels.shape[1]), 60.0]]))[0]
    x0, y0, x1, y1 = line.bounds()
    assert box == pytest.approx([x0, y0, x1, y1], abs=8)


def test_the_paper_outside_is_that_nearby():
    image = paper(120, 600)
    image[:, 300:] = np.minimum(image[:, 300:], 150)
    scribble(image, 20, 580, 70)
    polygon = np.array([[10, 60], [300, 40], [590, 60], [590, 80], [10, 80]], float)
    strip = crop(image, Line(id="a", baseline=np.array([[10, 70], [590, 70]], float), polygon=polygon), 40)
    left, right = int(strip[0, 20]), int(strip[0, -20])
    assert abs(left - 235) < 12
    assert abs(right - 150) < 12


def test_light_ink_on_dark_becomes_dark_ink():
    image, line = sample()
    strip = crop(255 - image, line, 40)
    assert np.median(strip) > 200
    assert strip.min() < 100


@pytest.mark.parametrize(
    ("baseline", "polygon", "first"),
    [
        ([[0, 50], [100, 50]], rectangle(0, 20, 100, 60), 0),
        ([[100, 50], [0, 50]], rectangle(0, 20, 100, 60), 0),
        ([[100, 50], [0, 50]], rectangle(0, 40, 100, 80), 100),
        ([[50, 100], [50, 0]], rectangle(20, 0, 60, 100), 50),
    ],
    ids=["upright", "drawn from the right", "upside down", "upwards"],
)
def test_which_way_a_baseline_runs(baseline, polygon, first):
    assert orient(np.array(baseline, float), polygon)[0, 0] == first


@pytest.mark.parametrize(
    "line",
    [
        Line(id="a"),
        Line(id="a", baseline=np.array([[5.0, 5.0]])),
        Line(id="a", baseline=np.array([[5.0, 5.0]] * 2), polygon=np.array([[1.0, 1.0], [2.0, 2.0]])),
        Line(id="a", polygon=rectangle(2000, 2000, 2100, 2030)),
    ],
    ids=["nothing", "one point", "no area", "outside"],
)
def test_what_cannot_be_cut_names_the_line(line):
    with pytest.raises(InputError, match="line a:"):
        crop(paper(50, 50), line, 40)


def test_a_line_half_outside_is_cut_with_paper_in_place_of_the_rest():
    image, line = sample()
    shifted = Line(id="a", baseline=line.baseline - [200, 0], polygon=line.polygon - [200, 0])
    assert crop(image, shifted, 40).shape[1] == crop(image, line, 40).shape[1]


def test_a_paragraph_is_told_from_a_line():
    image, _ = page_of([(20, 280, 40 + 36 * n) for n in range(6)], height=260, width=300)
    assert holds_several_lines(image)
    one, line = sample()
    assert not holds_several_lines(crop(one, line, 64))
    short, page = page_of([(20, 60, 40)], height=60, width=80)
    assert not holds_several_lines(crop(short, page.lines[0], 64))
    assert not holds_several_lines(paper(300, 300))
