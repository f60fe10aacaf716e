"""Options that several verbs of this domain share."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sits.options import ReadOptions

Series = Annotated[
    tuple[str, ...],
    Parameter(
        help="Dated GeoTIFFs, a folder of them or a pattern; or one NetCDF, Zarr store, STAC item collection "
        "or PASTIS file."
    ),
]
Reading = Annotated[ReadOptions, Parameter(name="*")]
Block = Annotated[
    int | None,
    Parameter(name="--block", help="Side of the blocks in pixels; the map does not depend on it."),
]
Until = Annotated[
    datetime | None, Parameter(name="--until", help="Last date that the model may see, such as 2019-05-31.")
]
SeasonStart = Annotated[
    datetime | None,
    Parameter(name="--season-start", help="Day from which days count; by default from the first date."),
]
Picture = Annotated[
    Path | None, Parameter(name="--quicklook", help="Also draw the map with its legend, as PNG.")
]


def day(moment: datetime | None) -> date | None:
    """The date of a flag."""
    return None if moment is None else moment.date()
