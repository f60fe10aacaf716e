"""What the user says about the input; whatever is left out is read from the files or guessed aloud."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.errors import InputError

RESAMPLINGS = ("nearest", "bilinear", "cubic", "average", "mode", "lanczos")


@dataclass(frozen=True)
class ReadOptions:
    """How to read a series. On the command line these are flags; in Python, pass one of these."""

    bands: Annotated[str | None, Parameter(help="Names of the bands by position, such as B2,B3,B4,B8.")] = (
        None
    )
    """Names of the bands by position, parted by commas; None to go by what the files say."""

    scale: Annotated[float | None, Parameter(help="Reflectance of one unit: 0.0001 or 1.")] = None
    """Reflectance of one unit: 0.0001 for digital numbers, 1 for reflectance."""

    offset: Annotated[
        str, Parameter(help="Added to the numbers: auto (by each date's baseline), none, or such as -1000.")
    ] = "auto"
    """Added to the numbers before scaling: `auto` goes by the processing baseline of each date."""

    nodata: Annotated[float | None, Parameter(help="The number that stands for no data.")] = None
    """The number that stands for nothing, where the files do not say or say it wrong."""

    dates: Annotated[Path | None, Parameter(help="A CSV with the columns file and date.")] = None
    """A table of dates that goes before names and tags."""

    crs: Annotated[str | None, Parameter(help="Coordinate system, where the input has none.")] = None
    """Coordinate system such as EPSG:32631, for input that names none."""

    resample: Annotated[
        str | None, Parameter(help="Bring all files to the finest grid: bilinear, nearest, cubic, average.")
    ] = None
    """Resampling method with which files of other grids are brought to one; None to refuse them."""

    like: Annotated[Path | None, Parameter(help="A raster whose grid is used instead of the finest.")] = None
    """A raster whose grid the series takes; implies `resample`."""

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise InputError(f"--scale must be above 0, got {self.scale}")
        if self.resample is not None and self.resample not in RESAMPLINGS:
            raise InputError(f"--resample {self.resample!r} is unknown; choose from {', '.join(RESAMPLINGS)}")
        _ = self.offset_choice  # an offset that is no number is refused at once

    @property
    def offset_choice(self) -> float | str:
        """`auto`, `none`, or a number.

        Raises:
            InputError: if it is none of these.
        """
        if self.offset in ("auto", "none"):
            return self.offset
        try:
            return float(self.offset)
        except ValueError:
            raise InputError(f"--offset must be auto, none or a number, got {self.offset!r}") from None

    @property
    def band_names(self) -> tuple[str, ...] | None:
        """The names of the bands by position."""
        if self.bands is None:
            return None
        return tuple(name.strip() for name in self.bands.split(",") if name.strip())
