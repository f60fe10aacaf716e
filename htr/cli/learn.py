"""The verbs that train, judge and import models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from geomix.options import (
    DeviceOption,
    Epochs,
    Json,
    MaxMinutes,
    Overwrite,
    Quiet,
    Resume,
    RunFolder,
    Seeds,
    StudyFolder,
)

if TYPE_CHECKING:
    from htr.predict.pages import LineReader

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
    output: RunFolder = None,
    model: Annotated[
        str | None,
        Parameter(name="--model", help="Go on from a bundled model or a .safetensors file: fine-tuning."),
    ] = None,
    charset: Annotated[
        Literal["keep", "union", "new"],
        Parameter(
            help="For fine-tuning: keep the model's characters, add new ones, or take those of the data."
        ),
    ] = "union",
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model from a configuration, by its name (`geomix config list htr`) or a YAML file.

    The best model is written as one file with its card. With --model it learns on from there: a few pages of
    your own hand are the best remedy for a hand or a language that the bundled model reads badly.
    """
    from geomix.errors import InputError
    from htr.task.training import train as run

    if model and not data:
        raise InputError(f"--model {model}: give the lines to learn on with --data")
    folder = output or Path("runs") / Path(config).stem
    file = run(
        *(config, folder, data or None),
        start=model,
        charset=charset,
        resume=resume,
        max_minutes=max_minutes,
        device=device,
    )
    print(file)


def evaluate(
    *,
    data: Data,
    model: Annotated[
        str | None,
        Parameter(
            name="--model",
            help="Name of a bundled model or a .safetensors file; the bundled one if not given.",
        ),
    ] = None,
    split: Literal["train", "val", "test", "all"] = "val",
    given_lines: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="For pages: read the true lines instead of finding any."
        ),
    ] = False,
    lm: Annotated[Path | None, Parameter(help="Plain text for a character language model.")] = None,
    beam: Annotated[
        int | None, Parameter(help="Texts kept at each step; 1 is fastest, 16 with --lm.")
    ] = None,
    device: DeviceOption = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on line images or on whole pages with known text; the keys are those of its card.

    Tars are split by page as their index says. Pages in folders named train, val or test belong to that
    split; all others count for every split. `cer` is all edits through all characters, text in NFC; `wer`
    counts words between spaces, `wer_punctuation` punctuation marks as words of their own. On pages `cer`
    compares the whole text in reading order, `cer_matched` only the true lines.
    """
    from geomix.errors import InputError
    from geomix.report import flat, json_text, table
    from htr.predict.lm import CharacterModel
    from htr.predict.pages import default_model, load, model_reader

    tars = [tar for path in data for tar in ([path] if path.suffix == ".tar" else sorted(path.glob("*.tar")))]
    pages = [path for path in data if path.suffix != ".tar" and not any(path.glob("*.tar"))]
    if bool(tars) == bool(pages):
        raise InputError("--data: give tars of lines or pages; they have figures of their own, so not both")
    language = CharacterModel.from_file(lm) if lm is not None else None
    reader = model_reader(load(model or default_model(), device), lm=language, beam=beam)
    lines = _score_lines(tars, split, reader) if tars else None
    figures = lines or _score_pages(pages, split, reader, given_lines)
    print(json_text(figures) if json else table(("metric", "value"), flat(figures)))


def _score_lines(tars: list[Path], split: str, reader: "LineReader") -> dict[str, Any]:
    from htr.data.sources import new_hands
    from htr.data.tars import read_tar
    from htr.task.scoring import evaluate_lines

    samples = [sample for path in tars for sample in read_tar(path)]
    chosen = [sample for sample in samples if split in ("all", sample.split)]
    return evaluate_lines(chosen, reader, new_hands(samples))


def _score_pages(paths: list[Path], split: str, reader: "LineReader", given_lines: bool) -> dict[str, Any]:
    from geomix.errors import InputError
    from htr.data.pages import SPLITS, true_pages
    from htr.task.scoring import evaluate_pages

    pages = [
        page
        for page in true_pages(paths)
        if split in ("all", page.split) or page.image.parent.name not in SPLITS
    ]
    if not pages:
        raise InputError(f"none of the pages belongs to the split {split!r}; choose another --split")
    return evaluate_pages(pages, reader, given_lines=given_lines)


def study(
    *,
    data: Data,
    output: StudyFolder = Path("runs/study/htr"),
    seeds: Seeds = 1,
    epochs: Epochs = 6,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the comparison of mixers in the documentation: the validation lines, all with one budget."""
    from geomix.learn.study import report
    from htr.study import KEYS
    from htr.study import study as run

    print(report(run(data, output, seeds, epochs), KEYS, json))


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
    import_htr_vt(checkpoint, output, Charset(characters), licence=licence, overwrite=overwrite)
    print(output)
