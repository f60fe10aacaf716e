"""What a caller may say about a file that the file does not say itself."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a cloud; the defaults look at the file."""

    format: str | None = None
    """Key of `FORMATS` where the content of the file must not decide."""
    columns: int | None = None
    """Number of float32 columns in a file without a header (4 KITTI, 5 nuScenes, 6 ScanNet)."""
    unit: str = "auto"
    """Unit of the coordinates: auto, metre, foot, us-foot, degree, or metres per unit as a number."""
    rgb_max: float | None = None
    """Value of full brightness in the colours (255 or 65535) where the largest value must not decide."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How to write a cloud."""

    format: str | None = None
    """Key of `FORMATS` where the suffix must not decide."""
    extra: tuple[str, ...] = ()
    """Fields that go out beside the class when a file is written again, such as confidence and entropy."""
