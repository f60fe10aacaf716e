"""The verb that makes maps."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import DeviceOption, MemoryOption, ModelOption, Output, Overwrite, Quiet, Scheduler
from sits.cli.options import (
    Block,
    Count,
    Entropy,
    Picture,
    Proba,
    Reading,
    SeasonStart,
    Stac,
    Until,
    day,
)
from sits.io.options import ReadOptions


def segment(
    *inputs: str,
    output: Output,
    model: ModelOption,
    quicklook: Picture = None,
    proba: Proba = None,
    entropy: Entropy = None,
    count: Count = None,
    stac: Stac = False,
    save_state: Annotated[
        Path | None,
        Parameter(help="Also keep the state of the scene in this new folder, for `update` (causal models)."),
    ] = None,
    until: Until = None,
    season_start: SeasonStart = None,
    reading: Reading = ReadOptions(),
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    block: Block = None,
    resume: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Keep an interrupted run and go on with it."),
    ] = False,
    scheduler: Scheduler = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> int:
    """Turn an image time series into a class map: a Cloud-Optimised GeoTIFF on exactly its grid.

    There is no default model, because none fits every region and season: `geomix info` lists the bundled
    ones. Names and colours of the classes go beside the map as .aux.xml and .qml, for GDAL and QGIS.
    If the output is a folder, every input is a series of its own: cubes, folders, or all patches of PASTIS.
    """
    from geomix.errors import InputError
    from sits.predict import MapPaths, is_batch, segment_each, segment_file

    paths = MapPaths(output, proba, entropy, count, quicklook, stac)
    if scheduler is not None and not is_batch(output):
        raise InputError("--scheduler shares several series among machines: give a folder as output")
    if save_state is not None:
        from sits.state import segment_and_keep

        if is_batch(output) or resume:
            raise InputError("--save-state takes one series and one map, and cannot be resumed")
        segment_and_keep(
            inputs,
            paths,
            model,
            save_state,
            options=reading,
            device=device,
            memory=memory,
            block=block,
            until=day(until),
            season_start=day(season_start),
            overwrite=overwrite,
        )
        print(*paths.all, save_state, sep="\n")
        return 0
    if not is_batch(output):
        segment_file(
            inputs,
            paths,
            model,
            options=reading,
            device=device,
            memory=memory,
            block=block,
            until=day(until),
            season_start=day(season_start),
            overwrite=overwrite,
            resume=resume,
        )
        print(*paths.all, sep="\n")
        return 0
    written, code = segment_each(
        inputs,
        paths,
        model,
        options=reading,
        device=device,
        memory=memory,
        block=block,
        until=day(until),
        season_start=day(season_start),
        overwrite=overwrite,
        resume=resume,
        scheduler=scheduler,
    )
    for path in written:
        print(path)
    return code
