"""The PASTIS format: its folder on disk, and each patch of it as a series."""

from sits.io.pastis.folder import (
    BANDS,
    CLASSES,
    NODATA,
    ROTATION,
    VOID,
    PastisFolder,
    Patch,
    parse_dates,
)
from sits.io.pastis.patch import series_of_patch

__all__ = [
    "BANDS",
    "CLASSES",
    "NODATA",
    "ROTATION",
    "VOID",
    "PastisFolder",
    "Patch",
    "parse_dates",
    "series_of_patch",
]
