"""Options that several verbs of this domain share."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sits.io.options import ReadOptions

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
Proba = Annotated[
    Path | None, Parameter(help="Also write the probability of each class, per cent, a band a class.")
]
Entropy = Annotated[Path | None, Parameter(help="Also write how undecided the model is, per cent.")]
Count = Annotated[Path | None, Parameter(help="Also write how many dates show each pixel.")]
Stac = Annotated[
    bool, Parameter(negative="", show_default=False, help="Also write a STAC item beside the map.")
]


def day(moment: datetime | None) -> date | None:
    """The date of a flag."""
    return None if moment is None else moment.date()
