"""`geomix pointcloud VERB`: the words for what the domain can do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from geomix.options import (
    DeviceOption,
    Epochs,
    Json,
    MaxMinutes,
    MemoryOption,
    ModelOption,
    Overwrite,
    Quiet,
    Resume,
    RunFolder,
    Scheduler,
    Seeds,
    StudyFolder,
)
from pointcloud.io.options import ReadOptions

if TYPE_CHECKING:
    from pointcloud.cloud import Cloud

app = App(name="pointcloud", help="Point clouds of any format to the same clouds with classes.")

Reading = Annotated[ReadOptions, Parameter(name="*")]
Data = Annotated[
    Path | None, Parameter(name="--data", help="Folder of the labelled data that the configuration asks for.")
]
_Flag = {"negative": "", "show_default": False}


@app.command
def segment(
    *inputs: Path,
    output: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"],
            help="The file with classes; its suffix says the format. A folder for several inputs.",
        ),
    ],
    model: ModelOption = "aerial",
    preview: Annotated[
        Path | None, Parameter(help="Also draw the classes from above, as PNG; a folder for several inputs.")
    ] = None,
    confidence: Annotated[
        bool, Parameter(**_Flag, help="Also write the probability of each point's class.")
    ] = False,
    entropy: Annotated[
        bool, Parameter(**_Flag, help="Also write how undecided the model is, in nats.")
    ] = False,
    reading: Reading = ReadOptions(),
    project: Annotated[
        bool, Parameter(**_Flag, help="Accept degrees, and predict in a local projection in metres.")
    ] = False,
    tta: Annotated[
        bool,
        Parameter(**_Flag, help="Average over eight turned and mirrored views, in eight times the time."),
    ] = False,
    unlabelled: Annotated[
        int | None, Parameter(help="Class id of points that cannot be labelled; 0 if that is no class.")
    ] = None,
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    scheduler: Scheduler = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> int:
    """Give every point of a scan a class and write the same file with classes.

    LAS, LAZ, COPC, PLY, PCD, E57, KITTI and nuScenes .bin, ScanNet, numpy and text come in; all points go
    out in their order, with every other field as it was. Scans are never cut into tiles.
    """
    from geomix.checkpoint import card_of, kept_model
    from geomix.device import choose_device
    from geomix.parallel.jobs import run_jobs
    from pointcloud.io import WriteOptions
    from pointcloud.predict import check_output, outputs_for, segment_file
    from pointcloud.preview import write_preview

    paths = outputs_for(inputs, output)
    pictures = outputs_for(inputs, preview, ".png") if preview else {}
    if len(inputs) == 1:  # before the model is loaded; in a batch each input fails by itself
        check_output(inputs[0], paths[inputs[0]], overwrite)
    kept_model(model, choose_device(device), "pointcloud")  # a wrong name is one error, not one a scan
    extra = tuple(name for name, wanted in (("confidence", confidence), ("entropy", entropy)) if wanted)

    def work(path: Path) -> list[Path]:
        target, loaded = paths[path], kept_model(model, choose_device(device), "pointcloud")
        result = segment_file(
            path,
            target,
            loaded,
            reading=reading,
            writing=WriteOptions(extra=extra),
            memory=memory,
            project=project,
            augmented=tta,
            unlabelled=unlabelled,
            overwrite=overwrite,
        )
        if path not in pictures:
            return [target]
        write_preview(result, pictures[path], card_of(loaded).classes, overwrite)
        return [target, pictures[path]]

    return run_jobs(inputs, work, done=lambda written: print(*written, sep="\n"), scheduler=scheduler)


@app.command
def info(
    *inputs: Path,
    config: Annotated[
        str | None, Parameter(help="Print the parameters a stage of a configuration instead.")
    ] = None,
    reading: Reading = ReadOptions(),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Show how files are read: format, points, extent, unit, reference system, fields and classes."""
    from geomix.parallel.jobs import run_jobs
    from geomix.report import json_text, table
    from pointcloud.facts import config_facts, file_facts

    if config is not None:
        stages = config_facts(config)
        print(json_text(dict(stages)) if json else table(("stage", "parameters"), stages))
        return 0
    found: list[dict[str, Any]] = []

    def work(path: Path) -> None:
        facts = file_facts(path, reading)
        found.append(facts)
        if not json:
            _print_facts(facts)

    code = run_jobs(inputs, work)
    if json:
        print(json_text(found))
    return code


