"""The verb that makes maps."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import DeviceOption, MemoryOption, ModelOption, Output, Overwrite, Quiet
from sits.cli.options import Block, Picture, Reading, SeasonStart, Until, day
from sits.options import ReadOptions

_More = Annotated[Path | None, Parameter()]


def segment(
    *inputs: str,
    output: Output,
    model: ModelOption,
    quicklook: Picture = None,
    proba: Annotated[
        Path | None, Parameter(help="Also write the probability of each class, per cent, a band a class.")
    ] = None,
    entropy: Annotated[
        Path | None, Parameter(help="Also write how undecided the model is, per cent.")
    ] = None,
    count: Annotated[Path | None, Parameter(help="Also write how many dates show each pixel.")] = None,
    stac: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also write a STAC item beside the map.")
    ] = False,
    until: Until = None,
    season_start: SeasonStart = None,
    reading: Reading = ReadOptions(),  # noqa: B008 - it is frozen
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    block: Block = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Turn an image time series into a class map: a Cloud-Optimised GeoTIFF on exactly its grid.

    There is no default model, because none fits every region and season: `geomix info` lists the bundled
    ones. Names and colours of the classes go beside the map as .aux.xml and .qml, for GDAL and QGIS.
    """
    from sits.predict import MapPaths, segment_file

    paths = MapPaths(output, proba, entropy, count, quicklook, stac)
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
    )
    for path in paths.all:
        print(path)
