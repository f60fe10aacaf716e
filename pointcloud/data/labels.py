"""Class ids of files to the numbers that a network outputs, and back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError

IGNORE = -1
"""The class number of points that no loss and no score counts."""


@dataclass(frozen=True)
class LabelMap:
    """Both ways between the ids of a file and class numbers 0 to K - 1."""

    ids: tuple[int, ...]
    """The id that is written for each class number."""
    merged: Mapping[int, int] = field(default_factory=dict)
    """Further ids, and the id that each of them counts as."""
    ignored: frozenset[int] = frozenset()
    """Ids that no loss and no score counts."""

    def __post_init__(self) -> None:
        if len(set(self.ids)) < len(self.ids):
            raise InputError(f"two classes have the same id: {list(self.ids)}")
        foreign = sorted(set(self.merged.values()) - set(self.ids) - self.ignored)
        if foreign:
            raise InputError(f"ids are merged into {foreign}, which are no classes")
        both = sorted((set(self.ids) | set(self.merged)) & self.ignored)
        if both:
            raise InputError(f"ids {both} are both classes and ignored")

    def numbers(self, ids: NDArray[Any], name: str = "labels") -> NDArray[np.int64]:
        """Class numbers of ids; `IGNORE` for the ignored.

        Args:
            ids: as in the file, integer, [N].
            name: the file, for the message.

        Raises:
            InputError: if an id is neither a class, nor merged, nor ignored; with the count of each.
        """
        found, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
        number = {one: index for index, one in enumerate(self.ids)}
        unknown = []
        table = np.full(len(found), IGNORE, dtype=np.int64)
        for index, one in enumerate(found.tolist()):
            target = self.merged.get(one, one)
            if target in number:
                table[index] = number[target]
            elif target not in self.ignored:
                unknown.append(f"{one} ({counts[index]:,} points)")
        if unknown:
            raise InputError(
                f"{name}: the ids {', '.join(unknown)} are no classes of this model; "
                "list them under `ignored` or `merged`, or add classes"
            )
        return table[inverse.reshape(-1)]

    def to_ids(self, numbers: NDArray[Any], unlabelled: int = 0) -> NDArray[np.int64]:
        """The ids to write for class numbers; `unlabelled` where a number is `IGNORE`."""
        table = np.array([*self.ids, unlabelled], dtype=np.int64)
        return table[np.asarray(numbers, dtype=np.int64)]


def semantic_ids(label: NDArray[Any]) -> NDArray[np.int64]:
    """The lower 16 bits of SemanticKITTI labels; the upper ones number the instance."""
    return np.asarray(label).astype(np.int64) & 0xFFFF


def _classes(table: Iterable[tuple[int, str, str]]) -> list[dict[str, Any]]:
    return [{"id": one, "name": name, "color": color} for one, name, color in table]


# Ids, merging, splits and colours of semantic-kitti-api (semantic-kitti.yaml, MIT).
SEMANTICKITTI = _classes(
    [
        (10, "car", "#6496f5"), (11, "bicycle", "#64e6f5"), (15, "motorcycle", "#1e3c96"),
        (18, "truck", "#501eb4"), (20, "other-vehicle", "#0000ff"), (30, "person", "#ff1e1e"),
        (31, "bicyclist", "#ff28c8"), (32, "motorcyclist", "#961e5a"), (40, "road", "#ff00ff"),
        (44, "parking", "#ff96ff"), (48, "sidewalk", "#4b004b"), (49, "other-ground", "#af004b"),
        (50, "building", "#ffc800"), (51, "fence", "#ff7832"), (70, "vegetation", "#00af00"),
        (71, "trunk", "#873c00"), (72, "terrain", "#96f050"), (80, "pole", "#fff096"),
        (81, "traffic-sign", "#ff0000"),
    ]
)  # fmt: skip
SEMANTICKITTI_MAP = LabelMap(
    ids=tuple(one["id"] for one in SEMANTICKITTI),
    merged={
        13: 20, 16: 20, 60: 40, 252: 10, 253: 31, 254: 30, 255: 32, 256: 20, 257: 20, 258: 18, 259: 20,
    },
    ignored=frozenset({0, 1, 52, 99}),
)  # fmt: skip
SEMANTICKITTI_SPLITS = {
    "train": (0, 1, 2, 3, 4, 5, 6, 7, 9, 10),
    "val": (8,),
    "test": (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21),
}

# NYU40 ids and colours of the ScanNet benchmark, in its order.
SCANNET = _classes(
    [
        (1, "wall", "#aec7e8"), (2, "floor", "#98df8a"), (3, "cabinet", "#1f77b4"), (4, "bed", "#ffbb78"),
        (5, "chair", "#bcbd22"), (6, "sofa", "#8c564b"), (7, "table", "#ff9896"), (8, "door", "#d62728"),
        (9, "window", "#c5b0d5"), (10, "bookshelf", "#9467bd"), (11, "picture", "#c49c94"),
        (12, "counter", "#17becf"), (14, "desk", "#f7b6d2"), (16, "curtain", "#dbdb8d"),
        (24, "refrigerator", "#ff7f0e"), (28, "shower curtain", "#9edae5"), (33, "toilet", "#2ca02c"),
        (34, "sink", "#7080a0"), (36, "bathtub", "#e377c2"), (39, "otherfurniture", "#5254a3"),
    ]
)  # fmt: skip
SCANNET_MAP = LabelMap(
    ids=tuple(one["id"] for one in SCANNET),
    # The benchmark counts 20 of the 40 classes; the others and 0 are ignored.
    ignored=frozenset(range(41)) - {one["id"] for one in SCANNET},
)
