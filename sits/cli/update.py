"""The verb that adds new images to a scene."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sits.cli.options import Outputs
from sits.io.options import UpdateOptions


def update(
    state: Annotated[Path, Parameter(help="Folder that `segment --save-state` made.")],
    /,
    *inputs: str,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="The map after all dates; none is drawn if not given."),
    ] = None,
    model: Annotated[
        str | None, Parameter(name="--model", help="The model of the state, where it was moved.")
    ] = None,
    beside: Outputs = Outputs(),
    options: UpdateOptions = UpdateOptions(),
) -> None:
    """Add new images to the state of a scene without reading the old ones, and map it anew.

    The map is that of all images at once. Only images later than those in the state can be added: what was
    taken in before has been read by what came after it. Without new images, the map of the state is drawn.
    """
    from geomix.errors import InputError
    from sits.state import update_file

    if output is None and beside:
        raise InputError("these outputs go with a map; name the map with --output")
    paths = None if output is None else beside.beside(output)
    written = update_file(state, inputs, paths, model, options)
    print(state, *(written.all if written else ()), sep="\n")
