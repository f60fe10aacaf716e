import numpy as np
import pytest
from PIL import Image

from geomix.errors import InputError
from geomix.learn.folds import block_size, blocks, deal, draw_folds, summary


def units(count=120, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, count), rng.integers(0, 40, count), rng.uniform(0, 1000, (count, 2))


def test_a_group_never_lies_in_two_folds_and_each_class_is_dealt_out_evenly():
    labels, groups, _ = units()
    found = deal(labels, groups, 5)
    for group in np.unique(groups):
        assert len(np.unique(found[groups == group])) == 1
    for label in range(4):
        counts = np.bincount(found[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 4


def test_folds_do_not_depend_on_the_order_of_the_units():
    labels, groups, places = units()
    order = np.random.default_rng(1).permutation(len(labels))
    np.testing.assert_array_equal(deal(labels[order], groups[order], 5), deal(labels, groups, 5)[order])
    size = block_size(labels, places, 5)
    assert block_size(labels[order], places[order], 5) == size
    np.testing.assert_array_equal(blocks(places[order], size), blocks(places, size)[order])


def test_another_seed_deals_anew():
    labels, groups, _ = units()
    assert not np.array_equal(deal(labels, groups, 5, seed=0), deal(labels, groups, 5, seed=1))


def test_a_rare_class_is_dealt_out_too_and_no_fold_stays_empty():
    labels = np.r_[np.zeros(50, int), np.ones(3, int)]
    found = deal(labels, np.arange(53), 3)
    assert sorted(found[labels == 1]) == [0, 1, 2]
    assert sorted(deal(np.zeros(3, int), np.arange(3), 3)) == [0, 1, 2]


def test_too_few_groups_or_folds_are_refused():
    with pytest.raises(InputError, match="5 folds need at least 5 groups, got 2"):
        deal(np.zeros(9, int), np.arange(9) % 2, 5)
    with pytest.raises(InputError, match="at least 2 folds"):
        deal(np.zeros(9, int), np.arange(9), 1)


def test_blocks_lie_at_multiples_of_their_size():
    places = np.array([[99.0, 0], [101, 0], [199, 99], [-1, 0]])
    found = blocks(places, 100)
    assert found[1] == found[2]
    assert len(np.unique(found)) == 3
    assert len(np.unique(blocks(places, 0))) == 4


def test_the_block_is_the_largest_that_leaves_each_class_in_enough_of_them():
    # Two classes on a line of 16 places, 100 apart: five folds need five blocks with each of them.
    places = np.stack([100.0 * np.arange(16), np.zeros(16)], axis=1)
    labels = np.arange(16) % 2
    size = block_size(labels, places, 5)
    for label in (0, 1):
        assert len(np.unique(blocks(places, size)[labels == label])) >= 5
    larger = blocks(places, size * 2**0.5)
    assert min(len(np.unique(larger[labels == label])) for label in (0, 1)) < 5


def test_units_at_one_place_have_no_block():
    assert block_size(np.array([0, 0, 1, 1]), np.zeros((4, 2)), 2) == 0


def test_the_picture_shows_each_unit_in_the_colour_of_its_fold(tmp_path):
    places, folds = np.array([[0.0, 0], [10, 10]]), np.array([0, 1])
    picture = Image.open(draw_folds(places, folds, tmp_path / "folds.png", size=5))
    first, second = picture.getpixel((8, 792)), picture.getpixel((792, 8))
    assert len({first, second, (255, 255, 255)}) == 3


def test_the_summary_counts_units_by_class_and_fold():
    rows = summary(np.array([0, 0, 1]), np.array([0, 1, 1]), ["wheat", "maize"])
    assert rows == [("wheat", 1, 1), ("maize", 0, 1)]
