"""Random changes to clouds while training: each a small function of a cloud and a generator."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from geomix.config import Config
from pointcloud.cloud import Cloud

Array = NDArray[Any]


ABOVE_GROUND = "_above_ground"
"""Field that carries the height above ground of a whole cloud through its parts and changes, metres."""


class Augment(Config):
    """Which random changes a training cloud goes through."""

    rotate: float = Field(default=180.0, ge=0, le=180)
    """Largest turn about the vertical axis, degrees."""
    tilt: float = Field(default=0.0, ge=0, le=90)
    """Largest turn about each horizontal axis, degrees."""
    flip: bool = True
    """Mirror x with probability 1/2."""
    scale: tuple[float, float] = (0.9, 1.1)
    """Factor on all axes; heights decide classes in aerial scans, so keep it near 1 there."""
    jitter: float = Field(default=0.0, ge=0)
    """Standard deviation of noise on coordinates, metres, cut off at three times that."""
    drop_points: float = Field(default=0.0, ge=0, lt=1)
    """Largest share of points left out; the share itself is drawn, in half of the clouds it is 0."""
    drop_fields: float = Field(default=0.0, ge=0, le=1)
    """Probability to take each optional field away, so that a model learns to do without."""
    elastic: tuple[tuple[float, float], ...] = ()
    """Smooth displacement: pairs of (size of the waves, displacement), metres, in 95 % of the clouds."""
    brightness: float = Field(default=0.0, ge=0, le=1)
    """Largest change of colours and intensity, as a share of their value."""
    color_noise: float = Field(default=0.0, ge=0)
    """Standard deviation of noise on each colour, 0 to 1."""


def augment(cloud: Cloud, rng: Generator, changes: Augment, optional: tuple[str, ...] = ()) -> Cloud:
    """Apply all changes to a cloud.

    Args:
        cloud: metres; its height axis is z.
        rng: decides everything.
        changes: which changes and how strong.
        optional: fields that may be taken away.

    Returns:
        A cloud with fewer or as many points, around the origin.
    """
    cloud = drop_points(cloud, rng, changes.drop_points)
    cloud = replace(cloud, coord=cloud.coord - cloud.coord.mean(axis=0)) if len(cloud) else cloud
    cloud = turn(cloud, random_turn(rng, changes.rotate, changes.tilt, changes.flip))
    factor = rng.uniform(*changes.scale)
    coord = cloud.coord * factor
    if ABOVE_GROUND in cloud.fields:
        cloud = cloud.with_fields(**{ABOVE_GROUND: cloud.fields[ABOVE_GROUND] * factor})
    for wave, displacement in changes.elastic if rng.random() < 0.95 else ():
        coord = elastic(coord, rng, wave, displacement)
    if changes.jitter:
        noise = rng.normal(0, changes.jitter, coord.shape)
        coord = coord + np.clip(noise, -3 * changes.jitter, 3 * changes.jitter)
    fields = recolor(cloud.fields, rng, changes.brightness, changes.color_noise)
    kept = {name: values for name, values in fields.items()
            if name not in optional or rng.random() >= changes.drop_fields}  # fmt: skip
    return replace(cloud, coord=coord, fields=kept)


def drop_points(cloud: Cloud, rng: Generator, most: float) -> Cloud:
    """Leave out a random share of the points, at most `most`, in half of the clouds."""
    if not most or rng.random() < 0.5:
        return cloud
    return cloud.take(rng.random(len(cloud)) >= rng.uniform(0, most))


def random_turn(rng: Generator, rotate: float, tilt: float, flip: bool) -> Array:
    """A matrix [3, 3] that turns about z by up to `rotate` degrees, about x and y by up to `tilt`."""
    matrix = np.diag([-1.0 if flip and rng.random() < 0.5 else 1.0, 1.0, 1.0])
    for axis, most in ((0, tilt), (1, tilt), (2, rotate)):
        matrix = rotation(axis, np.deg2rad(rng.uniform(-most, most))) @ matrix
    return matrix


def rotation(axis: int, angle: float) -> Array:
    """The matrix [3, 3] of a turn by `angle` radians about an axis."""
    first, second = [other for other in range(3) if other != axis]
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = np.cos(angle)
    matrix[first, second], matrix[second, first] = -np.sin(angle), np.sin(angle)
    return matrix


def turn(cloud: Cloud, matrix: Array) -> Cloud:
    """Turn or mirror coordinates and normals by an orthogonal matrix."""
    turned = replace(cloud, coord=cloud.coord @ matrix.T)
    if "normal" not in cloud.fields:
        return turned
    normal = np.asarray(cloud.fields["normal"]) @ matrix.T
    return turned.with_fields(normal=normal.astype(np.float32))


def elastic(coord: Array, rng: Generator, wave: float, displacement: float) -> Array:
    """Displace points along a smooth random field.

    Args:
        coord: [N, 3], metres.
        rng: decides the field.
        wave: distance of the nodes of the field, metres.
        displacement: standard deviation of the displacement at the nodes before smoothing, metres.
    """
    if len(coord) == 0:
        return coord
    low = coord.min(axis=0)
    nodes = np.ceil((coord.max(axis=0) - low) / wave).astype(int) + 3
    field = rng.normal(0, 1, (*nodes, 3))
    for axis in range(3):
        # A three-point mean, twice: neighbours move together.
        for _ in range(2):
            field = _smooth(field, axis)
    place = (coord - low) / wave + 1
    corner = np.floor(place).astype(int)
    part = place - corner
    moved = np.zeros_like(coord)
    for step in np.ndindex(2, 2, 2):
        weight = np.prod(np.where(step, part, 1 - part), axis=1)
        x, y, z = (corner + step).T
        moved += weight[:, None] * field[x, y, z]
    return np.asarray(coord + moved * displacement)


def _smooth(field: Array, axis: int) -> Array:
    padded = np.pad(field, [(1, 1) if a == axis else (0, 0) for a in range(field.ndim)], mode="edge")
    length = field.shape[axis]
    shifted = [np.take(padded, range(step, step + length), axis) for step in range(3)]
    return np.asarray(np.mean(shifted, axis=0))


def recolor(fields: Mapping[str, Array], rng: Generator, brightness: float, noise: float) -> dict[str, Array]:
    """Change the brightness of colours and intensity, and add noise to colours."""
    out = dict(fields)
    for name in ("color", "nir", "intensity"):
        if name in out and (brightness or noise):
            values = out[name] * rng.uniform(1 - brightness, 1 + brightness)
            if noise and name != "intensity":
                values = values + rng.normal(0, noise, values.shape)
            out[name] = np.clip(values, 0, 1).astype(np.float32)
    return out


def views(count: int = 8) -> list[Callable[[Cloud], Cloud]]:
    """The views of a cloud that test-time augmentation averages: quarter turns, then the same mirrored.

    Args:
        count: number of views, 1 to 8; the first is the cloud as it is.
    """
    mirror = np.diag([-1.0, 1.0, 1.0])
    turns = [rotation(2, quarter * np.pi / 2).round() for quarter in range(4)]
    matrices = [*turns, *(matrix @ mirror for matrix in turns)][:count]
    return [lambda cloud, matrix=matrix: turn(cloud, matrix) for matrix in matrices]  # type: ignore[misc]
