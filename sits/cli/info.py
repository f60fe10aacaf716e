"""The verb that shows how an input is understood, before anything is computed."""

from geomix.options import Json, Quiet
from sits.cli.options import Reading
from sits.io.options import ReadOptions


def info(
    *inputs: str,
    reading: Reading = ReadOptions(),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how a series is read: dates, bands, grid, scale, offsets, and what is guessed."""
    from geomix.report import json_text, table
    from sits.grid import crs_name
    from sits.io import open_series

    series = open_series(inputs, reading)
    grid = series.grid
    facts = {
        "name": series.name,
        "crs": crs_name(grid.crs),
        "transform": list(grid.transform)[:6],
        "shape_yx": list(grid.shape),
        "bands": list(series.bands),
        **series.notes,
    }
    dates = [
        {"date": one.date.isoformat(), "offset": one.offset, "from": ", ".join(one.names)}
        for one in series.acquisitions
    ]
    if json:
        print(json_text({**facts, "dates": dates}))
        return
    for key, value in facts.items():
        print(f"{key}: {' '.join(map(str, value)) if isinstance(value, list) else value}")
    print(table(("date", "offset", "from"), [tuple(row.values()) for row in dates]))
