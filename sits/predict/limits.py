"""Where a model may be trusted: warnings for series outside of what its card says it has seen."""

import logging
from collections.abc import Sequence
from datetime import date
from typing import Any

from rasterio.warp import transform_bounds

from geomix.checkpoint import Card
from sits.data.inputs import Inputs
from sits.dates import days_since, season_start
from sits.series import TimeSeries

log = logging.getLogger(__name__)

_SLACK = 20
"""Days by which a season may begin or end outside the learned one without a word."""
_NEAR_SEASON = 31


def warn_outside(card: Card, inputs: Inputs, series: TimeSeries, start: date | None = None) -> list[str]:
    """Warn of everything in which a series lies outside the limits of a model; returns the warnings.

    Days count from `start`, or from the season that the first date suggests.
    """
    limits = card.limits
    warnings = [
        *_level(limits, inputs, series),
        *_season(limits, inputs, series.dates, start),
        *_place(limits, series),
        *(_start(inputs, series.dates) if start is None else ()),
    ]
    for text in warnings:
        log.warning("model %s: %s", card.name, text)
    said = ", ".join(f"{key} {_words(value)}" for key, value in limits.items())
    if said:
        log.info("model %s knows: %s", card.name, said)
    return warnings


def _level(limits: dict[str, Any], inputs: Inputs, series: TimeSeries) -> list[str]:
    learned = limits.get("level") or (inputs.level if inputs.level != "any" else None)
    found = series.notes.get("level")
    if learned in ("L1C", "L2A") and found in ("L1C", "L2A") and learned != found:
        return [f"learned from level {learned}, this series is {found}; expect a poor map"]
    return []


def _season(limits: dict[str, Any], inputs: Inputs, dates: Sequence[date], start: date | None) -> list[str]:
    learned = [_day(value) for value in limits.get("dates", [])]
    if len(learned) != 2 or None in learned:
        return []
    first, last = (day for day in learned if day is not None)
    known = days_since([first, last], season_start(first, inputs.season_start))
    found = days_since([dates[0], dates[-1]], start or season_start(dates[0], inputs.season_start))
    warnings = []
    if found[0] < known[0] - _SLACK or found[1] > known[1] + _SLACK:
        warnings.append(
            f"learned from days {known[0]} to {known[1]} of a season ({first} to {last}), "
            f"this series has {found[0]} to {found[1]} ({dates[0]} to {dates[-1]})"
        )
    if dates[-1] < first or dates[0] > last:
        warnings.append(f"learned from {first} to {last}; crops and weather of {dates[0].year} may differ")
    return warnings


def _place(limits: dict[str, Any], series: TimeSeries) -> list[str]:
    bounds = limits.get("bounds")
    if series.grid.crs is None or not isinstance(bounds, (list, tuple)) or len(bounds) != 4:
        return []
    west, south, east, north = transform_bounds(series.grid.crs, "EPSG:4326", *series.grid.bounds)
    if west > bounds[2] or east < bounds[0] or south > bounds[3] or north < bounds[1]:
        place = f"{(west + east) / 2:.2f} E {(south + north) / 2:.2f} N"
        return [f"learned within {_words(bounds)} (west, south, east, north), this series lies at {place}"]
    return []


def _start(inputs: Inputs, dates: Sequence[date]) -> list[str]:
    """A first image just before the season moves all days by a year."""
    if inputs.days != "season":
        return []
    start = season_start(dates[0], inputs.season_start)
    following = start.replace(year=start.year + 1)
    if (following - dates[0]).days <= _NEAR_SEASON and dates[-1] >= following:
        return [
            f"the first date {dates[0]} lies just before the season's start, so days count from {start}; "
            f"if the season of {following} is meant, say --season-start {following}"
        ]
    return []


def _day(value: Any) -> date | None:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


def _words(value: Any) -> str:
    return ", ".join(str(part) for part in value) if isinstance(value, (list, tuple)) else str(value)
