"""The verbs that train, judge and import models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.learn.splits import Split
from geomix.options import (
    Epochs,
    EvaluateOptions,
    MemoryOption,
    ModelOption,
    Overwrite,
    Quiet,
    StudyOptions,
    TrainOptions,
)
from pointcloud.cli.options import FLAG, Data, Views


def train(
    config: str,
    /,
    *,
    data: Data = None,
    classes: Annotated[
        str | None,
        Parameter(
            help="Classes of your tiles: a table map.csv with the columns from, to, name, color, or a "
            "scheme: asprs (by default), ign, ahn."
        ),
    ] = None,
    train: Annotated[
        tuple[str, ...], Parameter(help="Patterns of the tiles to learn from, such as 'north/*.laz'.")
    ] = (),
    val: Annotated[
        tuple[str, ...],
        Parameter(
            help="Patterns of the tiles that choose the epoch; blocks of space divide all if not given."
        ),
    ] = (),
    forest: Annotated[
        bool,
        Parameter(negative="--no-forest", help="Also grow a random forest on your tiles to compare with."),
    ] = True,
    options: TrainOptions = TrainOptions(),
) -> None:
    """Train a model, by the name of a configuration (`geomix config list pointcloud`) or a YAML file.

    With `--data`, `aerial` learns from any folder of classified tiles and starts from the bundled weights;
    `--model none` starts from nothing. `tiny` trains on made-up towns in a minute. The best model is written
    as one file with its card.
    """
    from geomix.learn.verbs import train_verb
    from pointcloud.task.experiment import PointcloudExperiment
    from pointcloud.task.forest import beside

    experiment = PointcloudExperiment(
        config, data, classes=classes, train=train, val=val, start=options.model
    )
    train_verb(experiment, data, options)
    if forest and data is not None and experiment.found is not None:
        print(beside(experiment, data, options.output or Path("runs") / experiment.config.name))


def evaluate(
    *,
    model: ModelOption = "aerial",
    data: Annotated[
        Path | None,
        Parameter(name="--data", help="Folder of classified tiles, or of the data of the training."),
    ] = None,
    split: Split = "test",
    tta: Views = False,
    csv: Annotated[
        Path | None, Parameter(help="Also write the figures and confusions of each class as CSV.")
    ] = None,
    memory: MemoryOption = None,
    options: EvaluateOptions = EvaluateOptions(),
) -> None:
    """Score a model on labelled data, divided as its card says; tiles it does not name are all scored."""
    from geomix.learn.verbs import evaluate_verb
    from pointcloud.task.experiment import PointcloudExperiment

    evaluate_verb(PointcloudExperiment, model, data, split, options, augmented=tta, memory=memory, csv=csv)


def study(
    *,
    data: Annotated[Path, Parameter(name="--data", help="Folder of the tiles that `aerial` learns from.")],
    epochs: Epochs = 8,
    options: StudyOptions = StudyOptions(),
) -> None:
    """Repeat the comparison of mixers and a random forest in the documentation, all with one budget."""
    from geomix.learn.verbs import study_verb
    from pointcloud.study import KEYS, methods

    study_verb(methods(data, epochs), KEYS, options)


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
    color: Annotated[
        Literal["unit", "signed"] | None,
        Parameter(help="Colours from 0 to 1 (unit), or from -1 to 1 as in Pointcept up to 1.5.2 (signed)."),
    ] = None,
    patch_size: Annotated[
        int | None,
        Parameter(help="Voxels per window; the weights do not tell. 1024 if not given."),
    ] = None,
    head_dim: Annotated[
        int | None, Parameter(help="Channels per attention head; the weights do not tell. 16 if not given.")
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
        patch_size=patch_size,
        head_dim=head_dim,
        color=color,
        inputs=experiment.inputs.model_dump(mode="json") if experiment else None,
        classes=experiment.classes if experiment else None,
    )
    target = output or file.with_suffix(".safetensors")
    save_model(model, card, target, overwrite)
    print(target)
