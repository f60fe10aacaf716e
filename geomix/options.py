"""The options that the verbs of all domains share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

Output = Annotated[Path, Parameter(name=["--output", "-o"], help="The result.")]
ModelOption = Annotated[
    str, Parameter(name="--model", help="Name of a bundled model (see `geomix info`) or a .safetensors file.")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"],
    Parameter(name="--device", help="Device that computes; auto uses CUDA if it works."),
]
MemoryOption = Annotated[
    str | None,
    Parameter(name="--memory", help="Memory limit, such as 4GB; half of the free memory if not given."),
]
Scheduler = Annotated[
    str | None,
    Parameter(
        name="--scheduler",
        help="Address of a Dask scheduler whose workers share the inputs; see `geomix.parallel.cluster`.",
    ),
]
RunFolder = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"], help="Run folder for checkpoints, log and model; runs/NAME if not given."
    ),
]
Resume = Annotated[
    bool,
    Parameter(name="--resume", negative="", show_default=False, help="Continue the run in the folder."),
]
Start = Annotated[
    str | None,
    Parameter(
        name="--model",
        help="Model whose weights the training starts from: a bundled name or a .safetensors file; none for "
        "fresh weights. What the configuration says if not given.",
    ),
]
MaxMinutes = Annotated[
    float | None,
    Parameter(
        name="--max-minutes",
        help="Time limit: start no epoch, except the first, that would end later. The run can be resumed.",
    ),
]
Seeds = Annotated[int, Parameter(name="--seeds", validator=Number(gte=1), help="Number of seeds.")]
Epochs = Annotated[int, Parameter(name="--epochs", validator=Number(gte=1), help="Epochs of each training.")]
StudyFolder = Annotated[
    Path,
    Parameter(name=["--output", "-o"], help="Folder for runs and results; finished ones are kept."),
]
Overwrite = Annotated[
    bool,
    Parameter(
        name="--overwrite", negative="", show_default=False, help="Replace the output if it exists already."
    ),
]
# The command line reads this one before the verb runs; a verb only has to accept it.
Quiet = Annotated[
    bool,
    Parameter(name="--quiet", negative="", show_default=False, help="Show only warnings and errors."),
]
Json = Annotated[
    bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON instead of a table.")
]
Debug = Annotated[
    bool,
    Parameter(name="--debug", negative="", show_default=False, help="Print the traceback of every error."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The options of every verb that works on many inputs."""

    jobs: Annotated[int, Parameter(name="--jobs", validator=Number(gte=1))] = 1
    """Number of inputs to process in parallel, each in its own process."""
    scheduler: Scheduler = None
    resume: Annotated[bool, Parameter(name="--resume", negative="", show_default=False)] = False
    """Continue an interrupted call: leave out every input whose outputs are newer than the input."""
    skip_existing: Annotated[bool, Parameter(name="--skip-existing", negative="", show_default=False)] = False
    """Leave out every input whose outputs exist."""
    overwrite: Overwrite = False
    quiet: Quiet = False
    debug: Debug = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `train`."""

    output: RunFolder = None
    model: Start = None
    resume: Resume = False
    max_minutes: MaxMinutes = None
    device: DeviceOption = "auto"
    quiet: Quiet = False
    debug: Debug = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`, beside the model, the data and the split."""

    device: DeviceOption = "auto"
    json: Json = False
    quiet: Quiet = False
    debug: Debug = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The options of `study`, beside the data."""

    output: StudyFolder = Path("runs/study")
    seeds: Seeds = 3
    json: Json = False
    quiet: Quiet = False
    debug: Debug = False
