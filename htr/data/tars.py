"""Sets of line images with their texts, one tar each."""

import csv
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from geomix.errors import FormatError, MissingFileError
from htr.charset import clean_label
from htr.data.inputs import Image, Sample


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
