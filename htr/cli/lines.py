"""The verb that finds lines without reading them."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from geomix.options import Json, Overwrite, Quiet
from htr.cli.options import (
    InkPolarity,
    Lines,
    MaxPixels,
    Merge,
    Overlay,
    Preview,
    ReadingOrder,
    TextDirection,
    page_options,
    previewed,
)

if TYPE_CHECKING:
    from htr.task.scoring import PageScore

log = logging.getLogger(__name__)


def lines(
    *pages: Annotated[Path, Parameter(help="JPEG, PNG, TIFF (all its pages), WebP or PDF files.")],
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Folder for the results; none are written without."),
    ] = None,
    format: Annotated[
        tuple[Literal["page", "alto", "json"], ...],
        Parameter(name="--format", help="One of these; repeat the option for several.", negative=""),
    ] = ("page",),
    preview: Preview = True,
    lines: Lines = None,
    truth: Annotated[
        Path | None,
        Parameter(
            help="PAGE or ALTO with the true lines, or a folder of them: print how well they were found."
        ),
    ] = None,
    direction: TextDirection = "auto",
    ink: InkPolarity = "auto",
    merge: Merge = True,
    reading_order: ReadingOrder = "given",
    max_pixels: MaxPixels = None,
    overlay: Overlay = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Find the lines of pages and put them in reading order, without reading them.

    With --truth it prints recall, precision and F1: lines match one to one where their boxes overlap by 0.4
    (intersection over union).
    """
    from geomix.files import make_folder
    from geomix.parallel.jobs import run_jobs
    from htr.io.images import read_images
    from htr.io.pages import read_lines
    from htr.layout.sheet import as_sheet
    from htr.predict.names import image_of, jobs, write_all
    from htr.predict.pages import find_page
    from htr.task.scoring import PageScore

    picture = previewed(preview, overlay)
    options = page_options(direction, ink, merge, reading_order, max_pixels=max_pixels)
    todo = {str(job.image): job for job in jobs(pages, lines)}
    true = {str(job.image): job.lines for job in jobs(pages, truth)} if truth is not None else {}
    if output is not None:
        make_folder(output)
    total, by_page = PageScore(), dict[str, PageScore]()

    def work(name: str) -> None:
        job = todo[name]
        given = read_lines(job.lines) if job.lines is not None else None
        size = (given.width, given.height) if given is not None else None
        for image in read_images(image_of(job), options.max_pixels, size):
            sheet = as_sheet(image, options)
            page = find_page(sheet, given, options)
            if page.is_sideways:
                log.warning("%s: its lines run from top to bottom; `transcribe` reads it turned", image.path)
            if name in true:
                expected = find_page(sheet, read_lines(true[name] or ""), options)
                by_page[image.name] = PageScore()
                for score in (total, by_page[image.name]):
                    score.add(page, expected)
            if output is not None:
                write_all(image, page, output, format, picture, overwrite)
            elif truth is None:
                print(f"{image.name}\t{len(page.lines)} lines\t{len(page.regions)} columns")

    code = run_jobs(list(todo), work, description="Pages")
    if truth is not None:
        _show(total, by_page, json)
    return code


def _show(total: "PageScore", by_page: "dict[str, PageScore]", json: bool) -> None:
    from geomix.report import json_text, table

    figures = total.line_scores()
    single = {name: score.line_scores() for name, score in by_page.items()}
    if json:
        print(json_text({**figures, "by_page": single}))
        return
    rows = [(name, *list(scores.values())[1:]) for name, scores in [*single.items(), ("all", figures)]]
    print(table(("page", *list(figures)[1:]), rows))
