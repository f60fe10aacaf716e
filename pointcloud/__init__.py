"""Point clouds of any format become the same clouds with classes.

The names below are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointcloud.cloud import Cloud as Cloud
    from pointcloud.io import read_cloud as read_cloud
    from pointcloud.io import write_cloud as write_cloud
    from pointcloud.io.preview import write_preview as write_preview
    from pointcloud.predict import segment as segment

_HOMES = {
    "Cloud": "pointcloud.cloud",
    "read_cloud": "pointcloud.io",
    "segment": "pointcloud.predict",
    "write_cloud": "pointcloud.io",
    "write_preview": "pointcloud.io.preview",
}

__all__ = ["Cloud", "read_cloud", "segment", "write_cloud", "write_preview"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pointcloud' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
