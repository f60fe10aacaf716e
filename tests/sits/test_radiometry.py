import logging

import numpy as np
import pytest

from geomix.errors import InputError
from sits.io.options import ReadOptions
from sits.radiometry import (
    Evidence,
    Radiometry,
    baseline_in_name,
    baseline_number,
    decide_offset,
    guess_scale,
    level_in_name,
)


def test_dark_numbers_do_not_wrap_around():
    values, valid = Radiometry(1e-4, -1000.0, 0).decode(np.array([0, 64, 1000, 3000], dtype=np.uint16))
    np.testing.assert_allclose(values, [0, 0, 0, 0.2], atol=1e-7)
    assert valid.tolist() == [False, True, True, True]


def test_nodata_is_compared_before_the_cast():
    numbers = np.array([-1.7e308, 0.3, np.nan, np.inf])
    values, valid = Radiometry(1.0, nodata=-1.7e308).decode(numbers)
    assert valid.tolist() == [False, True, False, False]
    assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("dtype", "numbers", "valid"),
    [
        ("uint16", [65535, 65534, 0], [False, True, True]),
        ("int16", [-32768, 32767, -9999, -10000, -500], [False, False, False, False, True]),
        ("float32", [np.nan, -9999, -9998], [False, False, True]),
        ("uint8", [255, 0], [True, True]),
    ],
)
def test_usual_numbers_for_nothing_count_where_none_is_declared(dtype, numbers, valid):
    assert Radiometry(1.0).valid(np.array(numbers, dtype=dtype)).tolist() == valid


def test_a_declared_number_for_nothing_stands_alone():
    numbers = np.array([65535, 0, 7], dtype=np.uint16)
    assert Radiometry(1.0, nodata=0).valid(numbers).tolist() == [True, False, True]
    assert Radiometry(1.0, nodata=-9999).valid(numbers).all()


@pytest.mark.parametrize(
    ("evidence", "option", "offset", "reason"),
    [
        (Evidence(baseline="05.10"), "auto", -1000, "baseline 05.10"),
        (Evidence(baseline="04.00"), "auto", -1000, "baseline 04.00"),
        (Evidence(baseline="02.12"), "auto", 0, "baseline 02.12"),
        (Evidence(baseline="05.10", applied=True), "auto", 0, "applied upstream"),
        (Evidence(baseline="05.10", applied=False), "auto", -1000, "baseline"),
        (Evidence(baseline="05.10", offset=-1000.0, applied=True), "auto", 0, "applied upstream"),
        (Evidence(offset=-500.0), "auto", -500, "stated with the bands"),
        (Evidence(), "auto", 0, "nothing states a baseline"),
        (Evidence(baseline="05.10"), "none", 0, "as asked"),
        (Evidence(), -1000.0, -1000, "as asked"),
    ],
)
def test_the_offset_goes_by_what_is_stated(evidence, option, offset, reason):
    decided, words = decide_offset(evidence, option)
    assert decided == offset
    assert reason in words


def test_product_names_hold_baseline_and_level():
    name = "S2A_MSIL2A_20220714T115221_N0400_R123_T28QCH_20220714T191310.SAFE/B02.jp2"
    assert baseline_in_name(name) == "04.00"
    assert level_in_name(name) == "L2A"
    assert baseline_in_name("S2_20220714.tif") is None
    assert level_in_name("S2_L1C_20150711.tif") == "L1C"
    assert level_in_name("XL2AB.tif") is None
    assert baseline_number("N0510") == pytest.approx(5.1)
    with pytest.raises(InputError, match=r"05\.10"):
        baseline_number("new")


def test_a_guessed_scale_is_said_aloud(caplog):
    assert guess_scale(np.dtype("uint16"), None, "a.tif") == 1e-4
    assert guess_scale(np.dtype("float32"), 3000.0, "b.tif") == 1e-4
    assert guess_scale(np.dtype("float32"), 0.6, "c.tif") == 1.0
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "--scale" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "--scale must be above 0"),
        ({"offset": "some"}, "auto, none or a number"),
        ({"resample": "magic"}, "choose from nearest"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ReadOptions(**options)


def test_band_names_come_as_one_text():
    assert ReadOptions(bands="B2, B03,B8A").band_names == ("B2", "B03", "B8A")
