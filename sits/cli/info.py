"""The verb that shows how an input is understood, before anything is computed."""

from geomix.options import Json, Quiet
from sits.io.options import ReadOptions


def info(
    *inputs: str,
    reading: ReadOptions = ReadOptions(),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how a series is read: dates, bands, grid, scale, offsets, and what is guessed."""
    from geomix.report import json_text, table
    from sits.io import open_series
    from sits.io.inspect import inspect

    facts = inspect(open_series(inputs, reading))
    if json:
        print(json_text(facts))
        return
    dates = facts.pop("dates")
    for key, value in facts.items():
        print(f"{key}: {' '.join(map(str, value)) if isinstance(value, list) else value}")
    print(table(tuple(dates[0]), [tuple(row.values()) for row in dates]))
