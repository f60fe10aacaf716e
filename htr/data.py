"""Line images with their texts: reading them, and the one preprocessing of training and prediction."""

import csv
import io
import logging
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geomix.config import Config, parse_config
from geomix.errors import FormatError, InputError, MissingFileError
from htr.bidi import as_seen
from htr.charset import clean_label
from htr.level import find_rows, measure, straighten

log = logging.getLogger(__name__)

Image = NDArray[np.uint8]
Split = Literal["train", "select", "val", "all"]

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


def shrink(line_image: Image, inputs: Inputs | Mapping[str, Any]) -> Image:
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
        return shrink(line_image[first : max(last, first + 1)], settings)
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
    return shrink(line_image, inputs).astype(np.float32) / np.float32(255)


def read_tar(path: str | Path) -> list[Sample]:
    """Read a set of line images: a tar with `<set>/index.tsv` and `<set>/lines/<id>.webp`.

    The index has the columns id, page, split and text. Labels are cleaned by `clean_label`; lines without
    text are left out.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if it is not such a tar.
    """
    if not Path(path).is_file():
        raise MissingFileError(f"{path}: there is no such file")
    try:
        with tarfile.open(path) as tar:
            return list(_tar_lines(tar, str(path)))
    except tarfile.TarError as error:
        raise FormatError(f"{path}: is damaged or not a tar file ({error})") from None


def write_tar(samples: Iterable[Sample], path: str | Path, name: str | None = None) -> int:
    """Write line images of one set as `read_tar` reads them.

    Args:
        samples: as read: dark ink on light paper.
        path: the tar.
        name: of the set; that of the file if not given.

    Returns:
        How many lines it holds.

    Raises:
        FormatError: if a line is too large for an image file.
    """
    folder, rows = name or Path(path).stem, []
    with tarfile.open(path, "w") as tar:
        for sample in samples:
            done, data = cv2.imencode(".webp", sample.image, [cv2.IMWRITE_WEBP_QUALITY, 80])
            if not done:
                raise FormatError(f"{path}: the line {sample.id} cannot be written as an image")
            _add(tar, f"{folder}/lines/{sample.id}.webp", data.tobytes())
            rows.append((sample.id, sample.page, sample.split, sample.text))
        table = "".join("\t".join(row) + "\n" for row in [("id", "page", "split", "text"), *rows])
        _add(tar, f"{folder}/index.tsv", table.encode())
    return len(rows)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _tar_lines(tar: tarfile.TarFile, path: str) -> Iterator[Sample]:
    members = {member.name: member for member in tar.getmembers() if member.isfile()}
    index = next((name for name in members if name.endswith("index.tsv")), None)
    if index is None:
        raise FormatError(f"{path}: holds no index.tsv; a tar of lines has <set>/index.tsv and <set>/lines/")
    folder, _, _ = index.rpartition("/")
    table = io.TextIOWrapper(io.BytesIO(_bytes(tar, members[index])), encoding="utf-8", newline="")
    images = {Path(name).stem: member for name, member in members.items() if name != index}
    for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
        text = clean_label(row["text"] or "")
        if not text:
            continue
        if row["id"] not in images:
            raise FormatError(f"{path}: index.tsv names the line {row['id']!r}, but its image is not there")
        image = decode_grey(_bytes(tar, images[row["id"]]), f"{path}: {row['id']}")
        yield Sample(row["id"], row["page"], folder or Path(path).stem, row["split"], text, image)


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file is not None else b""


def decode_grey(data: bytes, where: str) -> Image:
    """Decode an image file to grey uint8 [h, w].

    Raises:
        FormatError: if it is not an image, naming `where`.
    """
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) if data else None
    if image is None:
        raise FormatError(f"{where}: is truncated or not an image")
    return np.asarray(image, dtype=np.uint8)


def ready(samples: Iterable[Sample], inputs: Inputs | Mapping[str, Any]) -> list[Sample]:
    """Bring all images to the model's height and contrast once, so that they fit in memory.

    Texts come in the order in which they are seen from left to right, which is what a recogniser learns.
    """
    settings = Inputs.of(inputs)
    return [
        replace(sample, image=shrink(sample.image, settings), text=as_seen(sample.text)) for sample in samples
    ]


def writer(page: str) -> str:
    """The hand behind a page of Copiste: pages that end in _1, _2 or _double share it."""
    stem = page.rpartition("/")[2].rpartition(".")[0] or page
    head, _, tail = stem.rpartition("_")
    return head if head and tail in ("1", "2", "3", "double") else stem


def selection_pages(samples: Sequence[Sample], share: float = 0.04, seed: int = 0) -> set[str]:
    """Choose training pages that select the checkpoint instead of being learned.

    Whole hands are taken where the names of the pages tell the hand, so that no learned page shares one.

    Args:
        samples: all lines; those of other splits than train are not touched.
        share: the share of the training pages of each set, at least one page where a set has ten or more.
        seed: the same seed gives the same pages.
    """
    chosen: set[str] = set()
    for source in sorted({sample.source for sample in samples}):
        pages = sorted(
            {sample.page for sample in samples if sample.source == source and sample.split == "train"}
        )
        hands: dict[str, list[str]] = {}
        for page in pages:
            hands.setdefault(writer(page), []).append(page)
        wanted = max(1, round(share * len(pages))) if len(pages) >= 10 else 0
        order = np.random.default_rng(seed).permutation(len(hands))
        for hand in np.array(sorted(hands), dtype=object)[order]:
            if wanted <= 0:
                break
            chosen.update(hands[hand])
            wanted -= len(hands[hand])
    return chosen


def cross_split_hands(samples: Iterable[Sample]) -> set[str]:
    """The hands that have pages both in train and in val: a figure without them is the cleaner one."""
    splits: dict[str, set[str]] = {}
    for sample in samples:
        splits.setdefault(writer(sample.page), set()).add(sample.split)
    return {hand for hand, found in splits.items() if {"train", "val"} <= found}


def new_hands(samples: Sequence[Sample]) -> Callable[[Sample], str | None]:
    """Name the group of the lines whose hand has no page in another split: `<set>_new_hands`.

    Args:
        samples: all lines. Sets in which no hand crosses the splits, or whose pages do not tell the hand,
            have no such group.

    Returns:
        The name of the group of a line, or None.
    """
    sets = {sample.source for sample in samples}
    shared = {name: cross_split_hands(s for s in samples if s.source == name) for name in sets}

    def name(sample: Sample) -> str | None:
        hands = shared.get(sample.source)
        return f"{sample.source}_new_hands" if hands and writer(sample.page) not in hands else None

    return name


def take(samples: Sequence[Sample], split: Split, select: set[str]) -> list[Sample]:
    """The samples of one split, where `select` names the training pages that choose the checkpoint."""
    if split == "all":
        return list(samples)
    if split == "val":
        return [sample for sample in samples if sample.split == "val"]
    keep = split == "select"
    return [sample for sample in samples if sample.split == "train" and (sample.page in select) == keep]
