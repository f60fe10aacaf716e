"""`rio geomix`: the main job as a command of rasterio's own tool."""

import click


@click.command("geomix", short_help="Map an image time series with a geomix model.")
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(), help="The map, a Cloud-Optimised GeoTIFF.")
@click.option("--model", required=True, help="Name of a bundled model (see `geomix info`) or a model file.")
@click.option("--preview", type=click.Path(), help="Also draw the map with its legend, as PNG.")
@click.option("--memory", help="Most memory to use, such as 4GB.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists already.")
def geomix(
    inputs: tuple[str, ...],
    output: str,
    model: str,
    preview: str | None,
    memory: str | None,
    overwrite: bool,
) -> None:
    """Map dated GeoTIFFs, a folder of them, or a NetCDF; `geomix sits segment` knows more options.

    $ rio geomix S2_*.tif --model eolearn-demo -o map.tif
    """
    from pathlib import Path

    from geomix.errors import GeomixError, one_line
    from sits.io.options import MapOptions
    from sits.predict import MapPaths, segment_file

    paths = MapPaths(Path(output), preview=Path(preview) if preview else None)
    try:
        segment_file(inputs, paths, model, MapOptions(memory=memory, overwrite=overwrite))
    except GeomixError as error:
        raise click.ClickException(one_line(error)) from error
