"""Pages of scribbles and a reader that needs no model, for the tests of this domain."""

import cv2
import numpy as np

from htr.page import Line, Page, box_polygon
from htr.recognise import Char, Transcription


def scribble(image, x0, x1, y, size=10.0, slope=0.0, ink=40, seed=0):
    """Write words of loops from x0 to x1 that stand on y, with some letters above and below."""
    rng = np.random.default_rng(seed)
    x = float(x0)
    while x < x1 - 2 * size:
        word = min(rng.uniform(3, 7) * size, x1 - x)
        t = np.arange(0, word, 0.5)
        tall = np.where(rng.random(len(t) // 12 + 1).repeat(12)[: len(t)] < 0.25, 1.9, 1.0)
        px = x + t + 0.25 * size * np.sin(2 * np.pi * t / (0.55 * size))
        wave = 0.5 - 0.5 * np.cos(2 * np.pi * t / (0.55 * size))
        below = np.where(rng.random(len(t) // 12 + 1).repeat(12)[: len(t)] < 0.1, 0.8 * size, 0.0)
        py = y + slope * (px - x0) - size * wave * tall + below * (1 - wave)
        points = np.stack([px, py], axis=1)
        cv2.polylines(image, [np.rint(points * 16).astype(np.int32)], False, int(ink), 2, cv2.LINE_AA, 4)
        x += word + rng.uniform(0.6, 1.0) * size


def paper(height, width, level=235, noise=3, seed=0):
    """Empty paper with some grain, uint8 [height, width]."""
    rng = np.random.default_rng(seed)
    return np.clip(level + rng.normal(0, noise, (height, width)), 0, 255).astype(np.uint8)


def page_of(rows, height=420, width=600, size=10.0, slope=0.0, ink=40, level=235):
    """A page with a line for each (x0, x1, y), and the page that describes it.

    The polygons reach a letter above the line and half a letter below.
    """
    image = paper(height, width, level)
    lines = []
    for number, (x0, x1, y) in enumerate(rows):
        scribble(image, x0, x1, y, size, slope, ink, seed=number)
        run = slope * (x1 - x0)
        polygon = [(x0, y - 2 * size), (x1, y + run - 2 * size), (x1, y + run + size), (x0, y + size)]
        lines.append(
            Line(
                id=f"l{number}",
                baseline=np.array([[x0, y], [x1, y + run]], float),
                polygon=np.array(polygon, float),
            )
        )
    return image, Page(width=width, height=height, lines=tuple(lines))


def column(x0, x1, top, count, pitch=36):
    """Rows of one column: (x0, x1, y)."""
    return [(x0, x1, top + pitch * number) for number in range(count)]


def fake_reader(images):
    """Reads `n=INDEX w=WIDTH` from every line image: the text proves which image came in which place."""
    return [said(f"n={number} w={image.shape[1]}", image.shape[1]) for number, image in enumerate(images)]


def reader_of(*texts):
    """A reader that says these texts, one a line."""

    def read(images):
        assert len(images) == len(texts)
        return [said(text, image.shape[1]) for text, image in zip(texts, images, strict=True)]

    return read


def said(text, width, confidence=0.9):
    """A transcription whose characters are spread evenly over the width of the image."""
    step = width / max(len(text), 1)
    chars = tuple(Char(c, i * step, (i + 1) * step, confidence) for i, c in enumerate(text))
    return Transcription(text, confidence, chars)


def rectangle(x0, y0, x1, y1):
    return box_polygon(x0, y0, x1, y1)
