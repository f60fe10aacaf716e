"""Files to clouds and back, in the formats of the field; nothing learned.

A format is recognised by its content. A file that is written in the format it was read from keeps all but
the class; `docs/pointcloud.md` lists what goes where.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from geomix.errors import InputError, MissingFileError, UnsupportedError
from geomix.files import new_file
from pointcloud.cloud import Cloud
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.sniff import sniff

__all__ = ["FORMATS", "ReadOptions", "WriteOptions", "format_of", "read_cloud", "sniff", "write_cloud"]


class Format(NamedTuple):
    """Where a format is read and written."""

    reader: str
    """Module here with `read(path, options)`."""
    writer: str
    """Module here with `write(cloud, path, options)`."""
    suffixes: tuple[str, ...]
    """Names of outputs that mean this format."""


FORMATS = {
    "las": Format("las", "las_write", (".las", ".laz")),
    "ply": Format("ply", "ply", (".ply",)),
    "pcd": Format("pcd", "pcd", (".pcd",)),
    "e57": Format("e57", "e57_write", (".e57",)),
    "floats": Format("floats", "floats", (".label", ".bin")),
    "arrays": Format("arrays", "arrays", (".npz", ".npy")),
    "text": Format("text", "text", (".csv", ".txt", ".xyz", ".asc", ".pts")),
}


def read_cloud(path: str | Path, options: ReadOptions | None = None) -> Cloud:
    """Read a cloud from a file of any known format, or from a folder of .npy.

    Points keep their number and order. Coordinates are float64, in metres where the file says what it uses.

    Raises:
        MissingFileError: if the file is not there.
        FormatError: if it is of no known format, or damaged.
        InputError: if an option is wrong.
    """
    file = Path(path)
    options = options or ReadOptions()
    if not file.exists():
        raise MissingFileError(f"{file}: there is no such file")
    name = options.format or sniff(file)
    read: Callable[[Path, ReadOptions], Cloud] = import_module(f"{__name__}.{_format(name).reader}").read
    return read(file, options)


def write_cloud(
    cloud: Cloud, path: str | Path, options: WriteOptions | None = None, overwrite: bool = False
) -> None:
    """Write a cloud to a file whose suffix says the format. The file is complete or not there at all.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
        UnsupportedError: if the suffix means no format, or the format cannot hold the cloud.
        InputError: if a value of the cloud does not fit into the format, or its coordinates are no longer
            those of the file that it remembers.
    """
    source = cloud.source
    if source is not None and source.payload is not None and source.coord is not cloud.coord:
        raise InputError(
            f"{path}: the coordinates are no longer those of {source.path}, which would be written again; "
            "for a new file take the source away: dataclasses.replace(cloud, source=None)"
        )
    options = options or WriteOptions()
    name = options.format or format_of(Path(path))
    write: Callable[[Cloud, Path, WriteOptions], None] = import_module(
        f"{__name__}.{_format(name).writer}"
    ).write
    with new_file(path, overwrite) as temporary:
        write(cloud, temporary, options)


def format_of(path: Path) -> str:
    """The format that the name of an output means.

    Raises:
        UnsupportedError: if it means none.
    """
    for name, form in FORMATS.items():
        if path.suffix.lower() in form.suffixes:
            return name
    known = ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
    raise UnsupportedError(f"{path}: {path.suffix or 'no suffix'!r} names no format; choose one of {known}")


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(f"format {name!r} is unknown; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
