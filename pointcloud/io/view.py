"""Look at a cloud in a window, in the colours of its classes, its own, or its heights. Needs open3d."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.checkpoint import ClassInfo
from geomix.errors import InputError, MissingPackageError
from pointcloud.cloud import Cloud
from pointcloud.io.preview import legend_of


def view(cloud: Cloud, classes: Sequence[ClassInfo] | None = None, color: str = "auto") -> None:
    """Open a window with a cloud and return when it is closed.

    Args:
        cloud: any cloud; points that are no measurement are left out.
        classes: names and colours of the classes, as on the card of a model.
        color: `class`, `rgb`, `height`, or `auto` for the first of them that the cloud has.

    Raises:
        MissingPackageError: if open3d is not installed or cannot start.
        InputError: if the cloud has no points or lacks the colour that is asked for.
    """
    if len(cloud) == 0:
        raise InputError(f"{cloud.name}: has no points to show")
    shown = cloud.take(np.flatnonzero(cloud.measured()))
    colors = colors_of(shown, classes, color)
    open3d = _open3d()
    points = open3d.geometry.PointCloud()
    # From the middle: the viewer counts in float32.
    points.points = open3d.utility.Vector3dVector(shown.coord - shown.coord.mean(axis=0))
    points.colors = open3d.utility.Vector3dVector(colors)
    open3d.visualization.draw_geometries([points], window_name=f"geomix: {cloud.name}")


def colors_of(
    cloud: Cloud, classes: Sequence[ClassInfo] | None = None, color: str = "auto"
) -> NDArray[np.float64]:
    """Colour of each point, 0..1, [N, 3].

    Raises:
        InputError: if the cloud lacks what `color` asks for, or `color` is unknown.
    """
    if color == "auto":
        color = next(
            (c for c, f in (("class", "classification"), ("rgb", "color")) if f in cloud.fields), "height"
        )
    if color == "class":
        entries = legend_of(cloud, classes)
        table = {entry.id: entry.rgb for entry in entries}
        ids, inverse = np.unique(cloud.fields["classification"].astype(np.int64), return_inverse=True)
        return np.array([table[number] for number in ids.tolist()])[inverse.reshape(-1)] / 255.0
    if color == "rgb":
        if "color" not in cloud.fields:
            raise InputError(f"{cloud.name}: has no colours; choose class or height")
        return cloud.fields["color"].astype(np.float64)
    if color == "height":
        return _by_height(cloud.coord[:, 2])
    raise InputError(f"colour {color!r} is unknown; choose auto, class, rgb or height")


def _by_height(height: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blue low down, through green, to yellow at the top."""
    low, high = np.percentile(height, [2, 98])
    share = np.clip((height - low) / max(high - low, 1e-9), 0, 1)
    return np.stack([share, 0.25 + 0.65 * share, 0.6 * (1 - share)], axis=1)


def _open3d() -> Any:
    try:
        import open3d
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise MissingPackageError(
            f"the viewer needs open3d, which cannot be imported ({reason}); pip install 'geomix[view]', and "
            "on Linux libgl1 and libusb-1.0-0 from the system; or draw a picture: segment --preview FILE.png"
        ) from None
    return open3d
