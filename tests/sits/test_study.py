"""The tables of the studies, by hand, and the rivals that they train."""

import pytest

from geomix.config import load_config
from sits import study
from sits.model import TSViPoM
from sits.task import SitsConfig

LARGE, SMALL = 200, 10


def result(method, split, seed, right):
    """Two large classes, of which `right` pixels each are found, and a small one that is always wrong."""
    wrong = LARGE - right
    return study.Result(method, split, seed, [[right, wrong, 0], [wrong, right, 0], [SMALL, 0, 0]])


def test_small_classes_do_not_enter_the_mean_iou_of_the_scene():
    results = [result("a", "top", 0, 100), result("a", "top", 1, 150), result("a", "left", 0, 200)]
    lines = {(line.split, line.method): line for line in study.table("eolearn", results)}
    top = lines["top", "a"]
    assert top.runs == 2
    assert top.oa == pytest.approx((200 + 300) / 2 / 410)
    iou = [(100 / 310 + 100 / 300) / 2, (150 / 260 + 150 / 250) / 2]
    assert top.other == pytest.approx(sum(iou) / 2)
    assert top.other_spread == pytest.approx((iou[1] - iou[0]) / 2)
    assert lines["all", "a"].runs == 3


def test_folds_of_parcels_are_pooled_before_they_are_scored():
    results = [
        study.Result("a", fold, 0, [[hits, 4 - hits], [0, 4]], {"2023-06": [[1, 0], [0, hits]]})
        for fold, hits in (("fold1", 4), ("fold2", 0))
    ]
    [line] = study.table("parcels", results)
    assert (line.runs, line.oa) == (1, pytest.approx(12 / 16))
    assert line.other == pytest.approx((2 * 4 / (8 + 4) + 2 * 8 / (8 + 12)) / 2)
    assert study.months(results) == [("2023-06", "a", 1.0, 1.0)]


@pytest.mark.parametrize("name", ["eolearn", "parcels"])
def test_the_rival_with_attention_has_the_same_size(name):
    config = load_config(name, "sits", SitsConfig)
    ours, theirs = (
        sum(weight.numel() for weight in TSViPoM(one.model).parameters())
        for one in (config, study.tsvit_of(config))
    )
    assert theirs == pytest.approx(ours, rel=0.05)


@pytest.mark.parametrize("mixer", study.MIXERS)
def test_every_mixer_fits_into_the_model_of_the_scene(mixer):
    config = study.mixer_of(load_config("eolearn", "sits", SitsConfig), mixer)
    TSViPoM(config.model)
