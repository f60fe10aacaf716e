from datetime import date

import numpy as np
import pytest

from geomix.errors import InputError
from sits.grid import Window
from sits.series import TimeSeries
from tests.sits.making import BANDS, DATES, grid, numbers, series


def test_a_window_is_cut_out():
    values, valid = series().read(Window(4, 2, 5, 6))
    assert values.shape == (3, 4, 5, 6)
    assert valid.shape == (3, 5, 6)
    np.testing.assert_array_equal(values, (numbers() * np.float32(1e-4))[:, :, 4:9, 2:8])


def test_dates_are_put_in_order():
    turned = series(numbers()[::-1], DATES[::-1])
    assert turned.dates == DATES
    np.testing.assert_array_equal(turned.read()[0], series().read()[0])


def test_bands_are_chosen_by_name():
    values, _ = series().select(["B8", "B2"]).read()
    np.testing.assert_array_equal(values, series().read()[0][:, [3, 0]])
    with pytest.raises(InputError, match="lacks band B12"):
        series().select(["B12"])


def test_a_period_is_cut_out():
    early = series().between(last=date(2019, 5, 2))
    assert early.dates == DATES[:2]
    late = early.between(first=date(2019, 4, 1))
    assert late.dates == DATES[1:2]
    np.testing.assert_array_equal(late.read()[0], series().read()[0][1:2])
    with pytest.raises(
        InputError, match="no date from the start to 2019-01-01; its dates run from 2019-03-10"
    ):
        series().between(last=date(2019, 1, 1))


def test_what_is_not_finite_has_no_data():
    values = numbers() * np.float32(1e-4)
    values[1, 2, 0, 0] = np.nan
    read, valid = TimeSeries.from_arrays(values, DATES, BANDS, grid()).read()
    assert not valid[1, 0, 0]
    assert valid.sum() == valid.size - 1
    assert (read[1, :, 0, 0] == 0).all()


@pytest.mark.parametrize(
    ("dates", "values", "message"),
    [
        ((), numbers()[:0], "has no dates"),
        ((DATES[0],) * 3, numbers(), "dates must rise"),
        (DATES[:2], numbers(), r"must be \[T, C, H, W\] = \(2, 4"),
    ],
)
def test_contradictions_are_refused(dates, values, message):
    with pytest.raises(InputError, match=message):
        TimeSeries.from_arrays(values.astype(np.float32), dates, BANDS, grid())
