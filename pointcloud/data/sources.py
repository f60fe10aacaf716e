"""Where labelled clouds come from and how they are divided into training, validation and test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geomix.config import Config
from geomix.errors import InputError, MissingFileError
from geomix.learn.splits import Splits
from pointcloud.cloud import Cloud
from pointcloud.data.labels import IGNORE, SEMANTICKITTI_MAP, SEMANTICKITTI_SPLITS, LabelMap, semantic_ids
from pointcloud.data.scannet import read_scene, scenes
from pointcloud.data.tiles import PARTS, Part, TilesData, cloud_files, label_numbers
from pointcloud.synthetic import town

LABEL = "label"
"""The field of a labelled cloud that holds class numbers, or `IGNORE`."""


class FileData(Config):
    """Files of any format that carry a class for each point, such as classified LAS tiles."""

    kind: Literal["files"] = "files"
    train: tuple[str, ...] = ()
    """Patterns of the training files inside the data folder."""
    val: tuple[str, ...] = ()
    """Patterns of the validation files."""
    test: tuple[str, ...] = ()
    """Patterns of the test files."""
    ignored: tuple[int, ...] = (0, 1)
    """Class ids that no loss and no score counts."""
    merged: dict[int, int] = Field(default_factory=dict)
    """Class ids that count as another one."""
    folder: str | None = None
    """Where the files lie if no `--data` says it, from the working directory on."""


class SemanticKittiData(Config):
    """Sequences as released: `sequences/08/velodyne/000000.bin` and `labels/000000.label`."""

    kind: Literal["semantickitti"] = "semantickitti"
    every: int = Field(default=1, ge=1)
    """Use every n-th scan of a sequence."""


class ScanNetData(Config):
    """Scenes as released, or as the common preprocessing leaves them (one array a field)."""

    kind: Literal["scannet"] = "scannet"


class SyntheticData(Config):
    """Made-up towns."""

    kind: Literal["synthetic"] = "synthetic"
    clouds: int = Field(default=6, ge=3)
    """Number of towns; one each is for validation and test."""
    size: float = Field(default=40.0, gt=0)
    """Edge of a town, metres."""
    density: float = Field(default=4.0, gt=0)
    """Points a square metre."""
    seed: int = Field(default=0, ge=0)


AnyData = FileData | TilesData | SemanticKittiData | ScanNetData | SyntheticData
DataConfig = Annotated[AnyData, Field(discriminator="kind")]


@dataclass(frozen=True)
class LabelledCloud:
    """A cloud that is read when it is needed."""

    name: str
    read: Callable[[], Cloud]
    """Gives the cloud with `LABEL`; points that are no measurement are left out."""


def open_splits(data: AnyData, path: Path | None, ids: tuple[int, ...]) -> Splits[LabelledCloud]:
    """Find labelled clouds; nothing is read yet.

    Args:
        data: kind of data and how they are divided.
        path: their folder; synthetic data need none.
        ids: id of each class in the files, in the order of the model's outputs.

    Raises:
        MissingFileError: if a folder is needed and not given, or a file is absent.
        InputError: if a file is in two splits.
    """
    if isinstance(data, SyntheticData):
        return _towns(data, ids)
    if path is None and isinstance(data, FileData) and data.folder is not None:
        path = Path(data.folder)
    if path is None:
        raise MissingFileError(f"data of kind {data.kind} lie in a folder; name it with --data")
    if not path.is_dir():
        raise MissingFileError(f"{path}: there is no such folder")
    if isinstance(data, FileData):
        return _files(data, path, LabelMap(ids, data.merged, frozenset(data.ignored)))
    if isinstance(data, TilesData):
        return _tiles(data, path, ids)
    if isinstance(data, SemanticKittiData):
        return _sequences(data, path, LabelMap(ids, SEMANTICKITTI_MAP.merged, SEMANTICKITTI_MAP.ignored))
    ignored = frozenset(range(41)) - set(ids)
    return _scenes(path, LabelMap(ids, ignored=ignored))


_MOST_COUNTED = 200


def count_classes(clouds: Sequence[LabelledCloud], classes: int) -> NDArray[np.int64]:
    """How many points each class has, [K]; of many clouds, a sample spread over all of them is counted."""
    counts = np.zeros(classes, dtype=np.int64)
    for one in clouds[:: max(1, len(clouds) // _MOST_COUNTED)]:
        labels = np.asarray(one.read().fields[LABEL])
        counts += np.bincount(labels[labels != IGNORE], minlength=classes)
    return counts


def labelled(cloud: Cloud, labels: LabelMap, name: str) -> Cloud:
    """A cloud with class numbers in `LABEL`, without the points that are no measurement.

    Raises:
        InputError: if it has no `classification`, or ids that the map does not know.
    """
    if "classification" not in cloud.fields:
        raise InputError(
            f"{name}: has no classes to learn from; its fields are {', '.join(cloud.fields) or 'none'}"
        )
    numbers = labels.numbers(np.asarray(cloud.fields["classification"]), name)
    cloud = cloud.with_fields(**{LABEL: numbers})
    measured = cloud.measured()
    return cloud if measured.all() else cloud.take(measured)


def _files(data: FileData, path: Path, labels: LabelMap) -> Splits[LabelledCloud]:
    from pointcloud.io import read_cloud

    seen: dict[Path, str] = {}

    def part(split: str, patterns: tuple[str, ...]) -> list[LabelledCloud]:
        found: list[Path] = []
        for pattern in patterns:
            matching = sorted(file for file in path.glob(pattern) if file.is_file())
            if not matching:
                raise MissingFileError(f"{path}: no file matches {pattern!r} of the {split} split")
            found += [file for file in matching if file not in found]
        for file in found:
            if seen.setdefault(file, split) != split:
                raise InputError(f"{file}: is in both the {seen[file]} and the {split} split")
        return [_cloud(file, partial(read_cloud, file), labels) for file in found]

    return Splits(part("train", data.train), part("val", data.val), part("test", data.test))


def _tiles(data: TilesData, path: Path, ids: tuple[int, ...]) -> Splits[LabelledCloud]:
    parts: dict[Part, list[LabelledCloud]] = {part: [] for part in PARTS}
    for name, own in data.files.items():
        if not (path / name).is_file():
            raise MissingFileError(f"{path / name}: there is no such file, though the training data name it")
        for part in own:
            parts[part].append(LabelledCloud(name, partial(_tile, path / name, data, ids, part)))
    return Splits(**parts)


def _tile(file: Path, data: TilesData, ids: tuple[int, ...], part: Part | None) -> Cloud:
    """A tile with the labels of one part: its points alone to learn, with all points around them to judge."""
    from pointcloud.io import read_cloud

    cloud = read_cloud(file)
    if "classification" not in cloud.fields:
        raise InputError(f"{file}: has no classes; its fields are {', '.join(cloud.fields) or 'none'}")
    cloud = cloud.with_fields(**{LABEL: label_numbers(cloud, data.labels, ids)})
    measured = cloud.measured()
    cloud = cloud if measured.all() else cloud.take(measured)
    if part is None or not data.block:
        return cloud
    own = data.parts(cloud.coord) == PARTS.index(part)
    if part == "train":
        return cloud.take(own)
    return cloud.with_fields(**{LABEL: np.where(own, cloud.fields[LABEL], IGNORE)})


def reopen_tiles(data: FileData | TilesData, path: Path, ids: tuple[int, ...]) -> Splits[LabelledCloud]:
    """Divide the tiles of a folder as those of the training; a tile that the training did not know is a test.

    Args:
        data: how the training data were divided.
        path: any folder of classified tiles.
        ids: id of each class, in the order of the model's outputs.
    """
    if isinstance(data, FileData):
        data = TilesData(
            files={
                file.relative_to(path).as_posix(): (part,)
                for part, patterns in (("test", data.test), ("val", data.val), ("train", data.train))
                for pattern in patterns
                for file in path.glob(pattern)
            },
            labels={**{code: code for code in ids}, **data.merged, **dict.fromkeys(data.ignored)},
        )
    there = {file.relative_to(path).as_posix(): file for file in cloud_files(path)}
    known = {name: parts for name, parts in data.files.items() if name in there}
    splits = _tiles(data.model_copy(update={"files": known}), path, ids)
    new = [
        LabelledCloud(name, partial(_tile, file, data, ids, None))
        for name, file in there.items()
        if name not in known
    ]
    return replace(splits, test=[*splits.test, *new])


def _cloud(file: Path, read: Callable[[], Cloud], labels: LabelMap) -> LabelledCloud:
    return LabelledCloud(file.name, lambda: labelled(read(), labels, str(file)))


def _sequences(data: SemanticKittiData, path: Path, labels: LabelMap) -> Splits[LabelledCloud]:
    home = path / "sequences" if (path / "sequences").is_dir() else path
    parts: dict[str, list[LabelledCloud]] = {}
    for split, numbers in SEMANTICKITTI_SPLITS.items():
        parts[split] = [
            LabelledCloud(f"{number:02d}/{scan.stem}", partial(_scan, scan, labels))
            for number in numbers
            for scan in sorted((home / f"{number:02d}" / "velodyne").glob("*.bin"))[:: data.every]
            # The test sequences are published without labels.
            if _label_file(scan).is_file() or split != "test"
        ]
    if not any(parts.values()):
        raise MissingFileError(f"{path}: holds no scans sequences/NN/velodyne/*.bin of SemanticKITTI")
    return Splits(**parts)


def _label_file(scan: Path) -> Path:
    return scan.parent.parent / "labels" / f"{scan.stem}.label"


def _scan(scan: Path, labels: LabelMap) -> Cloud:
    label_file = _label_file(scan)
    if not label_file.is_file():
        # Read as zeros, the missing labels would make every point a car.
        raise MissingFileError(f"{label_file}: there is no such label file for {scan}")
    points = np.fromfile(scan, dtype=np.float32)
    raw = np.fromfile(label_file, dtype=np.uint32)
    if points.size != 4 * raw.size:
        raise InputError(f"{label_file}: has {raw.size} labels for {points.size / 4:g} points of {scan.name}")
    points = points.reshape(-1, 4)
    cloud = Cloud.from_arrays(points[:, :3], intensity=points[:, 3], classification=semantic_ids(raw))
    return labelled(cloud, labels, str(label_file))


def _scenes(path: Path, labels: LabelMap) -> Splits[LabelledCloud]:
    def part(split: str) -> list[LabelledCloud]:
        return [_cloud(scene, partial(read_scene, scene, True), labels) for scene in scenes(path, split)]

    # The labels of the test scenes are kept by the benchmark.
    return Splits(part("train"), part("val"), [])


def _towns(data: SyntheticData, ids: tuple[int, ...]) -> Splits[LabelledCloud]:
    labels = LabelMap(ids, ignored=frozenset(range(2, 7)) - set(ids))

    def one(number: int) -> LabelledCloud:
        def read() -> Cloud:
            return labelled(town(data.seed + number, data.size, data.density), labels, f"town {number}")

        return LabelledCloud(f"town {number}", read)

    towns = [one(number) for number in range(data.clouds)]
    return Splits(towns[:-2], towns[-2:-1], towns[-1:])
