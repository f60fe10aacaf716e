"""When a scene was taken: dates in names, tags and tables, and days since the season began."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from geomix.errors import FormatError, InputError, MissingFileError

DEFAULT_SEASON = "09-01"
"""The first day of the season where nothing else is said, as in PASTIS."""

_YEAR = r"(?P<year>19[7-9]\d|20\d\d)"
_CALENDAR = re.compile(
    rf"(?<!\d){_YEAR}(?P<sep>[-_:.]?)(?P<month>0[1-9]|1[0-2])(?P=sep)(?P<day>0[1-9]|[12]\d|3[01])"
    r"(?:[T_ ]?(?P<hour>[01]\d|2[0-3])(?P<colon>:?)(?P<minute>[0-5]\d)(?P=colon)(?P<second>[0-5]\d)"
    r"(?!\d)|(?!\d))"
)
_DAY_OF_YEAR = re.compile(rf"(?<!\d){_YEAR}(?P<doy>[0-3]\d\d)(?!\d)")

# What writers of Sentinel-2, Landsat and general products call the time of acquisition.
_TAGS = (
    "ACQUISITION_DATE",
    "ACQUISITION_DATETIME",
    "ACQUISITIONDATETIME",
    "DATATAKE_1_DATATAKE_SENSING_START",
    "SENSING_TIME",
    "PRODUCT_START_TIME",
    "DATE_ACQUIRED",
    "DATETIME",
    "DATE",
    "TIME",
)
# Many writers put the time of writing here, so it is believed last and with a warning.
WRITTEN_TAG = "TIFFTAG_DATETIME"


def dates_in(text: str) -> list[datetime]:
    """All dates that stand in a text, in the order of their place; each with its time where there is one.

    Read are 20180924, 2018-09-24, 2018_09_24, 20180924T110621 and year with day of year (2018267).
    """
    found: list[tuple[int, datetime]] = []
    for match in _CALENDAR.finditer(text):
        moment = _calendar(match)
        if moment:
            found.append((match.start(), moment))
    for match in _DAY_OF_YEAR.finditer(text):
        day = datetime(int(match["year"]), 1, 1) + timedelta(days=int(match["doy"]) - 1)
        if day.year == int(match["year"]) and match["doy"] != "000":
            found.append((match.start(), day))
    return [moment for _, moment in sorted(found)]


def date_in_name(path: Path) -> datetime | None:
    """The acquisition date in a file's name, or else in the nearest folder's name that holds one.

    The first date of a name counts: products name the sensing before the processing.
    """
    for part in (path.stem, *(folder.name for folder in path.parents)):
        found = dates_in(part)
        if found:
            return found[0]
    return None


def date_in_tags(tags: Mapping[str, str]) -> datetime | None:
    """The acquisition date in a raster's tags, whatever their case; the tag of the writing time aside."""
    by_name = {name.upper(): value for name, value in tags.items()}
    for name in _TAGS:
        found = dates_in(by_name.get(name, ""))
        if found:
            return found[0]
    return None


def parse_datetime(text: str) -> datetime:
    """Read a date or a time as ISO 8601 writes it; a time with a zone is turned to UTC.

    Raises:
        InputError: if the text holds no date.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        found = dates_in(text)
        if not found:
            raise InputError(f"{text!r} is not a date; write it like 2018-09-24") from None
        moment = found[0]
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def read_date_table(path: Path) -> dict[str, datetime]:
    """Dates from a CSV of two columns, file and date, with or without a header line.

    Returns:
        The date of each file, by the name as it stands in the table.

    Raises:
        MissingFileError: if the table is not there.
        FormatError: if a line has no file or no date.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such table of dates")
    with path.open(newline="", encoding="utf-8-sig") as file:
        sample = file.read(4096)
        file.seek(0)
        delimiter = ";" if sample.count(";") > sample.count(",") else ","
        rows = [(number, row) for number, row in enumerate(csv.reader(file, delimiter=delimiter), 1) if row]
    table: dict[str, datetime] = {}
    name_column, date_column = 0, 1
    for position, (number, row) in enumerate(rows):
        if position == 0 and not any(dates_in(cell) for cell in row):
            name_column, date_column = _columns(path, row)
            continue
        try:
            table[row[name_column].strip()] = parse_datetime(row[date_column])
        except (IndexError, InputError) as error:
            raise FormatError(
                f"{path}:{number}: expected a file and a date like 2018-09-24, got {row}"
            ) from error
    return table


def season_start(first: date, season: str = DEFAULT_SEASON) -> date:
    """The day a season began: the last `season` (MM-DD) on or before the first date of a series.

    Raises:
        InputError: if `season` is not a day of the year.
    """
    match = re.fullmatch(r"(\d\d)-(\d\d)", season)
    try:
        if match is None:
            raise ValueError(season)
        start = date(first.year, int(match[1]), int(match[2]))
    except ValueError as error:
        raise InputError(f"season start {season!r} is not a day of the year; write it like 09-01") from error
    return start if start <= first else start.replace(year=first.year - 1)


def days_since(dates: Iterable[date], start: date) -> list[int]:
    """Days from `start` to each date; they go on counting over New Year, and into the next season."""
    return [(day - start).days for day in dates]


def solar_day(moment: datetime, longitude: float) -> date:
    """The day at that longitude (degrees east) by the sun, to which all scenes of one overpass belong."""
    return (moment + timedelta(hours=longitude / 15)).date()


def format_dates(dates: Sequence[date]) -> str:
    """Dates for a message or a tag, in ISO form, parted by spaces."""
    return " ".join(day.isoformat() for day in dates)


def _calendar(match: re.Match[str]) -> datetime | None:
    parts = [int(match[name]) for name in ("year", "month", "day")]
    if match["hour"]:
        parts += [int(match[name]) for name in ("hour", "minute", "second")]
    try:
        return datetime(*parts)  # type: ignore[arg-type]
    except ValueError:  # 31 June
        return None


def _columns(path: Path, header: list[str]) -> tuple[int, int]:
    names = [cell.strip().lower() for cell in header]
    files = [
        i for i, name in enumerate(names) if name in {"file", "filename", "name", "path", "image", "scene"}
    ]
    dates = [i for i, name in enumerate(names) if name in {"date", "datetime", "time", "acquired"}]
    if not files or not dates:
        raise FormatError(f"{path}:1: the header must name the columns file and date, got {header}")
    return files[0], dates[0]
