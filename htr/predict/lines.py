"""Line images in, texts out: one result for every line, whether alone or many on a page."""

import logging
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from geomix.checkpoint import card_of
from geomix.errors import InputError
from htr.charset import Charset
from htr.data.inputs import Image, Inputs, prepare
from htr.data.unroll import STRIDE, Slots, unroll
from htr.model.ctc import Symbol, line_confidence
from htr.model.network import LineRecogniser
from htr.predict.decode import decode
from htr.predict.lm import CharacterModel

log = logging.getLogger(__name__)

COLUMNS = 16_384
"""Pixel columns that are read at once where lines do not see each other; bounds the memory."""

BEAM = 16
"""Texts kept from token to token where a language model asks for a beam search."""

_PUBLISHED_WIDTH = 512
_PAGE_HEIGHT = 300


class Char(NamedTuple):
    """A character of a line and its approximate place."""

    char: str
    start_px: float
    """Left edge in the line image as given, px."""
    end_px: float
    """Right edge in the line image as given, px."""
    confidence: float
    """The highest probability in its run of the network's output, 0 to 1."""


@dataclass(frozen=True)
class Transcription:
    """What a line says."""

    text: str
    """NFC, in the order of the image from left to right; no spaces at the ends, none doubled."""
    confidence: float
    """The geometric mean of the confidences of the characters, 0 to 1; 1 for an empty text."""
    chars: tuple[Char, ...]
    """One entry a character of `text`."""


def transcribe_lines(
    model: LineRecogniser,
    images: Sequence[Image],
    *,
    lm: CharacterModel | None = None,
    beam: int | None = None,
    columns: int = COLUMNS,
) -> list[Transcription]:
    """Read lines of one page, in reading order.

    Args:
        model: a recogniser with its card, as `load_model` gives it.
        images: grey uint8 [h, w] each, dark ink on light paper; any size. An image without pixels gives an
            empty text, so that result n always belongs to image n.
        lm: a language model for the beam search.
        beam: texts kept from token to token; 1 follows the best path, the default without a language model.
        columns: pixel columns that are read at once.

    Returns:
        One transcription an image.

    Raises:
        CheckpointError: if the model has no card.
        InputError: if an image is not grey uint8, or the beam is below 1.
    """
    card = card_of(model)
    if card.charset is None:
        raise InputError(f"the model {card.name!r} has no charset; is it one for handwriting?")
    charset, inputs = Charset(card.charset), Inputs.of(card.inputs)
    width = beam if beam is not None else (BEAM if lm is not None else 1)
    ready: list[NDArray[np.float32] | None] = []
    for image in images:
        _warn_of_page(image)
        ready.append(prepare(image, inputs) if image.size else None)
    lines = [torch.from_numpy(line) for line in ready if line is not None]
    probabilities = line_probabilities(model, lines, columns)
    results = []
    for image, line in zip(images, ready, strict=True):
        if line is None:
            results.append(Transcription("", 1.0, ()))
            continue
        symbols = decode(next(probabilities), charset, beam=width, lm=lm)
        results.append(_transcription(symbols, charset, image.shape[1] / line.shape[1], image.shape[1]))
    return results


def line_probabilities(
    model: LineRecogniser, lines: Sequence[torch.Tensor], columns: int = COLUMNS
) -> Iterator[NDArray[np.float32]]:
    """Give the probabilities of each line, [tokens, classes], in order.

    Args:
        model: the recogniser.
        lines: prepared images of one page, float32 [height, w].
        columns: pixel columns that are read at once, unless the lines of a page see each other.
    """
    device = next(model.parameters()).device
    for group in _groups(lines, model, columns):
        images, slots = _lay_out(group, model)
        with torch.inference_mode():
            logits = model.read(images.to(device), slots.to(device))
        whole = logits.float().softmax(-1).cpu().numpy()
        offsets = slots.offsets().tolist()
        for start, end in pairwise(offsets):
            yield whole[start:end]


def _groups(
    lines: Sequence[torch.Tensor], model: LineRecogniser, columns: int
) -> Iterator[list[torch.Tensor]]:
    """Lines that are read together: a whole page where they see each other, else as many as fit."""
    group: list[torch.Tensor] = []
    total = 0
    for line in lines:
        alone = model.config.norms == "published"
        full = model.config.context == "line" and total + line.shape[1] > columns
        if group and (alone or full):
            yield group
            group, total = [], 0
        group.append(line)
        total += line.shape[1]
    if group:
        yield group


def _lay_out(group: Sequence[torch.Tensor], model: LineRecogniser) -> tuple[torch.Tensor, Slots]:
    images, slots = unroll([group])
    if model.config.norms == "published":
        # Its images were white behind the line up to this width, and its norms saw that.
        missing = -images.shape[2] % _PUBLISHED_WIDTH
        images = torch.nn.functional.pad(images, (0, missing))
    return images, slots


def _transcription(symbols: Sequence[Symbol], charset: Charset, scale: float, width: int) -> Transcription:
    """Put characters together; a place is token * 4 px * `scale`, which is px of the image over model px."""
    chars: list[Char] = []
    for symbol, (left, right) in zip(symbols, _edges(symbols), strict=True):
        char = charset.decode([symbol.number])
        place = (min(left * STRIDE * scale, width), min(right * STRIDE * scale, width))
        if char == " " and (not chars or chars[-1].char == " "):
            continue
        joined = unicodedata.normalize("NFC", chars[-1].char + char) if chars else char
        if chars and unicodedata.combining(char) and len(joined) == 1:
            # An accent that the model wrote by itself is a part of its letter.
            before = chars.pop()
            chars.append(Char(joined, before.start_px, place[1], min(before.confidence, symbol.confidence)))
        else:
            chars.append(Char(char, *place, symbol.confidence))
    if chars and chars[-1].char == " ":
        chars.pop()
    confidence = line_confidence([char.confidence for char in chars])
    return Transcription("".join(char.char for char in chars), confidence, tuple(chars))


def _edges(symbols: Sequence[Symbol]) -> list[tuple[float, float]]:
    """Where each character begins and ends, in tokens: halfway between its run and that of the next."""
    if not symbols:
        return []
    between = [(left.end + right.start) / 2 for left, right in pairwise(symbols)]
    edges = [float(symbols[0].start), *between, float(symbols[-1].end)]
    return list(pairwise(edges))


def _warn_of_page(image: Image) -> None:
    height, width = image.shape[:2]
    if height >= _PAGE_HEIGHT and height > width / 8:
        log.warning(
            "an image of %d x %d px is read as one line and looks like a page; find its lines first",
            *(width, height),
        )
