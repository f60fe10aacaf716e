"""What a caller may say about a file that the file does not say itself."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a cloud; the defaults look at the file. On the command line these are flags."""

    format: Annotated[
        str | None, Parameter(help="Format of the input, where its content must not decide.")
    ] = None
    """Key of `pointcloud.io.FORMATS` where the content of the file must not decide."""

    columns: Annotated[
        int | None, Parameter(help="Columns of a bare float32 table: 4 KITTI, 5 nuScenes, 6 ScanNet.")
    ] = None
    """Number of float32 columns in a file without a header (4 KITTI, 5 nuScenes, 6 ScanNet)."""

    unit: Annotated[
        str,
        Parameter(
            help="Unit of the coordinates: auto, metre, foot, us-foot, degree, or the metres of one unit."
        ),
    ] = "auto"
    """Unit of the coordinates: auto, metre, foot, us-foot, degree, or metres per unit as a number."""

    rgb_max: Annotated[
        float | None, Parameter(help="Full brightness of the colours, 255 or 65535, if not to be guessed.")
    ] = None
    """Value of full brightness in the colours (255 or 65535) where the largest value must not decide."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How to write a cloud."""

    format: str | None = None
    """Key of `pointcloud.io.FORMATS` where the suffix must not decide."""

    extra: tuple[str, ...] = ()
    """Fields that go out beside the class when a file is written again, such as confidence and entropy."""
