"""Pages of scribbles and a reader that needs no model, for the tests of this domain."""

import cv2
import numpy as np
import torch
from lxml import etree

from geomix.checkpoint import Card, save_model
from htr.io.images import PageImage
from htr.model.network import LineRecogniser, ModelConfig
from htr.page import Line, Page, box_polygon
from htr.predict.lines import Char, Transcription
from tests.helpers import shared_data

MIXER = {"name": "pom", "gate_heads": 4}


def scribble(image, x0, x1, y, size=10.0, slope=0.0, ink=40, seed=0, pen=2):
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
        cv2.polylines(image, [np.rint(points * 16).astype(np.int32)], False, int(ink), pen, cv2.LINE_AA, 4)
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


def as_page(image):
    """An image as it comes out of a file with one page."""
    return PageImage(image, image.shape[1], image.shape[0], "page.png", 0, 1)


def check(kind, data):
    """Validate PAGE 2019 or ALTO 4.3 against its schema."""
    name = {"page": "pagecontent.xsd", "alto": "alto-4-3.xsd"}[kind]
    schema = etree.XMLSchema(etree.parse(shared_data(f"htr/xml/{name}")))
    schema.assertValid(etree.fromstring(data))


def tiny_model(path, characters="abc "):
    """A model file with random weights, which reads something in milliseconds."""
    torch.manual_seed(0)
    shape = {"kind": "compact", "channels": (8, 8, 8, 16), "blocks": (0, 0, 0, 0)}
    config = ModelConfig(classes=len(characters) + 1, height=32, stem=shape, dim=16, depth=1, mixer=MIXER)
    model = LineRecogniser(config)
    card = Card(
        domain="htr",
        name="tiny",
        model=config.model_dump(mode="json"),
        charset=tuple(characters),
        inputs={"height": 32},
    )
    save_model(model, card, path)
    return path


def rectangle(x0, y0, x1, y1):
    return box_polygon(x0, y0, x1, y1)
