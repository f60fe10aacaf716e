"""Scanned handwritten pages become text.

`transcribe(image)` finds the lines of a page, reads them and gives a `Page`; `Page` and `Line` are what all
rooms pass on; `read_lines` and `write` know PAGE XML, ALTO and JSON.
"""

from typing import TYPE_CHECKING

from geomix.lazy import lazy

if TYPE_CHECKING:
    from htr.io.options import PageOptions
    from htr.io.pages import read_lines, write
    from htr.page import Line, Page
    from htr.predict.transcribe import transcribe

__all__ = ["Line", "Page", "PageOptions", "read_lines", "transcribe", "write"]

_HOMES = {
    "Line": "htr.page",
    "Page": "htr.page",
    "PageOptions": "htr.io.options",
    "read_lines": "htr.io.pages",
    "transcribe": "htr.predict.transcribe",
    "write": "htr.io.pages",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
