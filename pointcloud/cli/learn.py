"""The verbs that train, judge and import models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

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
    Seeds,
    StudyFolder,
)
from pointcloud.cli.options import FLAG, Data, Views


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
    from pointcloud.task.training import train as run

    folder = output or Path("runs") / Path(config).stem
    print(run(config, folder, data, resume=resume, max_minutes=max_minutes, device=device))


def evaluate(
    *,
    model: ModelOption = "aerial",
    data: Data = None,
    split: Literal["train", "val", "test", "all"] = "test",
    tta: Views = False,
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
    from pointcloud.task.scoring import evaluate as run

    loaded = load_model(model, choose_device(device), "pointcloud")
    budget = parse_memory(memory) if memory else None
    figures = run(loaded, data, split, augmented=tta, memory=budget)
    print(json_text(figures) if json else table(("metric", "value"), flat(figures)))


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


def import_published(
    file: Path,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="The model file, .safetensors; beside FILE if not given."),
    ] = None,
    even_windows: Annotated[
        bool, Parameter(**FLAG, help="Even windows without borrowed voxels, unlike the published code.")
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
    from pointcloud.model.published import import_checkpoint
    from pointcloud.task.experiment import PointcloudConfig

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
