"""What the user says: about the input, whose files tell the rest or let it be guessed, and about the map."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.errors import InputError
from geomix.memory import parse_memory
from geomix.options import BatchOptions, Debug, DeviceOption, MemoryOption, Overwrite, Quiet

RESAMPLINGS = ("nearest", "bilinear", "cubic", "average", "mode", "lanczos")


@Parameter(name="*")
@dataclass(frozen=True)
class ReadOptions:
    """How to read a series. On the command line these are flags; in Python, pass one of these."""

    bands: str | None = None
    """Names of the bands by position, such as B2,B3,B4,B8; by default what the files say."""
    scale: float | None = None
    """Reflectance of one unit: 0.0001 for digital numbers, 1 for reflectance."""
    offset: str = "auto"
    """Added to the numbers before scaling: auto (by each date's baseline), none, or such as -1000."""
    nodata: float | None = None
    """The number that stands for no data, where the files do not say it or say it wrong."""
    dates: Path | None = None
    """A CSV with the columns file and date, which goes before names and tags."""
    crs: str | None = None
    """Coordinate system such as EPSG:32631, where the input has none."""
    resample: str | None = None
    """Bring all files to the finest grid by nearest, bilinear, cubic, average, mode or lanczos."""
    like: Path | None = None
    """A raster whose grid is used instead of the finest; implies --resample."""
    mask: str = "auto"
    """Clouds: auto (SCL, QA_PIXEL, Fmask, CLM or CLP beside or inside the images), none, a raster that is not
    0 where nothing is to be seen, or a layer with its values, such as SCL=3,8,9,10."""
    dilate: int = 0
    """Pixels by which the masked areas grow on each side."""
    known: Annotated[tuple[str, ...], Parameter(show=False, parse=False)] = ()
    """Further names of bands, those that the model asks for."""

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise InputError(f"--scale must be above 0, got {self.scale}")
        if self.resample is not None and self.resample not in RESAMPLINGS:
            raise InputError(f"--resample {self.resample!r} is unknown; choose from {', '.join(RESAMPLINGS)}")
        if self.dilate < 0:
            raise InputError(f"--dilate must be 0 or more pixels, got {self.dilate}")
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """How new images are taken into a state and mapped. On the command line these are flags."""

    reading: ReadOptions = ReadOptions()
    """What the user says about the input; what is left out is read from the files or guessed aloud."""
    device: DeviceOption = "auto"
    memory: MemoryOption = None
    block: Annotated[int | None, Parameter(name="--block")] = None
    """Side of the blocks in pixels; the map does not depend on it."""
    overwrite: Overwrite = False
    quiet: Quiet = False
    debug: Debug = False

    @property
    def bytes(self) -> int | None:
        """The memory in bytes; None if not given.

        Raises:
            InputError: if it is no amount of memory.
        """
        return None if self.memory is None else parse_memory(self.memory)

    def __post_init__(self) -> None:
        _ = self.bytes  # an amount that is no number is refused at once


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MapOptions(UpdateOptions, BatchOptions):
    """How a series becomes a map. On the command line these are flags; in Python, pass one of these."""

    resume: Annotated[bool, Parameter(name="--resume", negative="", show_default=False)] = False
    """Keep an interrupted map and go on with it; of several inputs, those mapped already are done."""
    until: Annotated[date | None, Parameter(name="--until")] = None
    """Last date that the model may see, such as 2019-05-31."""
    season_start: Annotated[date | None, Parameter(name="--season-start")] = None
    """Day from which days count; by default from the first date."""
