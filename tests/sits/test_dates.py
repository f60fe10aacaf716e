from datetime import date, datetime
from pathlib import Path

import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from sits.dates import (
    date_in_name,
    date_in_tags,
    dates_in,
    days_since,
    parse_datetime,
    read_date_table,
    season_start,
    solar_day,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("S2_L1C_20150711", datetime(2015, 7, 11)),
        ("scene_2018-09-24_clip", datetime(2018, 9, 24)),
        ("2018_09_24", datetime(2018, 9, 24)),
        ("2015:07:11 10:00:08", datetime(2015, 7, 11, 10, 0, 8)),
        ("T31TCJ_20200101T105401_B02_10m", datetime(2020, 1, 1, 10, 54, 1)),
        ("MOD13Q1.A2016366.h12v10", datetime(2016, 12, 31)),
        ("L8_2018-02-29", None),
        ("tile_12345678", None),
        ("S2_20181301", None),
        ("MOD13Q1.A2015366", None),
        ("S2_201507112", None),
    ],
)
def test_a_date_is_read_as_names_write_it(text, expected):
    assert (dates_in(text) or [None])[0] == expected


def test_the_sensing_comes_before_the_processing():
    name = Path("S2A_MSIL2A_20200714T115221_N0214_R123_T28QCH_20200801T191310.tif")
    assert date_in_name(name) == datetime(2020, 7, 14, 11, 52, 21)


def test_a_folder_speaks_for_a_file_without_a_date():
    assert date_in_name(Path("/data/2019/20180924/B02.tif")) == datetime(2018, 9, 24)


def test_tags_are_read_whatever_their_case_but_not_the_time_of_writing():
    assert date_in_tags({"acquisition_date": "2018-09-24"}) == datetime(2018, 9, 24)
    assert date_in_tags({"TIFFTAG_DATETIME": "2018:09:24 00:00:00"}) is None


def test_times_with_a_zone_become_utc():
    assert parse_datetime("2018-09-24T23:30:00-02:00") == datetime(2018, 9, 25, 1, 30)
    with pytest.raises(InputError, match="write it like 2018-09-24"):
        parse_datetime("last week")


@pytest.mark.parametrize(
    "text",
    [
        "file,date\na.tif,2018-09-24\nb.tif,20180929\n",
        "a.tif,2018-09-24\nb.tif,2018-09-29\n",
        "Date;Path\n2018-09-24;a.tif\n2018-09-29;b.tif\n",
    ],
)
def test_a_table_gives_dates_with_and_without_header(tmp_path, text):
    table = tmp_path / "dates.csv"
    table.write_text(text)
    assert read_date_table(table) == {"a.tif": datetime(2018, 9, 24), "b.tif": datetime(2018, 9, 29)}


def test_a_bad_table_names_the_line(tmp_path):
    table = tmp_path / "dates.csv"
    table.write_text("a.tif,2018-09-24\nb.tif,soon\n")
    with pytest.raises(FormatError, match=r"dates\.csv:2: expected a file and a date"):
        read_date_table(table)
    table.write_text("scene,cloud\n")
    with pytest.raises(FormatError, match="must name the columns file and date"):
        read_date_table(table)
    with pytest.raises(MissingFileError):
        read_date_table(tmp_path / "none.csv")


def test_days_go_on_over_new_year():
    start = season_start(date(2018, 9, 24))
    assert start == date(2018, 9, 1)
    dates = [date(2018, 9, 24), date(2018, 12, 31), date(2019, 1, 1), date(2019, 9, 24)]
    assert days_since(dates, start) == [23, 121, 122, 388]


def test_a_season_begins_before_the_first_date():
    assert season_start(date(2019, 8, 31)) == date(2018, 9, 1)
    assert season_start(date(2019, 9, 1)) == date(2019, 9, 1)
    assert season_start(date(2019, 3, 1), "03-01") == date(2019, 3, 1)
    with pytest.raises(InputError, match="write it like 09-01"):
        season_start(date(2019, 3, 1), "1 March")


def test_the_sun_tells_the_day():
    late = datetime(2020, 7, 13, 22, 25)  # half past ten in the morning in New Zealand
    assert solar_day(late, 175.0) == date(2020, 7, 14)
    assert solar_day(datetime(2020, 7, 14, 11), 2.0) == date(2020, 7, 14)
