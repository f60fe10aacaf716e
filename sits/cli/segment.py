"""The verb that makes maps."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import ModelOption, Output
from sits.cli.options import Outputs
from sits.io.options import MapOptions


def segment(
    *inputs: str,
    output: Output,
    model: ModelOption | None = None,
    beside: Outputs = Outputs(),
    save_state: Annotated[
        Path | None,
        Parameter(help="Also keep the state of the scene in this new folder, for `update` (causal models)."),
    ] = None,
    options: MapOptions = MapOptions(),
) -> int:
    """Turn an image time series into a class map: a Cloud-Optimised GeoTIFF on exactly its grid.

    There is no default model, because none fits every region and season: `geomix info` lists the bundled
    ones. Names and colours of the classes go beside the map as .aux.xml and .qml, for GDAL and QGIS.
    If the output is a folder, every input is a series of its own: cubes, folders, or all patches of PASTIS.
    """
    from geomix.errors import InputError
    from sits.predict import is_batch, segment_each, segment_file

    if model is None:
        raise InputError(
            "no default model fits every region and season; learn one from labels, then name it: "
            "geomix sits train fields --images 'S2_*.tif' --labels fields.gpkg --field crop -o runs/fields; "
            "geomix sits segment 'S2_*.tif' --model runs/fields/fields.safetensors -o map.tif "
            "(bundled demonstrations: geomix info)"
        )
    paths = beside.beside(output)
    if is_batch(output):
        if save_state is not None:
            raise InputError("--save-state takes one series and one map; name a file as output")
        written, code = segment_each(inputs, paths, model, options)
        print(*written, sep="\n")
        return code
    if options.scheduler is not None or options.jobs > 1:
        raise InputError("--jobs and --scheduler share several series: give a folder as output")
    if save_state is None:
        segment_file(inputs, paths, model, options)
        print(*paths.all, sep="\n")
        return 0
    from sits.state import segment_and_keep

    segment_and_keep(inputs, paths, model, save_state, options)
    print(*paths.all, save_state, sep="\n")
    return 0
