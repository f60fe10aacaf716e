"""The verb that adds new images to a scene."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import DeviceOption, MemoryOption, Overwrite, Quiet
from sits.cli.options import Block, Count, Entropy, Picture, Proba, Reading, Stac
from sits.io.options import ReadOptions


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
    quicklook: Picture = None,
    proba: Proba = None,
    entropy: Entropy = None,
    count: Count = None,
    stac: Stac = False,
    reading: Reading = ReadOptions(),
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    block: Block = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Add new images to the state of a scene without reading the old ones, and map it anew.

    The map is that of all images at once. Only images later than those in the state can be added: what was
    taken in before has been read by what came after it. Without new images, the map of the state is drawn.
    """
    from geomix.errors import InputError
    from sits.predict import MapPaths
    from sits.state import update_file

    if output is None and (stac or any(path is not None for path in (quicklook, proba, entropy, count))):
        raise InputError("these outputs go with a map; name the map with --output")
    paths = None if output is None else MapPaths(output, proba, entropy, count, quicklook, stac)
    written = update_file(
        state,
        inputs,
        paths,
        model=model,
        options=reading,
        device=device,
        memory=memory,
        block=block,
        overwrite=overwrite,
    )
    print(state, *(written.all if written else ()), sep="\n")
