"""Line images with their texts: reading them, and the one preprocessing of training and prediction."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geomix.config import Config, parse_config
from geomix.errors import InputError
from htr.bidi import as_seen
from htr.data.level import find_rows, measure, straighten

log = logging.getLogger(__name__)

Image = NDArray[np.uint8]

MAX_WIDTH = 16_384
"""The widest line that is read, px at the model's height; about 40 words fill 1,500 px."""

_MOSTLY = 0.8
"""Share of the height of a line image that its writing takes where it has no wide margin."""


class Inputs(Config):
    """The whole preprocessing of a line image."""

    height: int = Field(48, ge=16, le=256)
    """Height to which a line is scaled with its proportions kept, px."""
    contrast: bool = True
    """Whether paper and ink of each line are stretched to 0 and 1."""
    level: bool = False
    """Whether writing is made level, of one size and even, see `htr.level`."""

    @classmethod
    def of(cls, inputs: "Inputs | Mapping[str, Any]") -> "Inputs":
        """Take them as they are or from the card of a model."""
        return inputs if isinstance(inputs, Inputs) else parse_config(cls, inputs, "inputs of the card")


@dataclass(frozen=True, eq=False)
class Sample:
    """One line of writing with its text."""

    id: str
    page: str
    source: str
    """The set that the line belongs to, such as `copiste`."""
    split: str
    text: str
    image: Image
    """Uint8 [h, w], dark ink on light paper as read, or ink high on 0 once `ready`."""


def normalize_line(line_image: Image, inputs: Inputs | Mapping[str, Any]) -> Image:
    """Bring a line to the model's height, contrast and level, as uint8 with ink high on paper 0.

    Everything is measured on the line itself: no other line and no padding has a say.

    Args:
        line_image: grey uint8 [h, w], dark ink on light paper.
        inputs: the preprocessing that the model was trained with.

    Raises:
        InputError: if the image is not uint8 [h, w], or is empty.
    """
    settings = Inputs.of(inputs)
    if line_image.dtype != np.uint8 or line_image.ndim != 2:
        raise InputError(
            f"a line image must be grey uint8 [h, w], got {line_image.dtype} {list(line_image.shape)}"
        )
    if 0 in line_image.shape:
        raise InputError(f"a line image must hold pixels, got {list(line_image.shape)}")
    if not settings.level:
        return _ink(_scaled(line_image, settings.height), settings)
    # Twice the height first: enough detail for straightening, and no more work for a large scan.
    height = line_image.shape[0]
    ink = _ink(_scaled(line_image, min(height, 2 * settings.height)), settings)
    measured = measure(ink)
    top, bottom = find_rows(ink, measured.level)
    if bottom - top < _MOSTLY and height > settings.height:
        # A wide margin: once more without it, for the detail to go to the writing.
        first, last = int(top * height), ceil(bottom * height)
        return normalize_line(line_image[first : max(last, first + 1)], settings)
    return _no_wider(straighten(ink, settings.height, measured))


def _scaled(image: Image, height: int) -> Image:
    old_height, old_width = image.shape
    width = max(4, round(old_width * height / old_height))
    method = cv2.INTER_AREA if old_height > height else cv2.INTER_LINEAR
    return _no_wider(np.asarray(cv2.resize(image, (width, height), interpolation=method), dtype=np.uint8))


def _no_wider(image: Image) -> Image:
    height, width = image.shape
    if width <= MAX_WIDTH:
        return image
    log.warning(
        "a line is %d px wide at a height of %d px; squeezed to %d px. Is it one line?",
        width,
        height,
        MAX_WIDTH,
    )
    return np.asarray(cv2.resize(image, (MAX_WIDTH, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _ink(image: Image, settings: Inputs) -> Image:
    """Turn dark on light into high on 0; with contrast, the 80th percentile is paper and the 1st is ink."""
    if not settings.contrast:
        return np.asarray(255 - image, dtype=np.uint8)
    ink, paper = np.percentile(image, (1, 80))
    # At least 40 grey levels: an empty line must not become noise.
    scaled = (paper - image.astype(np.float32)) * (255 / max(paper - ink, 40.0))
    return np.asarray(np.clip(scaled, 0, 255), dtype=np.uint8)


def prepare(line_image: Image, inputs: Inputs | Mapping[str, Any]) -> NDArray[np.float32]:
    """Make the image that a model reads: one preprocessing for training and prediction.

    Args:
        line_image: grey uint8 [h, w], dark ink on light paper.
        inputs: the preprocessing that the model was trained with, `card.inputs`.

    Returns:
        float32 [height, width], paper 0 and ink up to 1.

    Raises:
        InputError: if the image is not uint8 [h, w], or is empty.
    """
    return normalize_line(line_image, inputs).astype(np.float32) / np.float32(255)


def ready(samples: Iterable[Sample], inputs: Inputs | Mapping[str, Any]) -> list[Sample]:
    """Bring all images to the model's height and contrast once, so that they fit in memory.

    Texts come in the order in which they are seen from left to right, which is what a recogniser learns.
    """
    settings = Inputs.of(inputs)
    return [
        replace(sample, image=normalize_line(sample.image, settings), text=as_seen(sample.text))
        for sample in samples
    ]
