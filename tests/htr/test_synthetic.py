import numpy as np

from htr.synthetic import draw_line, draw_page, sentence, synthetic_samples


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
