"""Training samples and whole clouds, packed into batches that depend on seed, epoch and place alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from torch import Tensor
from torch.utils.data import Dataset

from geomix.config import Config
from geomix.errors import InputError
from pointcloud.cloud import Cloud
from pointcloud.data.augment import Augment, augment
from pointcloud.data.inputs import Inputs, Sample, cleaned, prepare, whole_features
from pointcloud.data.labels import IGNORE
from pointcloud.data.sources import LABEL, LabelledCloud

_KEPT_CLOUDS = 32


class CropConfig(Config):
    """What part of a cloud is one training sample."""

    radius: tuple[float, float] | None = None
    """Half edge of a square cut out of the cloud, metres, drawn between the two; null: whole clouds."""
    whole: float = Field(default=0.0, ge=0, le=1)
    """Share of samples that are whole clouds all the same."""
    balanced: float = Field(default=0.5, ge=0, le=1)
    """Share of squares laid around a point of a class drawn regardless of its frequency."""
    max_points: int | None = Field(default=None, ge=1)
    """Keep at most this many points, the nearest to the middle of the sample."""
    mix: float = Field(default=0.0, ge=0, le=1)
    """Share of samples that lie in another sample's place together with it (Mix3D)."""


class Batch(NamedTuple):
    """Clouds one after another."""

    grid_coord: Tensor
    """Int64, [M, 3]."""
    feat: Tensor
    """Float32, [M, F]."""
    cu_seqlens: Tensor
    """Where each cloud starts and the last one ends, [clouds + 1]."""
    labels: Tensor
    """Most frequent class of the points of each voxel, or `IGNORE`, [M]."""
    inverse: Tensor
    """The voxel of each point, [N]."""
    point_labels: Tensor
    """Class of each point, or `IGNORE`, [N]."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class LabelledSample:
    """A prepared cloud with its labels."""

    sample: Sample
    labels: Tensor
    """Class of each point, or `IGNORE`, [N]."""
    name: str


def prepare_labelled(cloud: Cloud, inputs: Inputs, name: str) -> LabelledSample:
    """Voxels, features and labels of a cloud."""
    labels = torch.from_numpy(np.asarray(cloud.fields[LABEL], dtype=np.int64))
    return LabelledSample(prepare(cloud, inputs), labels, name)


def voxel_labels(labels: Tensor, inverse: Tensor, voxels: int) -> Tensor:
    """Most frequent class of the points of each voxel; the lowest of equals; `IGNORE` where none is labelled.

    Args:
        labels: class of each point, or `IGNORE`, [N].
        inverse: the voxel of each point, [N].
        voxels: number of voxels M.

    Returns:
        Int64, [M].
    """
    counted = (labels != IGNORE).numpy()
    label, voxel = labels.numpy()[counted], inverse.numpy()[counted]
    out = np.full(voxels, IGNORE, dtype=np.int64)
    if len(label):
        classes = int(label.max()) + 1
        pair, count = np.unique(voxel * classes + label, return_counts=True)
        # Rising in frequency, equals from the highest class down: what is written last is the answer.
        order = np.lexsort((-(pair % classes), count))
        out[pair[order] // classes] = pair[order] % classes
    return torch.from_numpy(out)


def collate(samples: Sequence[LabelledSample]) -> Batch:
    """Pack clouds one after another."""
    sizes = [len(one.sample.grid_coord) for one in samples]
    starts = torch.tensor([0, *sizes]).cumsum(0)
    return Batch(
        torch.cat([one.sample.grid_coord for one in samples]),
        torch.cat([one.sample.feat for one in samples]),
        starts,
        torch.cat(
            [
                voxel_labels(one.labels, one.sample.inverse, size)
                for one, size in zip(samples, sizes, strict=True)
            ]
        ),
        torch.cat([one.sample.inverse + int(start) for one, start in zip(samples, starts[:-1], strict=True)]),
        torch.cat([one.labels for one in samples]),
        tuple(one.name for one in samples),
    )


class Crops(Dataset[LabelledSample]):
    """Changed parts of clouds; sample number i is the same whenever it is asked for.

    Args:
        clouds: what they are cut from.
        inputs: how they are prepared.
        crop: which part.
        changes: random changes.
        seed: with the number of a sample it decides everything.

    Raises:
        InputError: if there is no cloud.
    """

    def __init__(
        self, clouds: Sequence[LabelledCloud], inputs: Inputs, crop: CropConfig, changes: Augment, seed: int
    ) -> None:
        if not clouds:
            raise InputError("there is no cloud to train on")
        self.clouds, self.inputs, self.crop, self.changes, self.seed = (
            list(clouds),
            inputs,
            crop,
            changes,
            seed,
        )
        self._read = lru_cache(maxsize=_KEPT_CLOUDS)(
            lambda index: whole_features(cleaned(self.clouds[index].read(), self.inputs), self.inputs)
        )

    def __getitem__(self, number: int) -> LabelledSample:
        rng = np.random.default_rng([self.seed, number])
        cloud, name = self._draw(rng)
        if rng.random() < self.crop.mix:
            other, other_name = self._draw(rng)
            cloud, name = together(cloud, other), f"{name} with {other_name}"
        return prepare_labelled(cloud, self.inputs, name)

    def _draw(self, rng: Generator) -> tuple[Cloud, str]:
        index = int(rng.integers(len(self.clouds)))
        cloud = cut(self._read(index), rng, self.crop)
        return augment(cloud, rng, self.changes, self.inputs.optional_fields), self.clouds[index].name


def cut(cloud: Cloud, rng: Generator, crop: CropConfig) -> Cloud:
    """A square around a random point, no more points than allowed; or the whole cloud."""
    if len(cloud) == 0:
        return cloud
    middle = cloud.coord[_centre(cloud, rng, crop.balanced), :2]
    distance = np.abs(cloud.coord[:, :2] - middle).max(axis=1)
    if crop.radius is not None and rng.random() >= crop.whole:
        kept = np.flatnonzero(distance <= rng.uniform(*crop.radius))
        cloud, distance = cloud.take(kept), distance[kept]
    if crop.max_points is not None and len(cloud) > crop.max_points:
        cloud = cloud.take(np.sort(np.argsort(distance, kind="stable")[: crop.max_points]))
    return cloud


def _centre(cloud: Cloud, rng: Generator, balanced: float) -> int:
    """Index of any point, or of a point of a class drawn regardless of its frequency."""
    labels = np.asarray(cloud.fields[LABEL])
    present = np.unique(labels[labels != IGNORE])
    if len(present) and rng.random() < balanced:
        candidates = np.flatnonzero(labels == rng.choice(present))
        return int(candidates[rng.integers(len(candidates))])
    return int(rng.integers(len(cloud)))


def together(first: Cloud, second: Cloud) -> Cloud:
    """Two clouds in one place, with the fields that both have."""
    shared = [name for name in first.fields if name in second.fields]
    fields = {name: np.concatenate([first.fields[name], second.fields[name]]) for name in shared}
    return replace(first, coord=np.concatenate([first.coord, second.coord]), fields=fields)


class Whole(Dataset[LabelledSample]):
    """Whole clouds, as prediction sees them."""

    def __init__(self, clouds: Sequence[LabelledCloud], inputs: Inputs) -> None:
        self.clouds, self.inputs = list(clouds), inputs

    def __getitem__(self, number: int) -> LabelledSample:
        cloud = cleaned(self.clouds[number].read(), self.inputs)
        return prepare_labelled(cloud, self.inputs, self.clouds[number].name)

    def __len__(self) -> int:
        return len(self.clouds)
