"""Drawing text with a handwriting font: word by word, with a trembling baseline, on paper with noise."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from geomix.errors import FormatError, MissingFileError
from htr.charset import normalize_text
from htr.data.inputs import Sample
from htr.page import Line, Page, Points
from htr.synthetic.words import sentence

FONT = Path(__file__).parent / "data" / "caveat.woff"
"""The font that comes with geomix."""

_MARGIN = 0.35
"""White around a line, as a share of its font size."""

Grey = NDArray[np.uint8]


@dataclass(frozen=True)
class _Ink:
    """A drawn line: how dark each pixel is, and where the letters stand."""

    darkness: NDArray[np.float32]
    baseline: float
    """Distance from the top, px."""


@lru_cache(maxsize=256)
def open_font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """Open a font file: TrueType, OpenType, WOFF or WOFF2.

    Args:
        path: the file.
        size: px.

    Raises:
        MissingFileError: if it is not there.
        FormatError: if it is not a font.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such font")
    try:
        return ImageFont.truetype(path, size)
    except OSError as error:
        raise FormatError(f"{path}: is damaged or not a font ({error})") from None


def draw_line(text: str, rng: np.random.Generator, size: int = 40, font: Path = FONT) -> Grey:
    """Write one line.

    Args:
        text: what to write; characters that the font lacks come out as boxes.
        rng: where the random numbers come from.
        size: of the font, px.
        font: its file.

    Returns:
        uint8 [h, w], dark ink on light paper.
    """
    return _on_paper(_ink(text, rng, size, font).darkness, rng)


def _ink(text: str, rng: np.random.Generator, size: int, path: Path = FONT) -> _Ink:
    font = open_font(path, size)
    margin = round(_MARGIN * size)
    ascent, descent = font.getmetrics()
    words = re.findall(r" |[^ ]+", " ".join(text.split()))
    width = round(sum(map(font.getlength, words))) + 3 * margin + len(text) * max(1, size // 20)
    image = Image.new("L", (width, ascent + descent + 2 * margin))
    pen = ImageDraw.Draw(image)
    phase, wave = rng.uniform(0, 2 * np.pi), rng.uniform(0.01, 0.04) * size
    x = float(margin)
    # Whole words, because the letters of many hands join.
    for word in words:
        y = margin + wave * np.sin(phase + x / (4 * size)) + rng.normal(0, 0.01 * size)
        pen.text((x, y), word, fill=int(rng.integers(170, 256)), font=font)
        x += font.getlength(word) + rng.uniform(-0.02, 0.04) * size
    drawn = np.asarray(image, dtype=np.uint8)[:, : round(x) + margin]
    slant = rng.uniform(-0.15, 0.25)
    matrix = np.array([[1, -slant, slant * (margin + ascent)], [0, 1, 0]], dtype=np.float32)
    leaning = cv2.warpAffine(drawn, matrix, (drawn.shape[1], drawn.shape[0]))
    return _Ink(np.asarray(leaning, dtype=np.float32) / np.float32(255), float(margin + ascent))


def _on_paper(darkness: NDArray[np.float32], rng: np.random.Generator) -> Grey:
    paper, ink = rng.uniform(215, 250), rng.uniform(20, 90)
    grain = rng.normal(0, 2.5, darkness.shape)
    return np.asarray(np.clip(paper + (ink - paper) * darkness + grain, 0, 255), dtype=np.uint8)


def draw_page(
    texts: list[str], rng: np.random.Generator, size: int = 40, margin: int = 80
) -> tuple[Grey, Page]:
    """Write a page, one text a line, with the true place of each.

    Args:
        texts: what to write, from top to bottom.
        rng: where the random numbers come from.
        size: of the font, px.
        margin: white on all sides, px.

    Returns:
        The image, uint8 [h, w], and the page with baselines, polygons and texts.
    """
    inks = [_ink(text, rng, size) for text in texts]
    pitch = round(1.6 * size)
    width = max((ink.darkness.shape[1] for ink in inks), default=0) + 2 * margin
    height = pitch * len(texts) + 2 * margin
    darkness = np.zeros((height, width), dtype=np.float32)
    lines = []
    for number, (text, ink) in enumerate(zip(texts, inks, strict=True)):
        left, base = margin, margin + pitch * (number + 1) - round(0.3 * size)
        top = base - round(ink.baseline)
        rows = slice(max(top, 0), min(top + len(ink.darkness), height))
        part = ink.darkness[rows.start - top : rows.stop - top]
        place = darkness[rows, left : left + ink.darkness.shape[1]]
        np.maximum(place, part, out=place)
        lines.append(_line(number, text, left, base, ink.darkness.shape[1], size))
    page = Page(width=width, height=height, lines=tuple(lines), source="synthetic.png")
    return _on_paper(darkness, rng), page


def _line(number: int, text: str, left: int, base: int, width: int, size: int) -> Line:
    inner = round(_MARGIN * size)
    ends = left + inner, left + width - inner
    top, bottom = base - 0.85 * size, base + 0.4 * size
    baseline: Points = np.array([[ends[0], base], [ends[1], base]], dtype=np.float64)
    corners = [[ends[0], top], [ends[1], top], [ends[1], bottom], [ends[0], bottom]]
    polygon: Points = np.array(corners, dtype=np.float64)
    return Line(id=f"line_{number + 1:04d}", baseline=baseline, polygon=polygon, text=normalize_text(text))


def synthetic_samples(count: int, seed: int = 0) -> list[Sample]:
    """Write lines for a training that needs no data; every fifth page of four lines is for validation.

    Args:
        count: how many lines.
        seed: the same seed gives the same lines.
    """
    rng = np.random.default_rng(seed)
    samples = []
    for number in range(count):
        page = number // 4
        text = normalize_text(sentence(rng))
        image = draw_line(text, rng, size=int(rng.integers(28, 44)))
        split = "val" if page % 5 == 4 else "train"
        samples.append(
            Sample(f"{page:04d}_{number % 4}", f"page_{page:04d}", "synthetic", split, text, image)
        )
    return samples
