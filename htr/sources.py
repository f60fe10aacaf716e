"""Where labelled lines come from: tars of line images, or pages with PAGE or ALTO beside them."""

from collections.abc import Sequence
from pathlib import Path

from geomix.errors import MissingFileError
from htr.data import Sample, read_tar
from htr.layout.samples import page_samples


def read_labelled_lines(paths: Sequence[str | Path]) -> list[Sample]:
    """Read lines with their texts from tars, folders of tars, and folders or images of pages.

    Raises:
        MissingFileError: if a path is not there.
        FormatError: if a tar is damaged or not one of lines.
        InputError: if a folder holds neither tars nor pages with XML.
    """
    return [sample for path in map(Path, paths) for sample in _read(path)]


def _read(path: Path) -> list[Sample]:
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file or folder")
    if path.suffix == ".tar":
        return read_tar(path)
    tars = sorted(path.glob("*.tar")) if path.is_dir() else []
    return [sample for tar in tars for sample in read_tar(tar)] if tars else page_samples([path])
