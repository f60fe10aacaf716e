"""The verbs that train and judge models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.errors import InputError
from geomix.options import (
    DeviceOption,
    Json,
    MaxMinutes,
    ModelOption,
    Output,
    Overwrite,
    Quiet,
    Resume,
    RunFolder,
    Seeds,
    StudyFolder,
)
from sits.cli.fields import LabelFlags, OwnFlags, evaluate_own, train_own
from sits.io.options import ReadOptions

Data = Annotated[
    Path | None,
    Parameter(name="--data", help="A PASTIS folder, or the labelled scene that the configuration asks for."),
]


def train(
    config: str,
    /,
    *,
    output: RunFolder = None,
    data: Data = None,
    own: OwnFlags = OwnFlags(),
    reading: ReadOptions = ReadOptions(),
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model from a configuration, by its name (`geomix config list sits`) or a YAML file.

    The best model is written as one file with its card; `tiny` trains on made-up fields in a minute, and
    `fields` on your own images and labels: --images 'S2_2023*.tif' --labels fields.gpkg --field crop
    """
    if own.images or own.labels or config == "fields":
        print(train_own(config, own, reading, output))
        return
    from sits.task import train as run

    folder = output or Path("runs") / Path(config).stem
    print(run(config, folder, data, resume=resume, max_minutes=max_minutes, device=device))


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
    split: Literal["train", "val", "test", "all"] = "test",
    by_month: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also score what is known at each month's end.")
    ] = False,
    device: DeviceOption = "auto",
    json: Json = False,
    csv: Annotated[bool, Parameter(negative="", show_default=False, help="Print CSV.")] = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on labelled data, divided as its card says; the figures are those of the card.

    Or hold a map against references (--map, --reference, --field): accuracy and areas with 95 % intervals.
    """
    if map_file is not None or reference is not None:
        if map_file is None or reference is None:
            raise InputError("a map is held against references: give both --map and --reference")
        form: Literal["text", "json", "csv"] = "csv" if csv else "json" if json else "text"
        print(evaluate_own(map_file, reference, labels, strata, form))
        return
    if model is None:
        raise InputError("give a model (--model), or a map and references (--map, --reference)")
    from geomix.checkpoint import load_model
    from geomix.device import choose_device
    from geomix.report import flat, json_text, table
    from sits.task import evaluate as run

    loaded = load_model(model, choose_device(device), domain="sits")
    figures = run(loaded, data, split=split, by_month=by_month)
    if json:
        print(json_text(figures))
        return
    months = figures.pop("by_month", {})
    print(table(("metric", "value"), flat(figures)))
    if months:
        print(
            table(("until", "oa", "miou", "macro_f1"), [(end, *row.values()) for end, row in months.items()])
        )


def import_published(
    checkpoint: Annotated[Path, Parameter(help="A checkpoint of the published TSViT for PASTIS.")],
    /,
    *,
    output: Output,
    name: Annotated[str | None, Parameter(help="Name of the model; that of the file if not given.")] = None,
    heads: Annotated[
        int | None,
        Parameter(help="Number of attention heads; the weights do not tell. 4, as published, if not given."),
    ] = None,
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
    output: StudyFolder = Path("runs/study"),
    seeds: Seeds = 3,
    mixers: Annotated[
        bool, Parameter(negative="", show_default=False, help="Compare the mixers instead, in one model.")
    ] = False,
    by_month: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also the accuracy at each month's end.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the accuracy tables of the documentation: all splits and seeds, beside a forest and TSViT."""
    from dataclasses import asdict

    from geomix.report import json_text, table
    from sits.study import METHODS, MIXERS, months
    from sits.study import study as run
    from sits.study import table as summarise

    results = run(name, data, output, seeds, [*MIXERS] if mixers else METHODS)
    lines = [asdict(line) for line in summarise(name, results)]
    curve = months(results) if by_month else []
    if json:
        print(json_text({"table": lines, "by_month": curve} if by_month else lines))
        return
    other = "macro F1" if name == "parcels" else "mIoU"
    columns = ("split", "method", "runs", "OA", "spread", other, "spread")
    print(table(columns, [tuple(line.values()) for line in lines]))
    if curve:
        print(table(("month", "method", "OA", "macro F1"), curve))
