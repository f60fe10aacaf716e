"""Random changes of line images that keep their text.

Everything works on uint8 images with ink high on 0, [height, width], before they become float: a line costs
a fraction of a millisecond, so that the model and not the augmentation sets the speed of training.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]


def warp(image: Image, width: int, rng: np.random.Generator, strength: float = 1.0) -> Image:
    """Resize to `width` and shear, turn, shift and scale a little, in one resampling.

    Args:
        image: uint8 [height, old width], paper is 0.
        width: the new width, px. The text is stretched to it.
        rng: where the random numbers come from.
        strength: 0 resizes only; 1 shears up to 0.6 (about 31 degrees), turns up to about 1 degree, scales
            the height by up to 12 % and shifts up to 4 % of the height.
    """
    height, old_width = image.shape
    shear = rng.uniform(-0.6, 0.6) * strength
    turn = rng.uniform(-0.018, 0.018) * strength
    scale = 1 + rng.uniform(-0.12, 0.12) * strength
    shift = rng.uniform(-0.04, 0.04) * strength * height
    middle = (height - 1) / 2
    stretch = width / old_width
    # The turn fades with the length of the line: 1 degree over 900 px would leave the image.
    turn *= min(1.0, 4 * height / width)
    matrix = np.array(
        [
            [stretch, shear, -shear * middle],
            [turn, scale, middle - scale * middle + shift - turn * old_width / 2],
        ],
        dtype=np.float32,
    )
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR), dtype=np.uint8)


def stroke(image: Image, rng: np.random.Generator) -> Image:
    """Make the pen thicker or thinner, by up to about one pixel."""
    kernel = np.ones((2, 2), np.uint8) if rng.random() < 0.7 else np.ones((1, 3), np.uint8)
    changed = cv2.dilate(image, kernel) if rng.random() < 0.5 else cv2.erode(image, kernel)
    amount = rng.uniform(0.3, 1.0)
    return np.asarray(cv2.addWeighted(image, 1 - amount, changed, amount, 0), dtype=np.uint8)


def tone(image: Image, rng: np.random.Generator) -> Image:
    """Change the darkness of the ink and the evenness of the paper, by a curve and some noise."""
    gamma = float(np.exp(rng.uniform(-0.5, 0.5)))
    gain = rng.uniform(0.75, 1.1)
    curve = np.clip(255 * gain * (np.arange(256) / 255) ** gamma, 0, 255).astype(np.uint8)
    changed = cv2.LUT(image, curve)
    if rng.random() < 0.3:
        noise = rng.integers(0, 24, image.shape, dtype=np.uint8)
        changed = cv2.add(changed, noise)
    return np.asarray(changed, dtype=np.uint8)


def sway(image: Image, rng: np.random.Generator) -> Image:
    """Move the pen's path smoothly, by up to a tenth of the height from letter to letter."""
    height, width = image.shape
    # A knot a letter, at the top and at the bottom: letters lean, widen and rise each in their own way.
    knots = (2, max(2, width // height + 2))
    size = (width, height)
    sway_x, sway_y = (
        cv2.resize(rng.normal(0, part * height, knots), size, interpolation=cv2.INTER_CUBIC)
        for part in (0.08, 0.03)
    )
    map_x = np.asarray(sway_x + np.arange(width), dtype=np.float32)
    map_y = np.asarray(sway_y + np.arange(height)[:, None], dtype=np.float32)
    return np.asarray(cv2.remap(image, map_x, map_y, cv2.INTER_LINEAR), dtype=np.uint8)


def hide(image: Image, rng: np.random.Generator) -> Image:
    """Erase upright strips of up to a letter, a tenth of the line or so, to be filled in from the context.

    Source: after the span masking of Li et al., HTR-VT, arXiv 2409.08573, which hides tokens.
    """
    changed = image.copy()
    height, width = image.shape
    for _ in range(int(rng.integers(1, max(2, width // (3 * height)) + 1))):
        size = int(rng.integers(1, max(2, min(height * 3 // 4, width // 4))))
        left = int(rng.integers(0, max(1, width - size)))
        changed[:, left : left + size] = 0
    return changed


def augment(image: Image, width: int, rng: np.random.Generator) -> Image:
    """Stretch a line to `width` and change slant, pen, tone and paper at random.

    Args:
        image: uint8 [height, old width], ink high.
        width: the new width, px.
        rng: where the random numbers come from; the same state gives the same image.

    Returns:
        uint8 [height, width].
    """
    changed = warp(image, width, rng, strength=1.0 if rng.random() < 0.85 else 0.0)
    if rng.random() < 0.6:
        changed = sway(changed, rng)
    if rng.random() < 0.4:
        changed = stroke(changed, rng)
    if rng.random() < 0.5:
        changed = tone(changed, rng)
    if rng.random() < 0.6:
        changed = hide(changed, rng)
    return changed
