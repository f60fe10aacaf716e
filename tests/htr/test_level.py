import cv2
import numpy as np
import pytest

from htr.data.inputs import prepare
from htr.data.level import MAX_STRETCH, SPREAD, STROKES, find_level, find_stretch, straighten, unruled
from htr.synthetic import draw_line

TEXT = "Le jardin garde les fenêtres ouvertes"


def ink_of(size=30, slope=0.0, above=0, below=0):
    drawn = 255 - draw_line(TEXT, np.random.default_rng(3), size)
    drawn = np.where(drawn > 80, drawn, 0).astype(np.uint8)
    rise = round(abs(slope) * drawn.shape[1])
    padded = np.pad(drawn, ((above + rise, below + rise), (0, 0)))
    matrix = np.array([[1, 0, 0], [slope, 1, -slope * drawn.shape[1] / 2]], dtype=np.float64)
    return cv2.warpAffine(padded, matrix, padded.shape[::-1])


@pytest.mark.parametrize("slope", [-0.12, -0.05, 0.0, 0.03, 0.1])
def test_the_slope_of_a_line_is_found(slope):
    assert find_level(ink_of(slope=slope)).slope == pytest.approx(slope, abs=0.01)


def test_writing_comes_out_level_and_of_one_size_however_it_was_cut():
    plain = straighten(ink_of(), 48).astype(np.float64)
    for other in (
        ink_of(slope=0.08),
        ink_of(slope=-0.07),
        ink_of(above=20),
        ink_of(below=25),
        ink_of(size=45),
    ):
        level = find_level(straighten(other, 48))
        assert abs(level.slope) < 0.01
        assert level.middle == pytest.approx(find_level(plain.astype(np.uint8)).middle, abs=1.5)
        assert level.spread == pytest.approx(48 / SPREAD, rel=0.12)


def test_columns_stay_in_place():
    ink = ink_of(slope=0.1)
    level = straighten(ink, 48)
    columns = np.flatnonzero(ink.max(0) > 128)
    moved = np.flatnonzero(level.max(0) > 128)
    scale = level.shape[1] / ink.shape[1]
    assert moved[0] == pytest.approx(columns[0] * scale, abs=3)
    assert moved[-1] == pytest.approx(columns[-1] * scale, abs=3)


def test_dense_writing_is_widened_to_an_even_pace():
    # Upright strokes every 6 px, 2 px wide: two inked columns a stroke.
    bars = np.zeros((32, 600), np.uint8)
    bars[10:22, 3::6] = bars[10:22, 4::6] = 255
    assert find_stretch(bars) == MAX_STRETCH
    broad = cv2.resize(bars, (3000, 32), interpolation=cv2.INTER_NEAREST)  # ten inked columns a stroke
    assert find_stretch(broad) == pytest.approx(0.1 / STROKES, rel=1e-3)
    assert find_stretch(np.zeros((32, 300), np.uint8)) == 1.0


def test_narrow_and_wide_copies_of_a_line_come_out_alike():
    ink = ink_of()
    copies = [
        cv2.resize(ink, (round(share * ink.shape[1]), ink.shape[0]), interpolation=cv2.INTER_AREA)
        for share in (0.8, 0.6)
    ]
    wide, narrow = (straighten(image, 32).shape[1] for image in copies)
    assert wide == pytest.approx(narrow, rel=0.15)
    assert copies[0].shape[1] > 1.3 * copies[1].shape[1]


@pytest.mark.parametrize("slope", [0.0, 0.06])
@pytest.mark.parametrize("place", [0.62, 0.95])
def test_a_rule_under_the_writing_changes_neither_its_size_nor_its_place(slope, place):
    plain = ink_of(slope=slope, below=14)
    height, width = plain.shape
    ruled, row = plain.copy(), place * (height - 1)
    ends = [(x, round(row + slope * (x - width / 2))) for x in (0, width - 1)]
    cv2.line(ruled, *ends, 150, 2)
    left, right = straighten(plain, 48), straighten(ruled, 48)
    assert right.shape[1] == pytest.approx(left.shape[1], rel=0.05)
    right = cv2.resize(right, left.shape[::-1])
    assert np.corrcoef(left.ravel(), right.ravel())[0, 1] > 0.6  # the rule itself is still there
    assert unruled(plain) is plain


@pytest.mark.parametrize("rows", [slice(0, 3), slice(-3, None)], ids=["top", "bottom"])
def test_a_rule_at_the_edge_is_a_rule(rows):
    plain = ink_of(below=20, above=20)
    plain[rows] = 0
    ruled = plain.copy()
    ruled[rows] = 255
    kept = (unruled(ruled)[rows] > 0).any(0).mean()
    assert kept < 0.2


@pytest.mark.parametrize("margin", [0.6, 1.5, 4.0])
def test_a_wide_margin_changes_little(margin):
    line = draw_line(TEXT, np.random.default_rng(3), 60)
    space = round(margin * line.shape[0])
    wide = np.pad(line, ((space, space), (0, 0)), constant_values=int(np.median(line)))
    inputs = {"height": 32, "level": True}
    left, right = prepare(line, inputs), prepare(wide, inputs)
    assert right.shape[1] == pytest.approx(left.shape[1], rel=0.08)
    right = cv2.resize(right, left.shape[::-1])
    assert np.corrcoef(left.ravel(), right.ravel())[0, 1] > 0.85


def test_odd_ink_becomes_a_line_of_the_height():
    rng = np.random.default_rng(5)
    for _ in range(200):
        height, width = rng.integers(1, 70, 2)
        image = np.full((height, width * 4), 250, np.uint8)
        for _ in range(int(rng.integers(0, 4))):  # dots and dashes, many of them in one row
            row, left = rng.integers(height), rng.integers(width * 4)
            image[row, left : left + rng.integers(1, 60)] = rng.integers(0, 120)
        line = prepare(image, {"height": 32, "level": True})
        assert line.shape[0] == 32
        assert np.isfinite(line).all()


def test_nothing_but_a_rule_stays():
    rule = np.zeros((40, 300), np.uint8)
    rule[30:32] = 255
    assert unruled(rule) is rule


def test_a_short_line_is_taken_to_be_level():
    accent = np.zeros((64, 60), np.uint8)
    cv2.line(accent, (10, 40), (50, 34), 255, 3)
    assert abs(find_level(accent).slope) < 0.03


def test_an_empty_line_and_a_dash_keep_their_size():
    assert straighten(np.zeros((40, 200), np.uint8), 40).shape == (40, 200)
    dash = np.zeros((40, 200), np.uint8)
    dash[19:22, 20:180] = 255
    # The window is no lower than a fifth of the image, and a stroke is narrowed by no more than a tenth.
    assert straighten(dash, 40).shape == (40, 900)
    assert prepare(np.full((64, 300), 240, np.uint8), {"height": 32, "level": True}).max() == 0
