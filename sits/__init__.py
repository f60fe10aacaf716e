"""Satellite image time series become georeferenced class maps.

The names below are imported when they are first used, so that `geomix --help` does not wait for them.
"""

from typing import TYPE_CHECKING

from geomix.lazy import lazy

if TYPE_CHECKING:
    from sits.grid import Grid as Grid
    from sits.io import open_series as open_series
    from sits.io.options import MapOptions as MapOptions
    from sits.io.options import ReadOptions as ReadOptions
    from sits.predict import segment as segment
    from sits.predict import segment_file as segment_file
    from sits.series import TimeSeries as TimeSeries

_HOMES = {
    "Grid": "sits.grid",
    "MapOptions": "sits.io.options",
    "ReadOptions": "sits.io.options",
    "TimeSeries": "sits.series",
    "open_series": "sits.io",
    "segment": "sits.predict",
    "segment_file": "sits.predict",
}

__all__ = ["Grid", "MapOptions", "ReadOptions", "TimeSeries", "open_series", "segment", "segment_file"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
