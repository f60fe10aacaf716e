"""Satellite image time series become georeferenced class maps.

The names below are imported when they are first used, so that `geomix --help` does not wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'sits' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