def _print_facts(facts: dict[str, Any]) -> None:
    from geomix.report import table

    print("\n".join(f"{key}: {_text(value)}" for key, value in facts.items() if not isinstance(value, dict)))
    fields, classes = facts["fields"], facts["classes"]
    if fields:
        print(
            table(
                ("field", "type", "from", "to"), [(name, *field.values()) for name, field in fields.items()]
            )
        )
    if classes:
        print(table(("class", "points"), list(classes.items())))


def _text(value: Any) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


@app.command
def view(
    path: Path,
    /,
    *,
    color: Annotated[
        Literal["auto", "class", "rgb", "height"], Parameter(help="What the colours of the points show.")
    ] = "auto",
    model: Annotated[str | None, Parameter(help="Model whose names and colours of classes are used.")] = None,
    reading: Reading = ReadOptions(),
    quiet: Quiet = False,
) -> None:
    """Look at a scan in a window, in the colours of its classes. Needs open3d (extra `view`)."""
    from geomix.checkpoint import find_model, read_card
    from pointcloud.view import view as show

    cloud = _with_labels(path, reading)
    show(cloud, read_card(find_model(model, "pointcloud")).classes if model else None, color)


def _with_labels(path: Path, reading: ReadOptions) -> "Cloud":
    from pointcloud.io import read_cloud
    from pointcloud.io.floats import with_labels

    return with_labels(read_cloud(path, reading))


@app.command
def train(
    config: str,
    /,
    *,
    output: RunFolder = None,
    data: Data = None,
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model from a configuration, by its name (`geomix config list pointcloud`) or a YAML file.

    The best model is written as one file with its card; `tiny` trains on made-up towns in a minute.
    """
    from pointcloud.task import train as run

    folder = output or Path("runs") / Path(config).stem
    print(run(config, folder, data, resume=resume, max_minutes=max_minutes, device=device))


@app.command
def evaluate(
    *,
    model: ModelOption = "aerial",
    data: Data = None,
    split: Literal["train", "val", "test", "all"] = "test",
    tta: Annotated[bool, Parameter(**_Flag, help="Average over eight turned and mirrored views.")] = False,
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on labelled data, divided as its card says; the figures are those of the card."""
    from geomix.checkpoint import load_model
    from geomix.device import choose_device
    from geomix.memory import parse_memory
    from geomix.report import flat, json_text, table
    from pointcloud.task import evaluate as run

    loaded = load_model(model, choose_device(device), "pointcloud")
    budget = parse_memory(memory) if memory else None
    figures = run(loaded, data, split, augmented=tta, memory=budget)
    print(json_text(figures) if json else table(("metric", "value"), flat(figures)))


@app.command
def study(
    *,
    data: Annotated[Path, Parameter(name="--data", help="Folder of the tiles that `aerial` learns from.")],
    output: StudyFolder = Path("runs/study/pointcloud"),
    seeds: Seeds = 3,
    epochs: Epochs = 8,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the comparison of mixers and a random forest in the documentation, all with one budget."""
    from geomix.learn.study import report
    from pointcloud.study import KEYS
    from pointcloud.study import study as run

    print(report(run(data, output, seeds, epochs), KEYS, json))


@app.command(name="import")
def import_(
    file: Path,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="The model file, .safetensors; beside FILE if not given."),
    ] = None,
    even_windows: Annotated[
        bool, Parameter(**_Flag, help="Even windows without borrowed voxels, unlike the published code.")
    ] = False,
    like: Annotated[
        str | None,
        Parameter(help="Configuration whose inputs and classes the weights were trained for, if not known."),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Turn a published PTv3 checkpoint (.pth) into a model file that gives the same scores."""
    from geomix.checkpoint import save_model
    from geomix.config import load_config
    from pointcloud.experiment import PointcloudConfig
    from pointcloud.model.published import import_checkpoint

    experiment = load_config(like, "pointcloud", PointcloudConfig) if like else None
    model, card = import_checkpoint(
        file,
        published=not even_windows,
        inputs=experiment.inputs.model_dump(mode="json") if experiment else None,
        classes=experiment.classes if experiment else None,
    )
    target = output or file.with_suffix(".safetensors")
    save_model(model, card, target, overwrite)
    print(target)
