"""The verbs that train and judge models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.options import DeviceOption, Json, ModelOption, Quiet

Data = Annotated[
    Path | None,
    Parameter(name="--data", help="A PASTIS folder, or the labelled scene that the configuration asks for."),
]


def train(
    config: str,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Folder of the run: checkpoints, log, model; runs/NAME if not given.",
        ),
    ] = None,
    data: Data = None,
    resume: Annotated[
        bool, Parameter(negative="", show_default=False, help="Go on with the run in the folder.")
    ] = False,
    max_minutes: Annotated[float | None, Parameter(help="Stop in time; the run can be resumed.")] = None,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model from a configuration, by its name (`geomix config list sits`) or a YAML file.

    The best model is written as one file with its card; `tiny` trains on made-up fields in a minute.
    """
    from sits.task import train as run

    folder = output or Path("runs") / Path(config).stem
    print(run(config, folder, data, resume=resume, max_minutes=max_minutes, device=device))


def evaluate(
    *,
    model: ModelOption,
    data: Data = None,
    split: Literal["train", "val", "test", "all"] = "test",
    by_month: Annotated[
        bool, Parameter(negative="", show_default=False, help="Also score what is known at each month's end.")
    ] = False,
    device: DeviceOption = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on labelled data, divided as its card says; the figures are those of the card."""
    from geomix.checkpoint import load_model
    from geomix.device import choose_device
    from geomix.report import flat, json_text, table
    from sits.task import evaluate as run

    loaded = load_model(model, choose_device(device), domain="sits")
    figures = run(loaded, data, split=split, by_month=by_month)
    print(json_text(figures) if json else table(("metric", "value"), flat(figures)))
