"""From the arguments of a verb to one job a page: its image, its lines, and the files that it becomes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from geomix.errors import InputError, MissingFileError, OutputExistsError
from geomix.files import is_taken
from htr.io.images import SUFFIXES, PageImage
from htr.io.pages import SUFFIX, read_lines, write
from htr.io.preview import write_preview
from htr.page import Page


@dataclass(frozen=True)
class Job:
    """One input of a batch."""

    image: Path
    lines: Path | None


def jobs(inputs: Sequence[Path], lines: Path | None) -> list[Job]:
    """One job an input.

    Args:
        inputs: images, or PAGE and ALTO files that name the image beside them.
        lines: a file for the only input, or a folder with one file of the same name for each.

    Raises:
        InputError: if there is no input, two inputs would write the same files, or one file of lines is given
            for several images.
    """
    if not inputs:
        raise InputError("no page is given; name at least one image")
    if lines is not None and not lines.is_dir() and len(inputs) > 1:
        raise InputError(
            f"--lines {lines}: is one file for {len(inputs)} images; give a folder with one file each"
        )
    seen: dict[str, Path] = {}
    for path in inputs:
        if path.stem in seen:
            raise InputError(
                f"{path} and {seen[path.stem]} have the same name, so their results would too; "
                f"process them in two calls with different folders"
            )
        seen[path.stem] = path
    return [_job(path, lines) for path in inputs]


def _job(path: Path, lines: Path | None) -> Job:
    if path.suffix.lower() in {".xml", ".json"} and lines is None:
        return Job(path, path)
    if lines is not None and lines.is_dir():
        found = [lines / f"{path.stem}{suffix}" for suffix in (".xml", ".json")]
        return Job(path, next((file for file in found if file.is_file()), found[0]))
    return Job(path, lines)


def image_of(job: Job) -> Path:
    """The image of a job whose input is an XML or JSON file: the one that it names, else the one of its name.

    Raises:
        MissingFileError: if neither lies beside the file.
    """
    if job.image != job.lines:
        return job.image
    named = read_lines(job.image).source
    candidates = [job.image.with_name(Path(named).name)] if named else []
    candidates += [job.image.with_suffix(suffix) for suffix in sorted(SUFFIXES)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise MissingFileError(
        f"{job.image}: its image {named!r} is not beside it; give the image, and this file with --lines"
    )


def outputs(folder: Path, name: str, formats: Iterable[str]) -> dict[str, Path]:
    """The file of each format; PAGE and ALTO share the suffix .xml unless both are asked for."""
    chosen = list(dict.fromkeys(formats))
    both = {"page", "alto"} <= set(chosen)
    return {
        kind: folder / f"{name}.{kind}.xml"
        if both and kind in {"page", "alto"}
        else folder / f"{name}{SUFFIX[kind]}"
        for kind in chosen
    }


def write_all(
    image: PageImage, page: Page, folder: Path, formats: Sequence[str], picture: bool, overwrite: bool
) -> None:
    """Write a page in all formats asked for, and the picture; nothing if one of the files exists already.

    Raises:
        OutputExistsError: if a file exists and `overwrite` is false.
    """
    files = outputs(folder, image.name, formats)
    drawing = folder / f"{image.name}.preview.jpg"
    for file in [*files.values(), *([drawing] if picture else [])]:
        if is_taken(file, overwrite):
            raise OutputExistsError(f"{file}: exists already; choose another folder or allow --overwrite")
    for kind, file in files.items():
        write(page, file, kind, overwrite)
    if picture:
        write_preview(image.pixels, page, drawing, overwrite)
