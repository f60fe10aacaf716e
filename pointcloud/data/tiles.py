"""Any folder of classified tiles: what is in it, and how it is divided by blocks of space."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geomix.checkpoint import ClassInfo
from geomix.config import Config
from geomix.errors import FormatError, InputError, MissingFileError
from geomix.learn.classes import ClassMap
from geomix.learn.folds import blocks, deal, draw_folds
from geomix.progress import progress
from pointcloud.cloud import Cloud
from pointcloud.io import FORMATS, ReadOptions, read_cloud, sniff

log = logging.getLogger(__name__)

Part = Literal["train", "val", "test"]
PARTS: tuple[Part, ...] = ("train", "val", "test")

_SAMPLE = 5000
"""Points of a tile that say how it is divided."""
_FEWEST = 1000
"""Fewer points of a class in all tiles teach nothing."""
_FOLDS = 5
"""One fold of blocks is the test part, one the validation part, the others are learned from."""
_BLOCKS = (200.0, 100.0, 50.0, 25.0, 10.0)
"""Edges of blocks that are tried, metres; in smaller ones the parts would hold the same trees and houses."""
_FEWEST_BLOCKS = 4 * _FOLDS
_SUFFIXES = tuple(suffix for form in FORMATS.values() for suffix in form.suffixes if suffix != ".bin")


class TilesData(Config):
    """Classified tiles, divided by blocks of space or by their names."""

    kind: Literal["tiles"] = "tiles"
    files: dict[str, tuple[Part, ...]]
    """Name of each tile inside the data folder -> the parts that it has points of."""
    labels: dict[int, int | None]
    """Class id in the tiles -> id of the class that the model learns; null for points that do not count."""
    block: float = Field(default=0.0, ge=0)
    """Edge of a block, metres; blocks lie at multiples of it. 0 where each tile is of one part."""
    val: tuple[tuple[int, int], ...] = ()
    """Blocks of the validation part, counted from the origin of the coordinates."""
    test: tuple[tuple[int, int], ...] = ()
    """Blocks of the test part."""

    def parts(self, coord: NDArray[np.float64]) -> NDArray[np.int64]:
        """The part of each point by its block, [N]: the place in `PARTS`."""
        cells = np.floor(coord[:, :2] / self.block).astype(np.int64)
        found, inverse = np.unique(cells, axis=0, return_inverse=True)
        part_of = dict.fromkeys(self.val, 1) | dict.fromkeys(self.test, 2)
        return np.array([part_of.get((x, y), 0) for x, y in found.tolist()])[inverse.reshape(-1)]


class Tile(NamedTuple):
    """What one tile holds."""

    name: str
    counts: Counter[int]
    """Points of each class id."""
    places: NDArray[np.float64]
    """x and y of a sample of its points, [S, 2]."""
    ids: NDArray[np.int64]
    """Their class ids, [S]."""
    density: float
    """Points per square metre that holds any."""


@dataclass(frozen=True)
class Found:
    """What a folder of tiles teaches."""

    data: TilesData
    classes: tuple[ClassInfo, ...]
    counts: Mapping[str, int]
    """Points of each class by its name."""
    density: tuple[float, float]
    """Of the sparsest and of the densest tile, points per square metre."""
    places: NDArray[np.float64]
    """x and y of a sample of points, [S, 2]."""
    parts: NDArray[np.int64]
    """Their parts, [S]: the place in `PARTS`."""


def cloud_files(folder: Path) -> list[Path]:
    """The point clouds in a folder and the folders below it, by name; files of other kinds are stepped over.

    Raises:
        MissingFileError: if there is no such folder, or no cloud in it.
    """
    if not folder.is_dir():
        raise MissingFileError(f"{folder}: there is no such folder")
    found = []
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.suffix.lower() not in _SUFFIXES:
            continue
        try:
            sniff(file)
        except FormatError as error:
            log.info("%s", error)
            continue
        found.append(file)
    if not found:
        raise MissingFileError(f"{folder}: holds no point clouds; {', '.join(_SUFFIXES)} are looked for")
    return found


def find_tiles(
    folder: Path, classes: ClassMap, train: Sequence[str] = (), val: Sequence[str] = (), seed: int = 0
) -> Found:
    """Look through a folder of classified tiles and divide them.

    Args:
        folder: where they lie; each tile is read once.
        classes: which ids make which class.
        train: patterns of the tiles to learn from; those of no pattern if only `val` is given.
        val: patterns of the tiles that choose the epoch; without patterns, blocks of space divide all tiles.
        seed: decides which block falls into which part.

    Raises:
        MissingFileError: if there are no tiles, or none matches a pattern.
        InputError: if there are fewer than two classes to learn.
    """
    files = {file.relative_to(folder).as_posix(): file for file in cloud_files(folder)}
    named = _by_name(folder, [*files], train, val) if train or val else {}
    tiles = []
    for name in progress(named or files, "Reading tiles"):
        tile = _look(files[name], name)
        if tile is not None:
            tiles.append(tile)
    if not tiles:
        raise InputError(f"{folder}: none of its point clouds has classes to learn from")
    counts: Counter[int] = Counter()
    for tile in tiles:
        counts.update(tile.counts)
    labels, used = _labels(counts, classes)
    places = np.concatenate([tile.places for tile in tiles])
    owner = np.repeat(np.arange(len(tiles)), [len(tile.places) for tile in tiles])
    data = TilesData(files={}, labels=labels)
    if named:
        parts = np.array([PARTS.index(named[tile.name]) for tile in tiles])[owner]
    else:
        ids = np.concatenate([tile.ids for tile in tiles])
        data = _in_blocks(data, places, lookup(ids, labels, [one.id for one in used]), seed)
        parts = data.parts(places)
    owned = {
        tile.name: tuple(PARTS[part] for part in np.unique(parts[owner == number]))
        for number, tile in enumerate(tiles)
    }
    return Found(
        data.model_copy(update={"files": owned}),
        used,
        {one.name: sum(counts[code] for code, to in labels.items() if to == one.id) for one in used},
        (min(tile.density for tile in tiles), max(tile.density for tile in tiles)),
        places,
        parts,
    )


def draw_parts(found: Found, file: Path) -> None:
    """Draw where the parts lie, as PNG: fold 1 is learned from, fold 2 validates, fold 3 tests."""
    step = max(1, len(found.places) // _SAMPLE)
    draw_folds(found.places[::step], found.parts[::step], file, found.data.block, overwrite=True)


def label_numbers(cloud: Cloud, labels: Mapping[int, int | None], ids: Sequence[int]) -> NDArray[np.int64]:
    """The class number of each point, [N]; -1 where its id has no class, with a warning if it is new.

    Args:
        cloud: with the field `classification`.
        labels: id in the file -> id of its class, None for none.
        ids: of the classes, in the order of the model's outputs.
    """
    own = np.asarray(cloud.fields["classification"]).astype(np.int64)
    found, counts = np.unique(own, return_counts=True)
    points = dict(zip(found.tolist(), counts.tolist(), strict=True))
    new = ", ".join(f"{code} ({count:,} points)" for code, count in points.items() if code not in labels)
    if new:
        log.warning("%s: the ids %s have no class here and do not count", cloud.name, new)
    return lookup(own, labels, ids)


def lookup(own: NDArray[np.int64], labels: Mapping[int, int | None], ids: Sequence[int]) -> NDArray[np.int64]:
    """The class number of each id, [N]; -1 where it has no class."""
    number: dict[int | None, int] = {code: place for place, code in enumerate(ids)}
    found, inverse = np.unique(own, return_inverse=True)
    table = np.array([number.get(labels.get(code), -1) for code in found.tolist()], dtype=np.int64)
    return table[inverse.reshape(-1)]


def _by_name(folder: Path, names: Sequence[str], train: Sequence[str], val: Sequence[str]) -> dict[str, Part]:
    """The part of each tile by patterns; where one part has none, it is all other tiles."""
    matching = {
        part: {name for pattern in patterns for name in _matching(folder, names, pattern, part)}
        for part, patterns in (("train", train), ("val", val))
    }
    if both := sorted(matching["train"] & matching["val"]):
        raise InputError(f"{folder / both[0]}: is in both the train and the val part")
    rest = {*names} - matching["train"] - matching["val"]
    learned = matching["train"] or rest
    judged = matching["val"] or rest
    return {name: "train" if name in learned else "val" for name in names if name in learned | judged}


def _matching(folder: Path, names: Sequence[str], pattern: str, part: str) -> list[str]:
    found = {file.relative_to(folder).as_posix() for file in folder.glob(pattern)} & {*names}
    if not found:
        raise MissingFileError(f"{folder}: no point cloud matches {pattern!r} of the {part} part")
    return sorted(found)


def _look(file: Path, name: str) -> Tile | None:
    cloud = read_cloud(file, ReadOptions())
    if "classification" not in cloud.fields:
        log.warning("%s: has no classes and is left out", file)
        return None
    ids = np.asarray(cloud.fields["classification"]).astype(np.int64)
    measured = cloud.measured()
    coord, ids = cloud.coord[measured], ids[measured]
    if not len(coord):
        log.warning("%s: has no points and is left out", file)
        return None
    found, counts = np.unique(ids, return_counts=True)
    cells = np.unique(np.floor(coord[:, :2]), axis=0)
    sample = np.random.default_rng(0).permutation(len(coord))[:_SAMPLE]
    return Tile(
        name,
        Counter(dict(zip(found.tolist(), counts.tolist(), strict=True))),
        coord[sample, :2],
        ids[sample],
        len(coord) / len(cells),
    )


def _labels(counts: Counter[int], classes: ClassMap) -> tuple[dict[int, int | None], tuple[ClassInfo, ...]]:
    """The class of each id that occurs, and the classes that are left; says what is left out."""
    ids = sorted(counts)
    numbers, unknown = classes.number(ids)
    labels: dict[int, int | None] = {
        code: classes.classes[number].id if number >= 0 else None
        for code, number in zip(ids, numbers.tolist(), strict=True)
    }
    total = sum(counts.values())
    if unknown:
        named = ", ".join(f"{code} ({counts[int(code)]:,} points)" for code in unknown)
        log.warning("the ids %s have no class and are left out; --classes map.csv names them", named)
    if labels.get(1, 0) is None and counts[1] > 0.2 * total:
        log.warning(
            "class 1 (unclassified) holds %.0f %% of the points and is left out; in AHN it is vegetation and "
            "all the rest: --classes ahn learns it",
            100 * counts[1] / total,
        )
    used = []
    for one in classes.classes:
        own = [code for code, to in labels.items() if to == one.id]
        points = sum(counts[code] for code in own)
        if points >= _FEWEST:
            used.append(one)
        elif points:
            log.warning("class %r has %d points only, too few to learn; it is left out", one.name, points)
            labels |= dict.fromkeys(own)
    if len(used) < 2:
        raise InputError(
            f"the tiles hold {len(used)} class(es) of {_FEWEST} points or more, two are needed; there are "
            + ", ".join(f"{code} ({counts[code]:,})" for code in ids)
        )
    return labels, tuple(used)


def _in_blocks(
    data: TilesData, places: NDArray[np.float64], numbers: NDArray[np.int64], seed: int
) -> TilesData:
    """Divide by the largest blocks that give each class a fair share of each part; else by the smallest."""
    counted = numbers >= 0
    places, numbers = places[counted], numbers[counted]
    for size in _BLOCKS:
        groups = blocks(places, size)
        if groups.max() + 1 < _FEWEST_BLOCKS and size > _BLOCKS[-1]:
            continue
        fold = deal(numbers, groups, _FOLDS, seed)
        if _is_fair(numbers, fold):
            break
    cells = np.floor(places / size).astype(np.int64)
    test, val = (
        tuple((x, y) for x, y in np.unique(cells[fold == number], axis=0).tolist()) for number in (0, 1)
    )
    return data.model_copy(update={"block": size, "val": val, "test": test})


def _is_fair(numbers: NDArray[np.int64], fold: NDArray[np.int64]) -> bool:
    """Whether the test and the validation fold hold a quarter of an equal share of each class, or more."""
    total = np.bincount(numbers)
    return all(
        (np.bincount(numbers[fold == one], minlength=len(total)) * 4 * _FOLDS >= total).all()
        for one in (0, 1)
    )
