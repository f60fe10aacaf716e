"""Page images in: every page of a file as upright 8-bit grey, whatever its mode, depth or orientation."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from geomix.errors import FormatError, InputError, MissingFileError, MissingPackageError

log = logging.getLogger(__name__)

Grey = NDArray[np.uint8]

MAX_PIXELS = 300_000_000
"""The largest page, width times height, that is read without being asked to."""
PDF_DPI = 300
"""At how many dots per inch a page of a PDF becomes an image."""
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif", ".jp2", ".pnm", ".pdf"}
)
_ROTATED = 5  # EXIF orientations from 5 on swap width and height
_pillow_limit = threading.Lock()


@dataclass(frozen=True, eq=False)
class PageImage:
    """One page of an image file."""

    pixels: Grey
    """Grey, 0 is black, [height, width]; smaller than the page where a huge JPEG was reduced on reading."""
    width: int
    """Of the upright page in the file; all coordinates refer to it."""
    height: int
    path: str
    frame: int
    """Which page of the file, from 0."""
    frames: int
    """How many pages the file has."""

    @property
    def name(self) -> str:
        """The file name without its suffix; pages of a file with several get `_0001` and so on."""
        stem = Path(self.path).stem
        return stem if self.frames == 1 else f"{stem}_{self.frame + 1:04d}"


def read_images(
    path: str | Path, max_pixels: int = MAX_PIXELS, stored_size: tuple[int, int] | None = None
) -> Iterator[PageImage]:
    """Read all pages of an image file or PDF, upright (EXIF), as 8-bit grey.

    16-bit and float pixels are scaled by their range, transparent ones laid on white, CMYK converted
    through RGB. A JPEG over the limit is decoded at a half, a quarter or an eighth of its size.

    Args:
        path: JPEG, PNG, TIFF with any number of pages, WebP, PDF (extra `pdf`) and what else Pillow reads.
        max_pixels: the largest page, width times height, that may be decoded.
        stored_size: width and height in the XML that describes the page. Where they are those of the stored,
            not yet rotated image, the XML was made without looking at EXIF, so the image is left as stored.

    Raises:
        MissingFileError: if there is no such file.
        FormatError: if it is no image, damaged or truncated.
        InputError: if a page has more than `max_pixels`.
        MissingPackageError: if it is a PDF and pypdfium2 is not installed.
    """
    file = Path(path)
    if file.is_dir():
        raise MissingFileError(f"{file}: is a folder; give its images, as {file}/*.jpg")
    if not file.is_file():
        raise MissingFileError(f"{file}: no such image; give the path of a JPEG, PNG, TIFF, WebP or PDF file")
    if _is_pdf(file):
        yield from _pdf_pages(file, max_pixels)
    else:
        yield from _image_pages(file, max_pixels, stored_size)


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> PageImage:
    """Read the only page of an image file.

    Raises:
        InputError: if the file has several pages; `read_images` gives them all.
    """
    pages = read_images(path, max_pixels)
    first = next(pages)
    if first.frames > 1:
        raise InputError(f"{path}: has {first.frames} pages; read them one by one with read_images")
    return first


def to_grey(image: Image.Image) -> Grey:
    """An image of any mode as 8-bit grey [H, W], where 0 is black and transparent is white."""
    if image.mode in {"I;16", "I;16B", "I;16L", "I;16N", "I", "F"}:
        return _scaled(np.asarray(image), image.mode)
    if image.mode == "1":
        return np.asarray(image.convert("L"))
    if image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        # Flat white below, or the invisible black of an empty pixel becomes ink.
        colour = image.convert("RGBA")
        paper = Image.new("RGBA", colour.size, (255, 255, 255, 255))
        return np.asarray(Image.alpha_composite(paper, colour).convert("L"))
    if image.mode not in {"L", "RGB"}:
        return np.asarray(image.convert("RGB").convert("L"))
    return np.asarray(image.convert("L"))


def array_to_grey(array: NDArray[np.generic]) -> Grey:
    """An array [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] of 8 or 16 bits, bool or float as 8-bit grey.

    Raises:
        InputError: if the array is no image.
    """
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in {2, 3} or (array.ndim == 3 and array.shape[2] not in {3, 4}) or 0 in array.shape:
        raise InputError(f"an image is [H, W], [H, W, 3] or [H, W, 4], got an array of shape {array.shape}")
    if array.dtype == np.bool_:
        eight = np.where(array, 255, 0).astype(np.uint8)
    elif array.dtype == np.uint8:
        eight = array.astype(np.uint8)
    else:
        eight = _scaled(array, str(array.dtype))
    return eight if eight.ndim == 2 else to_grey(Image.fromarray(np.ascontiguousarray(eight)))


def _scaled(array: NDArray[np.generic], kind: str) -> Grey:
    """Integers of 16 bits or more and floats to 0..255, by what their type or their values can reach."""
    values = np.nan_to_num(array.astype(np.float64), nan=0.0)
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    if array.dtype.kind == "f":
        top = next((limit for limit in (1.0, 255.0, 65535.0) if high <= limit), high)
    else:
        # A scanner of 12 bits stores its values unshifted in 16: 4095 is white there.
        top = next((limit for limit in (255.0, 4095.0, 65535.0) if high <= limit), high)
    if low < 0:
        log.warning("an image of mode %s has values down to %g; they count as black", kind, low)
    return np.clip(np.rint(values * (255.0 / top)), 0, 255).astype(np.uint8)


def _image_pages(file: Path, max_pixels: int, stored_size: tuple[int, int] | None) -> Iterator[PageImage]:
    try:
        with _no_pillow_limit():
            image = Image.open(file)
        with image:
            # The frames of an animation are one picture, those of a TIFF are pages.
            frames = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
            for number in range(frames):
                with _no_pillow_limit():
                    image.seek(number)
                    page = _page(image, file, number, frames, max_pixels, stored_size)
                yield page
    except UnidentifiedImageError as error:
        raise FormatError(
            f"{file}: is not an image that can be read; give JPEG, PNG, TIFF, WebP or PDF"
        ) from error
    except InputError:
        raise
    except (OSError, SyntaxError, EOFError, ValueError) as error:
        raise FormatError(f"{file}: damaged or truncated image ({error}); scan or copy it again") from error


def _page(
    frame: Image.Image,
    file: Path,
    number: int,
    frames: int,
    max_pixels: int,
    stored_size: tuple[int, int] | None,
) -> PageImage:
    stored = frame.size
    orientation = frame.getexif().get(0x0112, 1)
    upright = (stored[1], stored[0]) if _ROTATED <= orientation <= 8 else stored
    if stored[0] * stored[1] > max_pixels:
        _reduce(frame, file, max_pixels)
    if stored_size == stored and stored_size != upright:
        log.warning("%s: the XML describes the image as stored; its EXIF rotation is left out", file)
        upright = stored
        pixels = to_grey(frame)
    else:
        pixels = to_grey(ImageOps.exif_transpose(frame))
    return PageImage(pixels, upright[0], upright[1], str(file), number, frames)


def _reduce(frame: Image.Image, file: Path, max_pixels: int) -> None:
    """Let the JPEG decoder skip pixels, or refuse."""
    width, height = frame.size
    for divisor in (2, 4, 8):
        if frame.format == "JPEG" and (width // divisor) * (height // divisor) <= max_pixels:
            frame.draft(None, (width // divisor, height // divisor))
            log.warning("%s: %d x %d pixels are read at 1/%d of their size", file, width, height, divisor)
            return
    raise InputError(
        f"{file}: {width} x {height} pixels are {width * height:,} in all, over the limit of "
        f"{max_pixels:,}; scale the scan down or raise the limit (--max-pixels)"
    )


@contextmanager
def _no_pillow_limit() -> Iterator[None]:
    """Our limit names the file and the way out; Pillow's own one, a global, is set aside meanwhile."""
    with _pillow_limit:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            with warnings.catch_warnings():
                # Damaged metadata does not hurt the pixels.
                warnings.simplefilter("ignore", UserWarning)
                yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _is_pdf(file: Path) -> bool:
    with file.open("rb") as stream:
        return b"%PDF-" in stream.read(1024)


def _pdf_pages(file: Path, max_pixels: int) -> Iterator[PageImage]:
    try:
        import pypdfium2
    except ImportError as error:
        raise MissingPackageError(
            f"{file}: reading a PDF needs pypdfium2; install it with: pip install 'geomix[pdf]'"
        ) from error
    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        raise FormatError(f"{file}: damaged or encrypted PDF ({error})") from error
    try:
        for number in range(len(document)):
            page = document[number]
            width, height = (side / 72.0 * PDF_DPI for side in page.get_size())
            if width * height > max_pixels:
                raise InputError(
                    f"{file}: page {number + 1} is {width:.0f} x {height:.0f} pixels at {PDF_DPI} dots an "
                    f"inch, over the limit of {max_pixels:,} in all; raise it with --max-pixels"
                )
            pixels = to_grey(page.render(scale=PDF_DPI / 72.0).to_pil())
            yield PageImage(pixels, pixels.shape[1], pixels.shape[0], str(file), number, len(document))
    finally:
        document.close()
