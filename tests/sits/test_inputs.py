"""What a model is fed: days, bands, normalisation."""

from datetime import date

import numpy as np
import pytest
from pydantic import ValidationError

from geomix.errors import InputError
from sits.data.inputs import Inputs, days_of, prepare

INPUTS = Inputs(bands=("B2", "B8"), mean=(0.1, 0.4), std=(0.05, 0.2))


def test_days_go_on_counting_over_new_year():
    dates = (date(2018, 9, 24), date(2019, 1, 17), date(2019, 10, 19))
    assert days_of(dates, INPUTS).tolist() == [23, 138, 413]
    assert days_of(dates[1:], INPUTS).tolist() == [138, 413]
    assert days_of(dates[2:], INPUTS).tolist() == [48]
    assert days_of(dates[2:], INPUTS, start=date(2018, 9, 1)).tolist() == [413]


def test_the_published_count_is_the_day_of_the_year():
    yearly = INPUTS.model_copy(update={"days": "year"})
    assert days_of((date(2020, 9, 24), date(2020, 12, 31)), yearly).tolist() == [268, 366]


@pytest.mark.parametrize("dates", [(), (date(2019, 2, 1), date(2019, 1, 1))])
def test_dates_must_be_there_and_in_order(dates):
    with pytest.raises(InputError):
        days_of(dates, INPUTS)


def test_valid_pixels_are_normalised_and_others_are_zero():
    values = np.full((1, 2, 1, 2), 0.2, dtype=np.float32)
    valid = np.array([[[True, False]]])
    prepared = prepare(values, valid, INPUTS)
    assert prepared.dtype == np.float32
    assert prepared[0, :, 0, 0] == pytest.approx([2, -1])
    assert prepared[0, :, 0, 1].tolist() == [0, 0]


def test_a_model_without_statistics_or_with_other_bands_is_refused():
    valid = np.ones((1, 1, 1), dtype=bool)
    with pytest.raises(InputError, match="no mean"):
        prepare(np.zeros((1, 2, 1, 1), np.float32), valid, Inputs(bands=("B2", "B8")))
    with pytest.raises(InputError, match="2 bands, got 3"):
        prepare(np.zeros((1, 3, 1, 1), np.float32), valid, INPUTS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bands": ("B2", "B2")},
        {"mean": (1.0,), "std": (1.0,)},
        {"season_start": "02-30"},
        {"season_start": "9"},
    ],
)
def test_contradictions_are_errors(wrong):
    with pytest.raises((ValidationError, InputError)):
        Inputs(**({"bands": ("B2", "B8")} | wrong))


def test_a_card_may_hold_more():
    assert Inputs.of_card({**INPUTS.model_dump(), "patch": 2}) == INPUTS
