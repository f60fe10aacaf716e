"""From what the user typed to files: folders, globs, and what kind of series they are."""

import json
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any, Literal

from geomix.errors import FormatError, InputError, MissingFileError

RASTERS = frozenset({".tif", ".tiff", ".jp2", ".vrt", ".img"})
CUBES = frozenset({".nc", ".nc4", ".cdf", ".h5"})
Kind = Literal["rasters", "cube", "stac", "pastis", "patch"]


def expand(inputs: Sequence[str | Path]) -> list[Path]:
    """Turn names and patterns into paths that exist; a folder stays a folder.

    Raises:
        MissingFileError: if a path is not there or a pattern matches nothing.
        InputError: if there is no input at all.
    """
    if not inputs:
        raise InputError("no input: give files, a folder, a pattern such as 'S2_*.tif', or a NetCDF")
    paths: list[Path] = []
    for entry in inputs:
        path, text = Path(entry), str(entry)
        if path.exists():
            paths.append(path)
        elif any(character in text for character in "*?["):
            matches = sorted(glob(text, recursive=True))
            if not matches:
                raise MissingFileError(f"{text}: the pattern matches no file")
            paths += [Path(match) for match in matches]
        else:
            raise MissingFileError(f"{text}: no such file or folder")
    return paths


def kind_of(paths: Sequence[Path]) -> Kind:
    """What sort of series the paths hold.

    Raises:
        InputError: if kinds are mixed, or several files of a kind that stands alone are given.
    """
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"inputs of different kinds: {', '.join(sorted(kinds))}; give one kind at a time")
    kind = kinds.pop()
    if kind != "rasters" and len(paths) > 1:
        raise InputError(f"{len(paths)} inputs ({paths[0].name}, ...): give one at a time, each is a series")
    return kind


def rasters_in(paths: Sequence[Path]) -> tuple[list[Path], set[Path]]:
    """The raster files among the paths and in the folders among them.

    Returns:
        files: in order, each once.
        chosen: those that were named one by one and so may not be passed over.

    Raises:
        MissingFileError: if a folder holds no raster.
    """
    files: dict[Path, None] = {}
    chosen = {path for path in paths if path.is_file()}
    for path in paths:
        for file in _in_folder(path) if path.is_dir() else [path]:
            files[file] = None
    return list(files), chosen


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FormatError: if the file holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: should hold a JSON object, got a {type(content).__name__}")
    return content


def _kind(path: Path) -> Kind:
    suffix = path.suffix.lower()
    if path.is_dir():
        if suffix == ".zarr" or any(
            (path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata")
        ):
            return "cube"
        return "pastis" if (path / "metadata.geojson").is_file() else "rasters"
    if suffix in CUBES:
        return "cube"
    if suffix in (".json", ".geojson"):
        return "stac"
    return "patch" if suffix == ".npy" else "rasters"


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if _is_raster(file))
    # Products keep their bands some folders down.
    files = files or sorted(file for file in folder.rglob("*") if _is_raster(file))
    if not files:
        raise MissingFileError(
            f"{folder}: holds no raster ({', '.join(sorted(RASTERS))}), Zarr store or PASTIS metadata"
        )
    return files


def _is_raster(file: Path) -> bool:
    # Products of Sentinel-2 keep masks that are named like bands in QI_DATA.
    hidden = file.name.startswith((".", "MSK_")) or file.parent.name == "QI_DATA"
    return file.suffix.lower() in RASTERS and not hidden and file.is_file()
