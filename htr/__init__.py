"""Scanned handwritten pages become text.

`transcribe(image)` finds the lines of a page, reads them and gives a `Page`; `Page` and `Line` are what all
rooms pass on; `read_lines` and `write` know PAGE XML, ALTO and JSON.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from htr.io.options import PageOptions
    from htr.io.pages import read_lines, write
    from htr.page import Line, Page
    from htr.predict.transcribe import transcribe

__all__ = ["Line", "Page", "PageOptions", "read_lines", "transcribe", "write"]

_HOME = {
    "Line": "htr.page",
    "Page": "htr.page",
    "PageOptions": "htr.io.options",
    "read_lines": "htr.io.pages",
    "transcribe": "htr.predict.transcribe",
    "write": "htr.io.pages",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `geomix --help` needs no torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
