"""Files to clouds and back, in the formats of the field; nothing learned.

A format is recognised by its content. A file that is written in the format it was read from keeps all but
the class; `docs/pointcloud.md` lists what goes where.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from geomix.errors import InputError, MissingFileError, UnsupportedError
from geomix.files import new_file
from pointcloud.cloud import Cloud
from pointcloud.io.formats import FORMATS, find_format, format_of, result_name
from pointcloud.io.options import ReadOptions, WriteOptions
from pointcloud.io.sniff import sniff

__all__ = [
    "FORMATS",
    "ReadOptions",
    "WriteOptions",
    "check_output",
    "format_of",
    "read_cloud",
    "result_name",
    "sniff",
    "write_cloud",
]


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
    read: Callable[[Path, ReadOptions], Cloud] = import_module(f"{__name__}.{find_format(name).reader}").read
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
        f"{__name__}.{find_format(name).writer}"
    ).write
    with new_file(path, overwrite) as temporary:
        write(cloud, temporary, options)


def check_output(path: Path, output: Path, overwrite: bool) -> None:
    """Refuse an output before the work instead of after it.

    Raises:
        UnsupportedError: if its suffix names no format, or a format that can only copy its own files.
        OutputExistsError: if it exists and `overwrite` is false.
        MissingFileError: if its folder does not exist.
        InputError: if it is the input and `overwrite` is false.
    """
    name = format_of(output)
    if FORMATS[name].copies_only and path.is_file() and sniff(path) != name:
        raise UnsupportedError(
            f"{output}: {name.upper()} is written from {name.upper()} alone; choose .laz, .ply or .pcd"
        )
    if output.exists() and not overwrite and path.exists() and output.samefile(path):
        raise InputError(f"{output}: is the input itself; choose another name or allow --overwrite")
    with new_file(output, overwrite):
        pass  # nothing is written here, so nothing appears
