"""The formats of point clouds: a format is one file here and one line in this table."""

from pathlib import Path
from typing import NamedTuple

from geomix.errors import InputError, UnsupportedError


class Format(NamedTuple):
    """What tells one format from another; its own file knows the rest."""

    reader: str
    """Module here with `read(path, options)`."""
    writer: str
    """Module here with `write(cloud, path, options)`."""
    suffixes: tuple[str, ...]
    """Names of outputs that mean this format."""
    magic: tuple[bytes, ...] = ()
    """First bytes of its files; none where content says it in another way."""
    results: tuple[tuple[str, str], ...] = ()
    """Ends of input names and what replaces them in the name of the result; `/` ends the name of a folder."""
    copies_only: bool = False
    """Whether it can be written only from a file of the same format."""


FORMATS = {
    "las": Format("las", "las_write", (".las", ".laz"), (b"LASF",)),
    "ply": Format("ply", "ply", (".ply",), (b"ply\n", b"ply\r")),
    "pcd": Format("pcd", "pcd", (".pcd",), (b"# .PCD", b"VERSION", b"FIELDS")),
    "e57": Format("e57", "e57_write", (".e57",), (b"ASTM-E57",), copies_only=True),
    "floats": Format(
        "floats", "floats", (".label", ".bin"), results=((".pcd.bin", "_lidarseg.bin"), (".bin", ".label"))
    ),
    "arrays": Format("arrays", "arrays", (".npz", ".npy"), (b"\x93NUMPY",), (("/", ".npz"),)),
    "text": Format("text", "text", (".csv", ".txt", ".xyz", ".asc", ".pts")),
}


def find_format(name: str) -> Format:
    """The format of a key.

    Raises:
        InputError: if there is none.
    """
    if name not in FORMATS:
        raise InputError(f"format {name!r} is unknown; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


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


def result_name(path: Path) -> str:
    """The name that the result of an input has in a folder: its own, unless the format says otherwise."""
    name = f"{path.name}/" if path.is_dir() else path.name
    for form in FORMATS.values():
        for end, result in form.results:
            if name.endswith(end):
                return name.removesuffix(end) + result
    return path.name
