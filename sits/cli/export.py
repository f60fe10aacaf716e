"""The verb that writes any series as dated GeoTIFFs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import Overwrite, Quiet
from sits.io.options import ReadOptions


def export(
    *inputs: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Folder for the GeoTIFFs.")],
    reading: ReadOptions = ReadOptions(),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a series as one georeferenced GeoTIFF a date.

    A PASTIS patch S2_<id>.npy is placed by its footprint; same-day scenes are fused; offsets are taken off.
    """
    from sits.io import open_series
    from sits.io.export import write_series

    print(*write_series(open_series(inputs, reading), output, overwrite), sep="\n")
