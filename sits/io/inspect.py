"""How an input is understood, in words, before anything is computed."""

from typing import Any

from sits.grid import crs_name
from sits.series import TimeSeries


def inspect(series: TimeSeries) -> dict[str, Any]:
    """What a series is: name, grid, bands, the decisions on how to read it, and under `dates` each date.

    Returns:
        Values that JSON knows; `transform` holds the six numbers of the affine transform, `shape_yx` rows
        and columns in pixels.
    """
    return {
        "name": series.name,
        "crs": crs_name(series.grid.crs),
        "transform": list(series.grid.transform)[:6],
        "shape_yx": list(series.grid.shape),
        "bands": list(series.bands),
        **series.notes,
        "dates": [
            {"date": one.date.isoformat(), "offset": one.offset, "from": ", ".join(one.names)}
            for one in series.acquisitions
        ],
    }
