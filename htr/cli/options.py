"""Options that several verbs of this domain share."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from htr.io.options import PageOptions

log = logging.getLogger(__name__)

Lines = Annotated[
    Path | None,
    Parameter(
        name="--lines",
        help="PAGE, ALTO or JSON whose lines and order are used as they are; for many pages a folder with "
        "one file of the same name each.",
    ),
]
Format = Literal["txt", "page", "alto", "json"]
TextDirection = Annotated[
    Literal["auto", "ltr", "rtl"],
    Parameter(
        name="--direction", help="How the text runs; auto takes it from the file, else from the letters."
    ),
]
InkPolarity = Annotated[
    Literal["auto", "dark", "light"],
    Parameter(name="--ink", help="Whether the ink is dark on light or light on dark; auto finds out."),
]
Merge = Annotated[bool, Parameter(name="--merge", help="Join pieces of writing that lie on one line.")]
ReadingOrder = Annotated[
    Literal["given", "columns"],
    Parameter(
        name="--reading-order", help="For lines from a file: keep their order, or sort them by columns."
    ),
]
Language = Annotated[
    str | None,
    Parameter(
        name="--lm",
        help="Language model: french, which comes with geomix, a .lm file of `geomix htr lm train`, a text "
        "to learn one from, or none.",
    ),
]
Beam = Annotated[
    int | None,
    Parameter(
        name="--beam",
        help="Texts kept at each step of the search; 1 is fastest, 16 with a language model.",
    ),
]
Preview = Annotated[
    bool, Parameter(name="--preview", help="Also draw the lines onto the page, as NAME.preview.jpg.")
]
Overlay = Annotated[bool | None, Parameter(name="--overlay", show=False)]
"""The name of `--preview` until geomix 0.5; gone in the release after."""
Print = Annotated[
    Literal["auto", "text", "skip"],
    Parameter(
        name="--print",
        help="Printed and typed lines: auto reads and marks them, and leaves them out of txt where at least "
        "half of the lines are handwritten; text has them in txt always; skip does not read them.",
    ),
]
MaxPixels = Annotated[
    str | None,
    Parameter(
        name="--max-pixels", help="Largest page, width times height, such as 500MP; 300MP if not given."
    ),
]


def page_options(
    direction: Literal["auto", "ltr", "rtl"] = "auto",
    ink: Literal["auto", "dark", "light"] = "auto",
    merge: bool = True,
    reading_order: Literal["given", "columns"] = "given",
    single_line: bool = False,
    printed: Literal["auto", "text", "skip"] = "auto",
    max_pixels: str | None = None,
) -> "PageOptions":
    """The flags of a verb as the one value that the rooms below take."""
    from htr.io.options import PageOptions

    return PageOptions(
        direction=direction,
        polarity=ink,
        merge=merge,
        order=reading_order,
        single_line=single_line,
        printed=printed,
        max_pixels=pixels(max_pixels),
    )


def previewed(preview: bool, overlay: bool | None) -> bool:
    """Whether a preview is written, also where it is asked for by the old name of the option."""
    if overlay is None:
        return preview
    log.warning("--overlay is now --preview; the old name goes with the next release")
    return overlay


def pixels(text: str | None) -> int:
    """A number of pixels, such as `500MP` or `300000000`; the default for None.

    Raises:
        InputError: if it is no number.
    """
    import re

    from geomix.errors import InputError
    from htr.io.images import MAX_PIXELS

    if text is None:
        return MAX_PIXELS
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(MP|GP)?\s*", text, re.IGNORECASE)
    if found is None or float(found.group(1)) <= 0:
        raise InputError(f"--max-pixels {text!r}: give a number of pixels such as 500MP")
    unit = {"mp": 1_000_000, "gp": 1_000_000_000}.get((found.group(2) or "").lower(), 1)
    return int(float(found.group(1)) * unit)
