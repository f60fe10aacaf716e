"""From own labels to own map to areas: the options and the verb that this way adds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from geomix.options import Output, Overwrite, Quiet

if TYPE_CHECKING:
    from geomix.learn.classes import ClassMap
    from sits.io.options import ReadOptions
    from sits.io.vector import Labels


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LabelFlags:
    """How labels and references are read."""

    column: Annotated[str | None, Parameter(name="--field")] = None
    """Column that holds the class, such as crop."""
    layer: str | None = None
    """Layer of the file, where there are several."""
    x: str | None = None
    """Column of x or longitude, where the file is a CSV."""
    y: str | None = None
    """Column of y or latitude."""
    label_crs: str | None = None
    """Coordinate system of x and y, such as EPSG:32633."""
    classes: Path | None = None
    """A CSV with the columns from, to, name, color that joins labels to classes, or a QGIS style."""
    inside: float = 1.0
    """How far from the edge of a polygon pixels count, pixels."""

    def read(self, file: Path) -> "Labels":
        """The shapes of a file."""
        from sits.io.vector import TableColumns, read_labels

        return read_labels(file, self.column, self.layer, TableColumns(self.x, self.y, self.label_crs))

    def class_map(self) -> "ClassMap | None":
        """The user's table of classes."""
        from geomix.learn.classes import read_classes

        return None if self.classes is None else read_classes(self.classes)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OwnFlags:
    """Own images and labels to train on."""

    images: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
    """Images to train `fields` on: files, folders or quoted patterns."""
    labels: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")] = ()
    """Polygons, points or a label raster; several belong to as many --images, in order."""
    learner: Literal["auto", "forest", "trees", "base", "blend"] | None = None
    """What learns; auto takes what cross-validation says is best."""
    folds: int | None = None
    """Folds of the cross-validation."""
    reading: LabelFlags = field(default_factory=LabelFlags)


def train_own(config: str, own: OwnFlags, images: "ReadOptions", output: Path | None) -> Path:
    """Train `fields`, or a YAML file of its settings, on own labels.

    Raises:
        InputError: if images or labels are missing.
    """
    from geomix.config import load_config
    from sits.data.own import LabelOptions, pair_sets, read_own
    from sits.io.vector import TableColumns
    from sits.task.fields import FieldsTraining, train_fields

    flags = own.reading
    sets = pair_sets([own.images] if len(own.labels) < 2 else [[one] for one in own.images], own.labels)
    training = FieldsTraining() if config == "fields" else load_config(config, "sits", FieldsTraining)
    told = {"learner": own.learner, "folds": own.folds}
    training = FieldsTraining(
        **training.model_dump() | {key: one for key, one in told.items() if one is not None}
    )
    options = LabelOptions(
        column=flags.column,
        layer=flags.layer,
        coordinates=TableColumns(flags.x, flags.y, flags.label_crs),
        classes=flags.class_map(),
        inside=flags.inside,
    )
    data = read_own(sets, images, options, training.seed)
    return train_fields(data, training, output or Path("runs") / training.name)


def evaluate_own(
    map_file: Path,
    reference: Path,
    flags: LabelFlags,
    strata: Path | None,
    form: Literal["text", "json", "csv"],
) -> str:
    """What references say of a map, as text, JSON or CSV."""
    from sits.accuracy import evaluate_map
    from sits.accuracy.reference import learned_shapes

    found = evaluate_map(
        map_file,
        flags.read(reference),
        flags.class_map(),
        strata,
        flags.inside,
        learned_shapes(map_file),
    )
    return {"text": found.text, "json": found.json, "csv": found.csv}[form]()


def sample(
    map_file: Annotated[Path, Parameter(help="A class map.")],
    /,
    *,
    output: Output,
    number: Annotated[int, Parameter(name=["--number", "-n"], help="Points in all.")] = 500,
    seed: Annotated[int, Parameter(help="Another seed draws other points.")] = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw random points of a map to be checked, stratified by class, with a form for QGIS.

    Fill in the column reference, then: geomix sits evaluate --map MAP --reference POINTS --field reference
    """
    from sits.accuracy import sample_map

    print(sample_map(map_file, output, number, seed, overwrite))
