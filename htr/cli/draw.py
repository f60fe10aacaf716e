"""The verb that writes lines with fonts, to be learned beside real ones."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import Overwrite, Quiet


def draw(
    *texts: Annotated[
        Path,
        Parameter(help="What to write: UTF-8 text files, or tars of lines, whose training texts are taken."),
    ],
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The tar to write.")],
    font: Annotated[
        tuple[Path, ...],
        Parameter(
            name="--font",
            negative="",
            consume_multiple=True,
            help="TrueType, OpenType or WOFF files, or folders of them; the font of geomix if not given.",
        ),
    ] = (),
    count: Annotated[int, Parameter(help="Lines to write.")] = 5000,
    capitals: Annotated[float, Parameter(help="Share of lines in capitals throughout, 0 to 1.")] = 0.2,
    seed: Annotated[int, Parameter(help="The same seed writes the same lines.")] = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write lines with handwriting fonts, a tar that `train --data` takes beside real lines.

    Many hands in fonts teach forms of letters, and capitals, that a few hundred real hands do not show. All
    lines are for training; held-out pages must come from real ones. Mind the licences of the fonts.
    """
    from geomix.errors import InputError
    from geomix.files import new_file
    from geomix.progress import progress
    from htr.data.tars import write_tar
    from htr.synthetic import FONT, find_fonts, font_lines

    if output.suffix != ".tar":
        raise InputError(f"{output}: lines are written to a tar; end the name in .tar")
    lines = font_lines(_read(texts), find_fonts(font or (FONT,)), count, capitals=capitals, seed=seed)
    with new_file(output, overwrite) as file:
        write_tar(progress(lines, "Lines", total=count), file, output.stem)
    print(output)


def _read(paths: tuple[Path, ...]) -> list[str]:
    from geomix.errors import FormatError, InputError, MissingFileError
    from htr.data.sources import read_labelled_lines

    if not paths:
        raise InputError("there is no text to write; name a text file or tars of lines")
    texts: list[str] = []
    for path in paths:
        if path.suffix == ".tar" or path.is_dir():
            texts += [sample.text for sample in read_labelled_lines([path]) if sample.split == "train"]
            continue
        if not path.is_file():
            raise MissingFileError(f"{path}: there is no such text file")
        try:
            texts += path.read_text("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise FormatError(f"{path}: is not a text file in UTF-8") from None
    return texts
