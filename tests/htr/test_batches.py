import numpy as np
import pytest
import torch

from htr.charset import Charset
from htr.data.augment import augment, hide, sway
from htr.data.batches import (
    TrainingLines,
    TrainingPages,
    collate,
    pad,
    padded_batches,
    runs_of_pages,
    unrolled,
)
from htr.data.inputs import Sample

CHARSET = Charset("abc")


def lines(widths, source="s"):
    rng = np.random.default_rng(0)
    return [
        Sample(
            f"{source}{n}", "p", source, "train", "abc"[n % 3], rng.integers(0, 255, (32, width), np.uint8)
        )
        for n, width in enumerate(widths)
    ]


def test_padding_is_zero_and_widths_are_kept():
    images, widths = pad([line.image for line in lines([10, 4])])
    assert images.shape == (2, 32, 10)
    assert widths.tolist() == [10, 4]
    assert not images[1, :, 4:].any()
    np.testing.assert_allclose(images[0].numpy() * 255, lines([10])[0].image, atol=1e-4)


def test_padded_batches_hold_every_line_once_and_no_more_columns_than_allowed():
    samples = lines([50, 400, 70, 60, 30, 900])
    batches = list(padded_batches(samples, columns=300))
    assert sorted(s.id for batch in batches for s in batch) == sorted(s.id for s in samples)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(s.image.shape[1] for s in batch) <= 300


def test_characters_that_the_model_does_not_know_are_no_labels():
    sample = Sample("a", "p", "s", "val", "a?b", np.zeros((32, 9), np.uint8))
    batch = collate([sample], CHARSET)
    assert batch.labels == [[1, 2]]
    assert batch.texts == ["a?b"]


def test_training_batches_have_one_width_and_need_no_padding():
    torch.manual_seed(0)
    data = TrainingLines(lines(range(40, 400, 10)), CHARSET, columns=1000)
    seen = []
    for batch in data:
        assert (batch.widths == batch.images.shape[2]).all()
        assert batch.images.shape[2] % 4 == 0
        assert batch.images.numel() / 32 < 1500
        seen += batch.names
    assert sorted(seen) == sorted(line.id for line in data.samples)
    assert abs(len(data) - len(list(data))) <= 2


def test_the_same_seed_gives_the_same_batches():
    data = TrainingLines(lines([60, 70, 80, 90]), CHARSET, columns=150)

    def draw(seed):
        torch.manual_seed(seed)
        return [batch.images for batch in data]

    assert all(torch.equal(left, right) for left, right in zip(draw(3), draw(3), strict=True))
    assert any(
        left.shape != right.shape or not torch.equal(left, right)
        for left, right in zip(draw(3), draw(4), strict=False)
    )


@pytest.mark.parametrize(
    ("weight", "least", "most"),
    [(0.0, 0, 0), (0.5, 60, 140), (1.0, 200, 200), (2.0, 400, 400), (2.5, 440, 560)],
)
def test_weights_say_how_often_a_set_is_seen(weight, least, most):
    data = TrainingLines(lines([40] * 200, "x") + lines([40] * 9, "y"), CHARSET, weights={"x": weight})
    chosen = [line for _, batch in data.plan(np.random.default_rng(0)) for line in batch]
    names = [data.samples[line].source for line in chosen]
    assert least <= names.count("x") <= most
    assert names.count("y") == 9


def test_without_changes_lines_only_settle_to_the_width_of_their_batch():
    torch.manual_seed(0)
    [line] = lines([40])
    [batch] = TrainingLines([line], CHARSET, changes=False)
    np.testing.assert_allclose(batch.images[0].numpy() * 255, line.image, atol=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_augmented_lines_keep_their_size_and_their_paper(seed):
    image = np.zeros((48, 200), np.uint8)
    image[20:30, 20:180] = 255
    changed = augment(image, 236, np.random.default_rng(seed))
    assert changed.shape == (48, 236)
    assert changed.dtype == np.uint8
    assert changed.max() > 100  # the ink is still there
    assert np.median(changed[:4]) < 30  # and the paper is paper


def test_splitting_deals_all_lines_out():
    batch = collate(lines([30, 20, 10]), CHARSET)
    parts = batch.split(2)
    assert [part.names for part in parts] == [["s0", "s2"], ["s1"]]
    assert len(batch.split(9)) == 3


def test_runs_of_a_page_are_neighbouring_lines_in_order():
    samples = [
        Sample(f"{page}{n}", page, "s", "train", "a", np.zeros((32, 9), np.uint8))
        for n in range(5)
        for page in "xy"
    ]
    runs = [[sample.id for sample in run] for run in runs_of_pages(samples, 3)]
    assert runs == [["x0", "x1", "x2"], ["x3", "x4"], ["y0", "y1", "y2"], ["y3", "y4"]]


def test_training_pages_hold_every_line_in_its_slot():
    torch.manual_seed(0)
    data = TrainingPages(lines([60, 50, 40, 70, 30]), CHARSET, lines=2, columns=200, changes=False)
    batches = list(data)
    assert len(batches) == len(data)
    assert sorted(name for batch in batches for name in batch.names) == ["s0", "s1", "s2", "s3", "s4"]
    images = {line.id: line.image for line in lines([60, 50, 40, 70, 30])}
    for batch in batches:
        for number, name in enumerate(batch.names):
            row, start, width = (
                int(part[number]) for part in (batch.slots.row, batch.slots.start, batch.slots.width)
            )
            drawn = batch.images[row, :, start : start + width].numpy() * 255
            np.testing.assert_allclose(drawn, images[name], atol=1e-3)


def test_pages_split_by_rows():
    samples = lines([60, 50, 40, 70])
    batch = unrolled(
        [samples[:2], samples[2:3], samples[3:]],
        [[s.image for s in part] for part in (samples[:2], samples[2:3], samples[3:])],
        CHARSET,
    )
    left, right = batch.split(2)
    assert left.names == ["s0", "s1", "s3"]
    assert left.slots.row.tolist() == [0, 0, 1]
    assert right.names == ["s2"]
    assert torch.equal(right.images, batch.images[1:2])


@pytest.mark.parametrize("width", [8, 40, 2000])
def test_hidden_strips_leave_most_of_a_line(width):
    line = np.full((32, width), 200, np.uint8)
    changed = [hide(line, np.random.default_rng(seed)) for seed in range(50)]
    left = [float((image == 200).mean()) for image in changed]
    assert all(set(np.unique(image)) <= {0, 200} for image in changed)
    assert np.mean(left) > 0.8
    assert 0.5 < min(left) < 1


def test_letters_sway_a_little_and_stay_in_their_order():
    line = np.zeros((32, 400), np.uint8)
    line[6:26, 20::40] = 255
    for seed in range(20):
        changed = sway(line, np.random.default_rng(seed))
        ink = changed[16].astype(float)
        places = [
            np.average(np.arange(start, start + 40), weights=ink[start : start + 40] + 1e-9)
            for start in range(0, 400, 40)
        ]
        assert np.abs(np.array(places) - np.arange(20, 400, 40)).max() < 10
        assert (changed != line).any()
