"""From a cloud to what the network sees: one preprocessing for training and for prediction.

`Inputs` is saved on the card of a model, so a prediction repeats what the training did.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from geomix.config import Config, hint, parse_config
from geomix.errors import InputError
from pointcloud.cloud import Cloud
from pointcloud.data.augment import ABOVE_GROUND
from pointcloud.data.noise import find_noise
from pointcloud.data.surroundings import height_above_ground, height_above_opening, shape_of_surroundings
from pointcloud.voxels import relative, voxel_mean, voxelize

Array = NDArray[Any]


class Inputs(Config):
    """The features of a point, in this order, and the size of voxels."""

    voxel: float = Field(gt=0)
    """Edge of a voxel, metres."""
    features: tuple[str, ...]
    """Groups of features: `coord` (metres from the middle of the cloud), `sensor` (coordinates of the file,
    for imported weights: the only group that depends on where the cloud lies), `offset` (place in the
    voxel), `ground` (height above the bare ground), `height` (above what is left when narrow things are
    taken off), `shape` (line, plane or volume, and slope), `intensity`, `returns`, `color`, `nir`,
    `normal`."""
    optional: tuple[str, ...] = ()
    """Groups that a cloud may lack: they are 0 then, and one more channel each says whether it is there."""
    height_radii: tuple[float, ...] = (2.0, 8.0, 25.0)
    """`height` is above the ground that is left when everything narrower than twice this is taken off,
    metres, one channel each."""
    shape_voxels: tuple[float, ...] = (0.5,)
    """`shape` looks at boxes of 3 x 3 x 3 voxels with these edges, metres, five channels each."""
    intensity: Literal["scan", "file"] = "scan"
    """`scan` divides by the 95th percentile of the cloud, because scanners differ; `file` takes it as is."""

    color: Literal["unit", "signed"] = "unit"
    """Scale of colours: `unit` from 0 to 1; `signed` from -1 to 1, as in Pointcept up to 1.5.2."""

    @model_validator(mode="after")
    def _known(self) -> "Inputs":
        for name in (*self.features, *self.optional):
            if name not in _GROUPS:
                raise ValueError(f"unknown feature {name!r}{hint(name, _GROUPS)}")
        extra = set(self.optional) - set(self.features)
        if extra:
            raise ValueError(f"optional features must be among the features: {', '.join(sorted(extra))}")
        if not self.height_radii or not self.shape_voxels or min(*self.height_radii, *self.shape_voxels) <= 0:
            raise ValueError("height_radii and shape_voxels are one or more lengths above 0 m")
        return self

    @property
    def optional_fields(self) -> tuple[str, ...]:
        """The fields of a cloud that the optional groups are made of."""
        return tuple(field for name in self.optional for field in _GROUPS[name].fields)

    @property
    def channels(self) -> int:
        """Number of features F."""
        return sum(self.width(name) for name in self.features) + len(self.optional)

    def width(self, name: str) -> int:
        """Channels of one group."""
        scales = {"height": self.height_radii, "shape": self.shape_voxels}.get(name, (0.0,))
        return _GROUPS[name].channels * len(scales)


@dataclass(frozen=True)
class _Group:
    channels: int
    compute: Callable[[Cloud, Array, Inputs], Array]
    """(cloud, relative coordinates [N, 3], inputs) -> [N, channels]."""
    fields: tuple[str, ...] = ()
    """What the cloud must carry."""


def _coord(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    if len(local) == 0:
        return local
    high = local.max(axis=0)
    return np.asarray(local - high * np.array([0.5, 0.5, 0.0]))


def _sensor(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    return cloud.coord


def _offset(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    steps = local / inputs.voxel
    return np.asarray(steps - np.floor(np.round(steps * 65536) / 65536) - 0.5)


def _ground(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    if ABOVE_GROUND in cloud.fields:
        heights = np.asarray(cloud.fields[ABOVE_GROUND], dtype=np.float64)
    else:
        heights = height_above_ground(local)
    return _compressed(heights)[:, None]


def _compressed(heights: Array) -> Array:
    """Half a metre decides near the ground and not at all in a crown."""
    return np.asarray(np.sign(heights) * np.log1p(np.abs(heights)))


def _height(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    return _compressed(height_above_opening(local, inputs.height_radii))


def _shape(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    return np.concatenate([shape_of_surroundings(local, size) for size in inputs.shape_voxels], axis=1)


def _intensity(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    values = np.nan_to_num(np.asarray(cloud.fields["intensity"], dtype=np.float64))
    if inputs.intensity == "scan" and len(values):
        high = np.percentile(values, 95)
        values = np.clip(values / high, 0, 2) if high > 0 else values
    return values[:, None]


def _returns(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    number = np.asarray(cloud.fields["return_number"], dtype=np.float64)
    of = np.maximum(np.asarray(cloud.fields["number_of_returns"], dtype=np.float64), 1)
    return np.stack([number / of, np.clip(of - 1, 0, 6) / 2, number == 1], axis=1)


def _column(name: str) -> Callable[[Cloud, Array, Inputs], Array]:
    def column(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
        values = np.nan_to_num(np.asarray(cloud.fields[name], dtype=np.float64))
        return values if values.ndim == 2 else values[:, None]

    return column


def _color(cloud: Cloud, local: Array, inputs: Inputs) -> Array:
    values = _column("color")(cloud, local, inputs)
    return values * 2 - 1 if inputs.color == "signed" else values


_GROUPS: dict[str, _Group] = {
    "coord": _Group(3, _coord),
    "sensor": _Group(3, _sensor),
    "offset": _Group(3, _offset),
    "ground": _Group(1, _ground),
    "height": _Group(1, _height),
    "shape": _Group(5, _shape),
    "intensity": _Group(1, _intensity, ("intensity",)),
    "returns": _Group(3, _returns, ("return_number", "number_of_returns")),
    "color": _Group(3, _color, ("color",)),
    "nir": _Group(1, _column("nir"), ("nir",)),
    "normal": _Group(3, _column("normal"), ("normal",)),
}


def read_inputs(inputs: Mapping[str, Any] | Inputs) -> Inputs:
    """The preprocessing of a card or configuration, checked.

    Raises:
        ConfigError: if a key or a feature is unknown.
    """
    return inputs if isinstance(inputs, Inputs) else parse_config(Inputs, inputs, "inputs")


def is_spoilt_by_noise(inputs: Inputs) -> bool:
    """Whether one point below the ground changes the features of the points around it."""
    return bool({"ground", "height"} & {*inputs.features})


def cleaned(cloud: Cloud, inputs: Inputs) -> Cloud:
    """A cloud without its noise, where that would spoil the features of other points."""
    noise = find_noise(cloud.coord).any if is_spoilt_by_noise(inputs) else np.zeros(0, dtype=bool)
    return cloud.take(~noise) if noise.any() else cloud


def whole_features(cloud: Cloud, inputs: Inputs) -> Cloud:
    """The cloud with what must be computed before it is cut: a part of a roof has no ground around it."""
    if "ground" not in inputs.features or ABOVE_GROUND in cloud.fields:
        return cloud
    return cloud.with_fields(**{ABOVE_GROUND: height_above_ground(relative(cloud.coord))})


def missing_fields(cloud: Cloud, inputs: Mapping[str, Any] | Inputs) -> dict[str, tuple[str, ...]]:
    """The feature groups whose fields a cloud lacks, optional ones included."""
    return {
        name: lacking
        for name in read_inputs(inputs).features
        if (lacking := tuple(field for field in _GROUPS[name].fields if field not in cloud.fields))
    }


def features(cloud: Cloud, inputs: Mapping[str, Any] | Inputs) -> NDArray[np.float32]:
    """The features of every point.

    Args:
        cloud: points with finite coordinates.
        inputs: which features, as on the card of a model.

    Returns:
        Float32, [N, F], with F = `inputs.channels`.

    Raises:
        InputError: if the cloud lacks a field that is not optional; the message lists what it has.
    """
    inputs = read_inputs(inputs)
    missing = missing_fields(cloud, inputs)
    for name, lacking in missing.items():
        if name not in inputs.optional:
            has = ", ".join(sorted(cloud.fields)) or "coordinates alone"
            raise InputError(f"{cloud.name}: the model needs {' and '.join(lacking)}; the cloud has {has}")
    local = relative(cloud.coord)
    columns: list[Array] = []
    for name in inputs.features:
        is_there = name not in missing
        filled = np.zeros((len(cloud), inputs.width(name)))
        columns.append(_GROUPS[name].compute(cloud, local, inputs) if is_there else filled)
        if name in inputs.optional:
            columns.append(np.full((len(cloud), 1), float(is_there)))
    table = np.concatenate(columns, axis=1) if columns else np.zeros((len(cloud), 0))
    return table.astype(np.float32)


@dataclass(frozen=True)
class Sample:
    """A cloud as the network takes it."""

    grid_coord: Tensor
    """Occupied voxels, int64, [M, 3]."""
    feat: Tensor
    """Mean of the features of the points of each voxel, float32, [M, F]."""
    inverse: Tensor
    """The voxel of each point, int64, [N]."""
    representative: Tensor
    """The point nearest to the centre of each voxel, int64, [M]."""


def prepare(cloud: Cloud, inputs: Mapping[str, Any] | Inputs) -> Sample:
    """Voxels and features of a cloud.

    Args:
        cloud: points with finite coordinates in metres; mask others out before.
        inputs: the preprocessing, as on the card of a model.

    Raises:
        InputError: if a field is missing, a coordinate is not finite, or the voxels are too many.
    """
    inputs = read_inputs(inputs)
    voxels = voxelize(cloud.coord, inputs.voxel)
    feat = voxel_mean(features(cloud, inputs), voxels.inverse, len(voxels.grid_coord))
    return Sample(
        torch.from_numpy(voxels.grid_coord),
        torch.from_numpy(feat),
        torch.from_numpy(voxels.inverse),
        torch.from_numpy(voxels.representative),
    )
