"""Which format a file has, by its first bytes; the suffix counts only where those say nothing."""

import string
from pathlib import Path

from geomix.errors import FormatError
from pointcloud.io.formats import FORMATS
from pointcloud.io.text import is_number

_FOREIGN = {
    b"version https://git-lfs": "a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "compressed with gzip; unpack it first",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"\x89HDF": "an HDF5 file",
    b"<": "a web page or XML document",
    b"{": "a JSON document",
}
_HEAD = 4096
_PRINTABLE = frozenset(string.printable.encode())


def sniff(path: Path) -> str:
    """The key in `FORMATS` of the format that a file or folder has.

    Raises:
        FormatError: if it has none of them, saying what it seems to be.
    """
    if path.is_dir():
        if any(path.glob("*.npy")):
            return "arrays"
        raise FormatError(
            f"{path}: is a folder, but not one of .npy arrays; give its clouds by name, such as {path}/*.laz"
        )
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        if path.suffix.lower() == ".bin":
            return "floats"  # a sweep in which nothing came back
        raise FormatError(f"{path}: is empty (0 bytes)")
    for name, form in FORMATS.items():
        if form.magic and head.startswith(form.magic):
            return name
    if head.startswith(b"PK\x03\x04") and b".npy" in head:
        return "arrays"
    if _is_pcd(head):
        return "pcd"
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise FormatError(f"{path}: is {what}, not a point cloud")
    return _text_or_floats(path, head)


def _is_pcd(head: bytes) -> bool:
    """Whether comments stand above the header of a PCD file."""
    return b"\nFIELDS " in head and b"\nPOINTS " in head and b"\nDATA " in head


def _text_or_floats(path: Path, head: bytes) -> str:
    is_text = sum(byte in _PRINTABLE for byte in head) > 0.95 * len(head) and b"\0" not in head
    if not is_text:
        if path.suffix.lower() == ".label":
            raise FormatError(f"{path}: holds labels, not points; give the scan that they belong to")
        if any(path.suffix.lower() in form.suffixes for form in FORMATS.values() if form.magic):
            raise FormatError(
                f"{path}: does not start as a {path.suffix} file does; it is damaged or misnamed"
            )
        return "floats"
    words = head.decode("utf-8", errors="replace").replace(",", " ").replace(";", " ").split()
    if sum(map(is_number, words)) < 0.3 * len(words):
        raise FormatError(f"{path}: is text without points, not a point cloud")
    return "text"
