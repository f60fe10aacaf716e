"""The page image as lines are found and read on it: dark ink on light paper, in even light."""

from __future__ import annotations

from dataclasses import replace

from htr.io.images import PageImage
from htr.io.options import PageOptions
from htr.layout.ink import upright_polarity
from htr.layout.light import level_light


def as_sheet(image: PageImage, options: PageOptions | None = None) -> PageImage:
    """The image with dark ink on light paper, and shadows and stains levelled.

    Args:
        image: as read, pixels [H, W].
        options: say which ink is dark, or that it is to be found out.

    Returns:
        An image of the same size, [H, W].
    """
    dark = upright_polarity(image.pixels, (options or PageOptions()).polarity)
    return replace(image, pixels=level_light(dark))
