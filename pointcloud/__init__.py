"""Point clouds of any format become the same clouds with classes.

The names below are imported when they are first used, so that the command line starts at once.
"""

from typing import TYPE_CHECKING

from geomix.lazy import lazy

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

__getattr__, __dir__ = lazy(__name__, _HOMES)
