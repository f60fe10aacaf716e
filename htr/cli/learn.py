"""The verbs that train, judge and import models."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.learn.splits import Split
from geomix.options import (
    Epochs,
    EvaluateOptions,
    ModelOption,
    Overwrite,
    Quiet,
    StudyOptions,
    TrainOptions,
)
from htr.cli.options import Beam, Language

Data = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--data",
        negative="",
        consume_multiple=True,
        help="Tars of line images, folders of them, or folders of pages with PAGE or ALTO of the same names.",
    ),
]


def train(
    config: str,
    /,
    *,
    data: Data = (),
    charset: Annotated[
        Literal["keep", "union", "new"],
        Parameter(
            help="For fine-tuning: keep the model's characters, add new ones, or take those of the data."
        ),
    ] = "union",
    options: TrainOptions = TrainOptions(),
) -> None:
    """Train a model from a configuration, by its name (`geomix config list htr`) or a YAML file.

    The best model is written as one file with its card. With --model it learns on from there: a few pages of
    your own hand are the best remedy for a hand or a language that the bundled model reads badly.
    """
    from geomix.errors import InputError
    from geomix.learn.verbs import train_verb
    from htr.task.experiment import HtrExperiment

    if options.model not in (None, "none") and not data:
        raise InputError(f"--model {options.model}: give the lines to learn on with --data")
    train_verb(HtrExperiment(config, charset), data or None, options)


def evaluate(
    *,
    data: Data,
    model: ModelOption = "small",
    split: Split = "val",
    given_lines: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="For pages: read the true lines instead of finding any."
        ),
    ] = False,
    lm: Language = None,
    beam: Beam = None,
    options: EvaluateOptions = EvaluateOptions(),
) -> None:
    """Score a model on line images or on whole pages with known text; the keys are those of its card.

    Tars are split by page as their index and the card of the model say. Pages in folders named train, val or
    test belong to that split; all others count for every split. `cer` is all edits through all characters,
    text in NFC; `wer` counts words between spaces, `wer_punctuation` punctuation marks as words of their own.
    On pages `cer` compares the whole text in reading order, `cer_matched` only the true lines.
    """
    from geomix.learn.verbs import evaluate_verb
    from htr.task.experiment import HtrExperiment

    more = {"given_lines": given_lines, "lm": lm, "beam": beam}
    evaluate_verb(HtrExperiment, model, data, split, options, **more)


def study(*, data: Data, epochs: Epochs = 6, options: StudyOptions = StudyOptions(seeds=1)) -> None:
    """Repeat the comparison of mixers in the documentation: the validation lines, all with one budget."""
    from geomix.learn.verbs import study_verb
    from htr.study import KEYS, methods

    study_verb(methods(data, epochs), KEYS, options)


def import_model(
    checkpoint: Path,
    /,
    *,
    output: Annotated[
        Path, Parameter(name=["--output", "-o"], help="The model file to write, .safetensors.")
    ],
    charset: Annotated[
        Path,
        Parameter(
            help="Text file with the characters in the order of the classes, on one line; HTR-VT keeps them "
            "nowhere, its training labels sorted give them."
        ),
    ],
    heads: Annotated[
        int | None,
        Parameter(help="Number of attention heads; the weights do not tell. 6, as published, if not given."),
    ] = None,
    licence: Annotated[str, Parameter(help="Licence of the weights, for the card.")] = "unknown",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Turn a published HTR-VT checkpoint into a model file of geomix. Nothing in it is executed."""
    from geomix.errors import MissingFileError
    from htr.charset import Charset
    from htr.model.published import import_htr_vt

    if not charset.is_file():
        raise MissingFileError(f"{charset}: there is no such file with the characters")
    characters = charset.read_text(encoding="utf-8").rstrip("\r\n").removeprefix("\ufeff")
    import_htr_vt(checkpoint, output, Charset(characters), heads=heads, licence=licence, overwrite=overwrite)
    print(output)
