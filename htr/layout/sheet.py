"""The page image as lines are found and read on it: dark ink on light paper."""

from __future__ import annotations

from dataclasses import replace

from htr.io.images import PageImage
from htr.io.options import PageOptions
from htr.layout.ink import upright_polarity


def as_sheet(image: PageImage, options: PageOptions | None = None) -> PageImage:
    """The image with dark ink on light paper.

    Args:
        image: as read, pixels [H, W].
        options: say which ink is dark, or that it is to be found out.

    Returns:
        An image of the same size, [H, W].
    """
    return replace(image, pixels=upright_polarity(image.pixels, (options or PageOptions()).polarity))
