"""How a page is read, as one value that all rooms take."""

from dataclasses import dataclass
from typing import Literal

from htr.io.images import MAX_PIXELS
from htr.page import Direction

Polarity = Literal["auto", "dark", "light"]


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """How lines are found and put in order."""

    direction: Direction | Literal["auto"] = "auto"
    """The base direction of the text: what the XML says, else what most letters are, unless given."""
    polarity: Polarity = "auto"
    """`dark` ink on light paper, `light` on dark, or find out."""
    merge: bool = True
    """Whether collinear pieces become one line."""
    order: Literal["given", "columns"] = "given"
    """Whether lines from a file keep its reading order; found ones are always put in order by columns."""
    single_line: bool = False
    """The whole image is one line, cut out before."""
    printed: Literal["auto", "text", "skip"] = "auto"
    """Printed and typed lines: `auto` reads and marks them, beside the text where at least half of the lines
    are handwritten; `text` always has them in the text; `skip` does not read them."""
    max_pixels: int = MAX_PIXELS
    """The largest page, width times height, that is read."""
