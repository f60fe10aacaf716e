"""How an input is understood, in words, before anything is computed."""

from collections.abc import Iterator
from typing import Any

from sits.grid import crs_name
from sits.series import TimeSeries

_SIDE = 512
_MOST = 16


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
            {
                "date": one.date.isoformat(),
                "valid %": round(100 * valid, 1),
                "masked %": round(100 * masked, 1),
                "offset": one.offset,
                "from": ", ".join(one.names),
            }
            for one, (valid, masked) in zip(series.acquisitions, _shares(series), strict=True)
        ],
    }


def _shares(series: TimeSeries) -> Iterator[tuple[float, float]]:
    """The share of pixels with data in all bands, and of those that masks hide, of each date.

    Every pixel of a small scene counts; of a large one, a row of windows through its middle does.
    """
    windows = list(series.grid.blocks(_SIDE))
    if len(windows) > _MOST:
        middle = windows[len(windows) // 2].row
        windows = [window for window in windows if window.row == middle][:: max(1, len(windows) // _MOST**2)]
    total = sum(window.height * window.width for window in windows)
    steps = series.steps or range(len(series.acquisitions))
    masked = getattr(series.source, "masked", None)
    for step in steps:
        valid = hidden = 0
        for window in windows:
            valid += int(series.source.read([step], series.bands, window)[1].sum())
            hidden += 0 if masked is None else int(masked(step, window).sum())
        yield valid / total, hidden / total
