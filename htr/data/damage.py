"""Line images as other tools cut them and as worse scans show them; the text stays what it is.

Everything works on grey uint8 images with dark ink on light paper, [height, width], before a line is set
straight: what is cut off or stands beside the line also misleads the measures by which it is levelled.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import cv2
import numpy as np

from htr.data.inputs import Image, Sample

Change = Callable[[Image, np.random.Generator], Image]


def paper_of(image: Image) -> float:
    """The grey of the paper: the 80th percentile, as in `htr.data.inputs`."""
    return float(np.percentile(image, 80))


def shave(image: Image, rng: np.random.Generator) -> Image:
    """Cut tips of ascenders and descenders along a wave, as generic polygons do, by up to a sixth each."""
    height, width = image.shape
    knots = max(2, width // (3 * height) + 2)
    top, bottom = (
        cv2.resize(rng.uniform(0, height / 6, (1, knots)), (width, 1), interpolation=cv2.INTER_LINEAR)
        for _ in range(2)
    )
    rows = np.arange(height)[:, None]
    return np.where((rows < top) | (rows >= height - bottom), paper_of(image), image).astype(np.uint8)


def widen(image: Image, rng: np.random.Generator) -> Image:
    """Add a margin of up to 40 % of the height above and below, and often the neighbours' parts in it."""
    height, width = image.shape
    above, below = (int(part * height) for part in rng.uniform(0.05, 0.4, 2))
    paper = paper_of(image)
    wide = np.full((above + height + below, width), paper, dtype=np.uint8)
    wide[above : above + height] = image
    if rng.random() < 0.7:
        # The line itself, moved aside, stands for the lines above and below.
        other = np.roll(image, int(rng.integers(width // 4, 3 * width // 4 + 1)), axis=1)
        part = rng.uniform(0.3, 0.9, 2)
        depth, rise = int(part[0] * above), int(part[1] * below)
        wide[:depth] = other[height - depth :]
        wide[above + height + below - rise :] = other[:rise]
    return wide


def binarise(image: Image, rng: np.random.Generator) -> Image:
    """Keep one bit a pixel, at Otsu's threshold or a little beside it."""
    threshold, _ = cv2.threshold(image, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    _, bits = cv2.threshold(image, threshold + rng.uniform(-12, 12), 255, cv2.THRESH_BINARY)
    return np.asarray(bits, dtype=np.uint8)


def squeeze(image: Image, rng: np.random.Generator) -> Image:
    """Store as JPEG of quality 20 to 60."""
    done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(20, 60))])
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_GRAYSCALE), dtype=np.uint8) if done else image


def coarsen(image: Image, rng: np.random.Generator) -> Image:
    """Scan at few dots an inch: a line of 18 to 32 px."""
    height, width = image.shape
    factor = min(1.0, rng.uniform(18, 32) / height)
    size = (max(4, round(width * factor)), max(4, round(height * factor)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def fade(image: Image, rng: np.random.Generator) -> Image:
    """Make the ink faint, a fifth to a half of its depth, on paper with some grain."""
    paper = paper_of(image)
    faint = paper + (image - paper) * rng.uniform(0.2, 0.5) + rng.normal(0, rng.uniform(1, 5), image.shape)
    return np.asarray(np.clip(faint, 0, 255), dtype=np.uint8)


def rule(image: Image, rng: np.random.Generator) -> Image:
    """Print ruled or squared paper under the writing."""
    ruled = image.copy()
    height, width = image.shape
    paper = paper_of(image)
    grey = int(paper * rng.uniform(0.45, 0.85))
    squared = rng.random() < 0.4
    step = int(height * (rng.uniform(0.25, 0.5) if squared else rng.uniform(0.7, 1.1)))
    thick = int(rng.integers(1, 3))
    for row in range(int(rng.integers(0, step + 1)), height, max(4, step)):
        ruled[row : row + thick] = np.minimum(ruled[row : row + thick], grey)
    for column in range(int(rng.integers(0, step + 1)), width, max(4, step)) if squared else ():
        ruled[:, column : column + thick] = np.minimum(ruled[:, column : column + thick], grey)
    return ruled


def strike(image: Image, rng: np.random.Generator) -> Image:
    """Cross out a word or so with one stroke; labels keep words that can be read under it."""
    height, width = image.shape
    length = rng.uniform(0.7, 3) * height
    start = rng.uniform(0, max(1.0, width - length))
    ends = height * rng.uniform(0.4, 0.7, 2)
    ink = float(np.percentile(image, 2))
    struck = image.copy()
    points = [(round(start), round(ends[0])), (round(start + length), round(ends[1]))]
    cv2.line(struck, *points, color=ink, thickness=max(1, height // 32), lineType=cv2.LINE_AA)  # type: ignore[call-overload]
    return struck


def shade(image: Image, rng: np.random.Generator) -> Image:
    """Lay a soft shadow over a part of the line."""
    width = image.shape[1]
    edge, soft = rng.uniform(0, width), rng.uniform(0.2, 3) * image.shape[0]
    side = 1 / (1 + np.exp(-np.clip((np.arange(width) - edge) / soft, -30, 30)))
    if rng.random() < 0.5:
        side = 1 - side
    return np.asarray(image * (1 - rng.uniform(0.2, 0.6) * side), dtype=np.uint8)


CHANGES: tuple[tuple[Change, float], ...] = (
    (rule, 0.12),
    (strike, 0.08),
    (shave, 0.35),
    (widen, 0.4),
    (fade, 0.2),
    (shade, 0.15),
    (coarsen, 0.25),
    (squeeze, 0.25),
    (binarise, 0.15),
)
"""What happens to a line and how often, in the order of pen, scissors, light and scanner."""


def damage(image: Image, rng: np.random.Generator) -> Image:
    """Change a line as other tools and worse scans would, in some ways drawn at random.

    Args:
        image: grey uint8 [h, w], dark ink on light paper.
        rng: where the random numbers come from; the same state gives the same image.

    Returns:
        uint8 [h', w']: the height may change, positions along the line keep their share of the width.
    """
    for change, share in CHANGES:
        if rng.random() < share:
            image = change(image, rng)
    return image


def damaged(samples: Iterable[Sample], share: float, seed: int = 0) -> list[Sample]:
    """Copy a share of the lines, as read, as other tools cut them and worse scans show them.

    Args:
        samples: dark ink on light paper.
        share: how many are copied, 0 to 1.
        seed: decides which, and what happens to each.
    """
    rng = np.random.default_rng([seed, 1])
    return [replace(sample, image=damage(sample.image, rng)) for sample in samples if rng.random() < share]
