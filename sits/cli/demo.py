"""The verb that shows the main job on built-in input."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from geomix.options import Quiet

if TYPE_CHECKING:
    from geomix.checkpoint import ClassInfo

_MODEL = "synthetic-demo"


def demo(
    *,
    output: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"],
            help="Folder for the images and the map; those of an earlier demo in it go.",
        ),
    ] = Path("demo"),
    size: Annotated[int, Parameter(help="Side of the scene, pixels of 10 m.")] = 200,
    dates: Annotated[int, Parameter(help="Number of acquisitions.")] = 24,
    seed: Annotated[int, Parameter(help="Which made-up land.")] = 987_000_011,
    quiet: Quiet = False,
) -> None:
    """Make a Sentinel-2 series of made-up farmland, map it, and hold the map against the truth."""
    from geomix.checkpoint import find_model, read_card
    from geomix.files import make_folder
    from geomix.report import table
    from sits.io.options import MapOptions, ReadOptions
    from sits.predict import MapPaths, segment_file
    from sits.synthetic import make_scene, write_geotiffs

    make_folder(output)
    scene = make_scene((size, size), seed, dates)
    images = write_geotiffs(scene, output / "images", overwrite=True)
    paths = MapPaths(output / "map.tif", preview=output / "map.png", item=True)
    segment_file(images, paths, _MODEL, MapOptions(reading=ReadOptions(scale=1e-4), overwrite=True))
    classes = read_card(find_model(_MODEL, "sits")).classes or ()
    rows, right = _compare(paths.map, output / "images" / "labels.tif", classes)
    print(table(("class", "truth %", "map %", "IoU %"), rows))
    print(f"{right:.1f} % of the pixels are right. The land is made up: this shows that all parts work")
    print("together, and says nothing about real fields.")
    fields = _write_fields(output / "images" / "labels.tif", classes, output / "fields.gpkg")
    for path in (images[0].parent, fields, *paths.all):
        print(path)


def _write_fields(labels: Path, classes: "Sequence[ClassInfo]", file: Path) -> Path:
    """The made-up fields as polygons with their crop, as a register has them."""
    import geopandas as gpd

    from geomix.files import new_file
    from sits.io.vector import read_labels

    found = read_labels(labels)
    names = {entry.id: entry.name for entry in classes if entry.name != "Background"}
    rows = [
        (names[code], shape) for code, shape in zip(found.values, found.shapes, strict=True) if code in names
    ]
    frame = gpd.GeoDataFrame(
        {"crop": [name for name, _ in rows]}, geometry=[s for _, s in rows], crs=found.crs
    )
    with new_file(file, overwrite=True) as temporary:
        frame.to_file(temporary, layer=file.stem, engine="pyogrio", index=False)
    return file


def _compare(
    map_file: Path, truth_file: Path, classes: "Sequence[ClassInfo]"
) -> tuple[list[tuple[object, ...]], float]:
    """Share of each class in truth and map and its IoU, and the share of right pixels, in per cent."""
    import rasterio

    with rasterio.open(map_file) as found, rasterio.open(truth_file) as labels:
        codes, truth = found.read(1), labels.read(1)
        known = (truth != labels.nodata) & (codes != found.nodata)
    codes, truth = codes[known], truth[known]
    total = max(truth.size, 1)
    rows: list[tuple[object, ...]] = []
    for entry in classes:
        there, said = truth == entry.id, codes == entry.id
        either = int((there | said).sum())
        if either:
            both = 100 * int((there & said).sum()) / either
            rows.append((entry.name, 100 * float(there.sum()) / total, 100 * float(said.sum()) / total, both))
    return rows, 100 * float((codes == truth).sum()) / total
