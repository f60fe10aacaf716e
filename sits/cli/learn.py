"""The verbs that train and judge models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.errors import InputError
from geomix.learn.splits import Split
from geomix.options import EvaluateOptions, ModelOption, Output, Overwrite, Quiet, StudyOptions, TrainOptions
from sits.cli.fields import LabelFlags, OwnFlags, evaluate_own, train_own
from sits.io.options import ReadOptions

Data = Annotated[
    Path | None,
    Parameter(name="--data", help="A PASTIS folder, or the labelled scene that the configuration asks for."),
]
ByMonth = Annotated[
    bool, Parameter(negative="", show_default=False, help="Also the accuracy at each month's end.")
]


def train(
    config: str,
    /,
    *,
    data: Data = None,
    own: OwnFlags = OwnFlags(),
    reading: ReadOptions = ReadOptions(),
    options: TrainOptions = TrainOptions(),
) -> None:
    """Train a model from a configuration, by its name (`geomix config list sits`) or a YAML file.

    The best model is written as one file with its card; `tiny` trains on made-up fields in a minute, and
    `fields` on your own images and labels: --images 'S2_2023*.tif' --labels fields.gpkg --field crop
    """
    if own.images or own.labels or config == "fields":
        print(train_own(config, own, reading, options.output))
        return
    from geomix.learn.verbs import train_verb
    from sits.task import SitsExperiment

    train_verb(SitsExperiment(config, reading), data, options)


def evaluate(
    *,
    model: ModelOption | None = None,
    map_file: Annotated[
        Path | None, Parameter(name="--map", help="A map to hold against references.")
    ] = None,
    reference: Annotated[Path | None, Parameter(help="Checked points or polygons.")] = None,
    strata: Annotated[
        Path | None, Parameter(help="The map by which the points were drawn, if not this one.")
    ] = None,
    labels: LabelFlags = LabelFlags(),
    data: Data = None,
    split: Split = "test",
    by_month: ByMonth = False,
    csv: Annotated[bool, Parameter(negative="", show_default=False, help="Print CSV.")] = False,
    options: EvaluateOptions = EvaluateOptions(),
) -> None:
    """Score a model on labelled data, divided as its card says; the figures are those of the card.

    Or hold a map against references (--map, --reference, --field): accuracy and areas with 95 % intervals.
    """
    if map_file is not None or reference is not None:
        if map_file is None or reference is None:
            raise InputError("a map is held against references: give both --map and --reference")
        form: Literal["text", "json", "csv"] = "csv" if csv else "json" if options.json else "text"
        print(evaluate_own(map_file, reference, labels, strata, form))
        return
    if model is None:
        raise InputError("give a model (--model), or a map and references (--map, --reference)")
    from geomix.learn.verbs import evaluate_verb
    from sits.task import SitsExperiment

    evaluate_verb(SitsExperiment, model, data, split, options, by_month=by_month)


def import_published(
    checkpoint: Annotated[Path, Parameter(help="A checkpoint of the published TSViT for PASTIS.")],
    /,
    *,
    output: Output,
    name: Annotated[str | None, Parameter(help="Name of the model; that of the file if not given.")] = None,
    heads: Annotated[int, Parameter(help="Number of attention heads, which weights do not tell.")] = 4,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Turn a published TSViT checkpoint into a model file; nothing but tensors is read from it."""
    from sits.model.published import import_tsvit

    import_tsvit(checkpoint, output, name, heads, overwrite)
    print(output)


def study(
    name: Annotated[Literal["eolearn", "parcels"], Parameter(help="The scene, or the parcels.")],
    /,
    *,
    data: Annotated[Path, Parameter(name="--data", help="Folder of the real data.")],
    mixers: Annotated[
        bool, Parameter(negative="", show_default=False, help="Compare the mixers instead, in one model.")
    ] = False,
    by_month: ByMonth = False,
    options: StudyOptions = StudyOptions(),
) -> None:
    """Repeat the accuracy tables of the documentation: all splits and seeds, beside a forest and TSViT."""
    from dataclasses import asdict

    from geomix.report import json_text, table
    from sits.study import METHODS, MIXERS, months
    from sits.study import study as run
    from sits.study import table as summarise

    results = run(name, data, options.output, options.seeds, [*MIXERS] if mixers else METHODS)
    lines = [asdict(line) for line in summarise(name, results)]
    curve = months(results) if by_month else []
    if options.json:
        print(json_text({"table": lines, "by_month": curve} if by_month else lines))
        return
    other = "macro F1" if name == "parcels" else "mIoU"
    columns = ("split", "method", "runs", "OA", "spread", other, "spread")
    print(table(columns, [tuple(line.values()) for line in lines]))
    if curve:
        print(table(("month", "method", "OA", "macro F1"), curve))
