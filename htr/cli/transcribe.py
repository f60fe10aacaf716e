"""The verb that reads pages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from geomix.options import DeviceOption, Overwrite, Quiet
from htr.cli.options import (
    Format,
    InkPolarity,
    Lines,
    MaxPixels,
    Merge,
    ReadingOrder,
    TextDirection,
    page_options,
)

if TYPE_CHECKING:
    from htr.lm import CharacterModel


def transcribe(
    *pages: Annotated[
        Path,
        Parameter(
            help="JPEG, PNG, TIFF (all its pages), WebP or PDF files; or PAGE or ALTO beside their image."
        ),
    ],
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"], help="Folder for the results; the text goes to stdout if not given."
        ),
    ] = None,
    format: Annotated[
        tuple[Format, ...], Parameter(name="--format", help="One or more of these.", negative="")
    ] = ("txt",),
    overlay: Annotated[
        bool, Parameter(help="Also draw the lines onto the page, as NAME.overlay.png.")
    ] = True,
    model: Annotated[
        str | None,
        Parameter(
            name="--model",
            help="Name of a bundled model (see `geomix info`) or a .safetensors file; the bundled French one "
            "if not given.",
        ),
    ] = None,
    lines: Lines = None,
    lm: Annotated[
        Path | None, Parameter(help="Plain text like that of the pages, for a character language model.")
    ] = None,
    beam: Annotated[
        int | None, Parameter(help="Texts kept at each step of the search; 1 is fastest, 16 with --lm.")
    ] = None,
    direction: TextDirection = "auto",
    ink: InkPolarity = "auto",
    merge: Merge = True,
    reading_order: ReadingOrder = "given",
    single_line: Annotated[
        bool, Parameter(negative="", show_default=False, help="Each image is one line, cut out before.")
    ] = False,
    max_pixels: MaxPixels = None,
    device: DeviceOption = "auto",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> int:
    """Read handwritten pages: find the lines, read them, and write text, PAGE XML, ALTO or JSON.

    A line that cannot be read keeps its place with an empty text; a page that cannot be read is reported and
    the rest goes on. Coordinates refer to the upright image (EXIF). The bundled model was trained on French
    hands of the 19th to 21st century: for another hand or language fine-tune it with `geomix htr train`.
    """
    from geomix.batch import run_batch
    from htr.cli.jobs import Job, image_of, jobs, write_all
    from htr.predict import default_model, load, model_reader, transcribe_file

    options = page_options(direction, ink, merge, reading_order, single_line, max_pixels)
    todo = {str(job.image): job for job in jobs(pages, lines)}
    reader = model_reader(load(model or default_model(), device), lm=_language(lm), beam=beam)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)

    def work(name: str) -> None:
        job: Job = todo[name]
        for image, page in transcribe_file(image_of(job), reader, lines=job.lines, options=options):
            if output is None:
                print(page.text)
            else:
                write_all(image, page, output, format, overlay, overwrite)

    return run_batch(list(todo), work, "Pages")


def _language(path: Path | None) -> "CharacterModel | None":
    from htr.lm import CharacterModel

    return None if path is None else CharacterModel.from_file(path)
