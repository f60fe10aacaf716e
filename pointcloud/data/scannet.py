"""ScanNet scenes: as released (mesh, over-segmentation, annotation) or already turned into arrays."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomix.errors import FormatError, MissingFileError
from pointcloud.cloud import Cloud

_MESH = "_vh_clean_2.ply"
_TABLE = "scannetv2-labels.combined.tsv"
_LABEL_FILES = ("segment20.npy", "segment.npy")


def scenes(folder: Path, split: str) -> list[Path]:
    """The scenes of a split.

    A folder `train`, `val` or `test` with one folder a scene, or the list `scannetv2_<split>.txt` beside
    `scans` and `scans_test` as released.

    Raises:
        MissingFileError: if there is neither.
    """
    listed = folder / f"scannetv2_{split}.txt"
    if listed.is_file():
        home = folder / ("scans_test" if split == "test" else "scans")
        return [home / name for name in listed.read_text(encoding="utf-8").split()]
    if (folder / split).is_dir():
        return sorted(scene for scene in (folder / split).iterdir() if scene.is_dir())
    raise MissingFileError(f"{folder}: holds neither {listed.name} nor a folder {split} of scenes")


def read_scene(scene: Path, has_labels: bool) -> Cloud:
    """Read one scene with colour, normals and, where it has them, NYU40 ids as `classification`.

    Raises:
        MissingFileError: if a file of the scene is absent.
        FormatError: if its files do not fit together.
    """
    if (scene / "coord.npy").is_file():
        return _read_arrays(scene, has_labels)
    mesh = scene / f"{scene.name}{_MESH}"
    if not mesh.is_file():
        raise MissingFileError(f"{scene}: holds neither coord.npy nor {mesh.name}")
    cloud = _read_mesh(mesh)
    return cloud.with_fields(classification=_labels(scene, len(cloud))) if has_labels else cloud


def _read_arrays(scene: Path, has_labels: bool) -> Cloud:
    """The layout of the common preprocessing: one array a field, labels 0 to 19 or -1."""
    fields: dict[str, NDArray[Any]] = {}
    if (scene / "color.npy").is_file():
        fields["color"] = np.load(scene / "color.npy").astype(np.float32) / 255
    if (scene / "normal.npy").is_file():
        fields["normal"] = np.load(scene / "normal.npy").astype(np.float32)
    cloud = Cloud.from_arrays(np.load(scene / "coord.npy"), **fields)
    if not has_labels:
        return cloud
    for name in _LABEL_FILES:
        if (scene / name).is_file():
            from pointcloud.data.labels import SCANNET_MAP

            numbers = np.load(scene / name).reshape(-1).astype(np.int64)
            return cloud.with_fields(classification=SCANNET_MAP.to_ids(np.where(numbers < 0, -1, numbers)))
    raise MissingFileError(f"{scene}: holds none of {', '.join(_LABEL_FILES)}")


def _read_mesh(mesh: Path) -> Cloud:
    from plyfile import PlyData, PlyParseError

    try:
        data = PlyData.read(str(mesh))
        vertex = data["vertex"]
        coord = np.stack([np.asarray(vertex[axis], dtype=np.float64) for axis in "xyz"], axis=1)
        color = np.stack([np.asarray(vertex[name]) for name in ("red", "green", "blue")], axis=1)
        faces = np.vstack(data["face"]["vertex_indices"]) if "face" in data else np.zeros((0, 3), np.int64)
    except (PlyParseError, KeyError, ValueError) as error:
        raise FormatError(f"{mesh}: is not a coloured ScanNet mesh ({error})") from None
    normal = vertex_normals(coord, faces.astype(np.int64))
    return Cloud.from_arrays(coord, color=color.astype(np.float32) / 255, normal=normal)


def vertex_normals(coord: NDArray[Any], faces: NDArray[Any]) -> NDArray[np.float32]:
    """Unit normals of mesh vertices: the faces around each, weighed by their area; 0 without faces.

    Args:
        coord: vertices, [N, 3].
        faces: indices of the corners, [F, 3].
    """
    corner = coord[faces]
    face_normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    total = np.zeros_like(coord)
    for side in range(3):
        np.add.at(total, faces[:, side], face_normal)
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return (total / np.where(length > 0, length, 1)).astype(np.float32)


def _labels(scene: Path, points: int) -> NDArray[np.int64]:
    """NYU40 id of each vertex: annotated groups -> segments -> vertices; 0 where nothing is annotated."""
    segments_file = scene / f"{scene.name}{_MESH[:-4]}.0.010000.segs.json"
    groups_file = next(
        (file for file in (scene / f"{scene.name}.aggregation.json",
                           scene / f"{scene.name}_vh_clean.aggregation.json") if file.is_file()), None,
    )  # fmt: skip
    if groups_file is None or not segments_file.is_file():
        raise MissingFileError(f"{scene}: has no {segments_file.name} or no .aggregation.json")
    segment = np.array(json.loads(segments_file.read_text(encoding="utf-8"))["segIndices"])
    if len(segment) != points:
        raise FormatError(f"{segments_file}: has {len(segment)} vertices, the mesh has {points}")
    names = category_ids(_find_table(scene))
    label = np.zeros(points, dtype=np.int64)
    for group in json.loads(groups_file.read_text(encoding="utf-8"))["segGroups"]:
        label[np.isin(segment, group["segments"])] = names.get(group["label"], 0)
    return label


def _find_table(scene: Path) -> Path:
    for folder in (scene, *scene.parents[:3]):
        for file in (folder / _TABLE, folder / "meta_data" / _TABLE):
            if file.is_file():
                return file
    raise MissingFileError(f"{_TABLE} is needed beside the scans of {scene.parent}")


def category_ids(table: Path) -> dict[str, int]:
    """NYU40 id of each raw category, from `scannetv2-labels.combined.tsv`."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {row["raw_category"]: int(row["nyu40id"] or 0) for row in rows}
