"""The verb that reads pages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from geomix.options import BatchOptions, DeviceOption, Overwrite, Quiet, Scheduler
from htr.cli.options import (
    Beam,
    Format,
    InkPolarity,
    Language,
    Lines,
    MaxPixels,
    Merge,
    Overlay,
    Preview,
    Print,
    ReadingOrder,
    TextDirection,
    page_options,
    previewed,
)

if TYPE_CHECKING:
    from htr.predict.pages import LineReader


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
        tuple[Format, ...],
        Parameter(name="--format", help="One of these; repeat the option for several.", negative=""),
    ] = ("txt",),
    preview: Preview = True,
    model: Annotated[
        str | None,
        Parameter(
            name="--model",
            help="Name of a bundled model (see `geomix info`) or a .safetensors file; the bundled French one "
            "if not given.",
        ),
    ] = None,
    lines: Lines = None,
    lm: Language = None,
    beam: Beam = None,
    direction: TextDirection = "auto",
    ink: InkPolarity = "auto",
    merge: Merge = True,
    reading_order: ReadingOrder = "given",
    single_line: Annotated[
        bool, Parameter(negative="", show_default=False, help="Each image is one line, cut out before.")
    ] = False,
    printed: Print = "auto",
    max_pixels: MaxPixels = None,
    overlay: Overlay = None,
    device: DeviceOption = "auto",
    scheduler: Scheduler = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> int:
    """Read handwritten pages: find the lines, read them, and write text, PAGE XML, ALTO or JSON.

    A line that cannot be read keeps its place with an empty text; a page that cannot be read is reported and
    the rest goes on. Coordinates refer to the upright image (EXIF). The bundled model was trained on French
    hands of the 19th to 21st century: for another hand or language fine-tune it with `geomix htr train`.
    """
    from geomix.files import make_folder
    from geomix.parallel.jobs import run_jobs
    from htr.predict.names import Job, image_of, jobs, write_all
    from htr.predict.transcribe import transcribe_file

    picture = previewed(preview, overlay)
    options = page_options(direction, ink, merge, reading_order, single_line, printed, max_pixels)
    todo = {str(job.image): job for job in jobs(pages, lines)}
    _reader(model, device, lm, beam)  # a wrong name is one error, not one a page
    if output is not None:
        make_folder(output)

    def work(name: str) -> list[str]:
        job: Job = todo[name]
        reader, texts = _reader(model, device, lm, beam), []
        for image, page in transcribe_file(image_of(job), reader, lines=job.lines, options=options):
            if output is None:
                texts.append(page.text)
            else:
                write_all(image, page, output, format, picture, overwrite)
        return texts

    def show(texts: list[str]) -> None:
        for text in texts:
            print(text)

    return run_jobs(list(todo), work, BatchOptions(scheduler=scheduler), done=show, description="Pages")


def _reader(
    model: str | None, device: Literal["auto", "cpu", "cuda"], lm: str | None, beam: int | None
) -> "LineReader":
    """What reads lines; its models are loaded once in each process that reads."""
    from geomix.checkpoint import kept_model
    from geomix.device import choose_device
    from htr.predict.pages import default_model, model_reader

    loaded = kept_model(model or default_model(), choose_device(device), "htr")
    return model_reader(loaded, lm=lm, beam=beam)
