"""The verb that opens a window."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.options import Quiet
from pointcloud.cli.options import Reading
from pointcloud.io.options import ReadOptions


def view(
    path: Path,
    /,
    *,
    color: Annotated[
        Literal["auto", "class", "rgb", "height"], Parameter(help="What the colours of the points show.")
    ] = "auto",
    model: Annotated[str | None, Parameter(help="Model whose names and colours of classes are used.")] = None,
    reading: Reading = ReadOptions(),
    quiet: Quiet = False,
) -> None:
    """Look at a scan in a window, in the colours of its classes. Needs open3d (extra `view`)."""
    from geomix.checkpoint import find_model, read_card
    from pointcloud.io.inspect import read_labelled
    from pointcloud.io.view import view as show

    cloud = read_labelled(path, reading)
    show(cloud, read_card(find_model(model, "pointcloud")).classes if model else None, color)
