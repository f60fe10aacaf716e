"""The verbs that work on finished maps."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import Output, Overwrite, Quiet


def zonal(
    map_file: Annotated[Path, Parameter(help="A class map.")],
    fields: Annotated[Path, Parameter(help="Parcels in any format and coordinate system that GDAL reads.")],
    /,
    *,
    output: Output,
    proba: Annotated[
        Path | None, Parameter(help="Probabilities from `segment --proba`, for the confidence.")
    ] = None,
    layer: Annotated[str | None, Parameter(help="Layer of the parcels; the first if not given.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Sum up a map over parcels: shares of the classes, the commonest, confidence, valid area.

    The output is .gpkg, .geojson, .fgb, .parquet, or .csv without shapes.
    """
    from sits.polygons import zonal_file

    print(zonal_file(map_file, fields, output, proba, layer, overwrite))


def polygonize(
    map_file: Annotated[Path, Parameter(help="A class map.")],
    /,
    *,
    output: Output,
    smallest: Annotated[
        int, Parameter(help="Areas of fewer pixels fall to their largest neighbour first.")
    ] = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Outline the areas of each class as polygons in a GeoPackage."""
    from sits.polygons import polygonize_file

    print(polygonize_file(map_file, output, smallest, overwrite))


def preview(
    map_file: Annotated[Path, Parameter(help="A class map.")],
    /,
    *,
    output: Output,
    title: Annotated[str, Parameter(help="A line above the map.")] = "",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw a map with its legend, to look at without a GIS."""
    from sits.io.legend import read_legend
    from sits.io.preview import write_preview

    write_preview(map_file, output, read_legend(map_file), title or map_file.stem, overwrite)
    print(output)
