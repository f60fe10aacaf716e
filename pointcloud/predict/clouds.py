"""Whole clouds in, the same clouds with classes out: every point, in its order, none cut away."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.checkpoint import Card, card_of, load_model
from geomix.device import choose_device
from geomix.errors import CheckpointError, InputError
from pointcloud.cloud import Cloud
from pointcloud.data.augment import views
from pointcloud.data.inputs import Inputs, is_spoilt_by_noise, read_inputs
from pointcloud.data.noise import Noise, find_noise
from pointcloud.data.scannet import vertex_normals
from pointcloud.io import ReadOptions, WriteOptions, check_output, read_cloud, write_cloud
from pointcloud.predict.probabilities import probabilities
from pointcloud.predict.strange import warn_of_strange

log = logging.getLogger(__name__)

DEFAULT_MODEL = "aerial"


def segment(
    cloud: Cloud | str | Path,
    model: nn.Module | str | Path = DEFAULT_MODEL,
    *,
    device: str = "auto",
    memory: str | int | None = None,
    project: bool = False,
    augmented: bool = False,
    unlabelled: int | None = None,
    noise: bool | None = None,
    noise_id: int | None = None,
) -> Cloud:
    """Give every point of a cloud a class.

    Args:
        cloud: a cloud, or a file of one.
        model: a model from `load_model`, the name of a bundled one, or a model file.
        device: `auto`, `cpu` or `cuda`, for a model given by name.
        memory: most memory to use, as bytes or text like `4GB`; half of what is free if None.
        project: accept longitude and latitude, and project them to metres for the prediction.
        augmented: average over eight turned and mirrored views of the cloud, in eight times the time.
        unlabelled: the class id of points that cannot be labelled; None takes 0, or the largest byte or
            16-bit number that is no class where 0 is one.
        noise: whether isolated points below the ground, in the air and far away are found first and left
            out; None for yes where they would spoil the features of other points.
        noise_id: the class id of such points; None takes 7 (low) and 18 (high) in LAS, unless they are
            classes of the model, and `unlabelled` elsewhere and for far points.

    Returns:
        The same points in the same order with three fields more or replaced: `classification`, the ids of
        the model; `confidence`, the probability of the class; `entropy` of all classes in nats. Points that
        are no measurement (see `Cloud.measured`) have the id `unlabelled`; these and noise have confidence 0.

    Raises:
        InputError: if the cloud lacks what the model needs, or is in degrees and `project` is false.
        MemoryBudgetError: if the work does not fit into the memory.
        NonFiniteError: if the model returns NaN.
    """
    if not isinstance(cloud, Cloud):
        cloud = read_cloud(cloud)
    if not isinstance(model, nn.Module):
        model = load_model(model, choose_device(device), "pointcloud")
    card = card_of(model)
    code = _unlabelled_code(card) if unlabelled is None else unlabelled
    measured = cloud.measured()
    known = _with_normals(cloud, read_inputs(card.inputs))
    known = known if measured.all() else known.take(np.flatnonzero(measured))
    if len(known) < len(cloud):
        lost = len(cloud) - len(known)
        log.warning(
            "%s: %d of %d points are no measurement and get the id %d", cloud.name, lost, len(cloud), code
        )
    known = _metric(known, project)
    inputs, codes, seen = read_inputs(card.inputs), np.full(len(cloud), code), np.flatnonzero(measured)
    if is_spoilt_by_noise(inputs) if noise is None else noise:
        found = find_noise(known.coord)
        if found.any.any():
            codes[seen] = _noise_codes(codes[seen], found, known, card, noise_id)
            seen, known = seen[~found.any], known.take(~found.any)
    warn_of_strange(known, card)
    probability = probabilities(model, known, inputs, views() if augmented else None, memory)
    return _with_results(cloud, codes, seen, probability, card)


def _noise_codes(
    codes: NDArray[np.int64], found: Noise, cloud: Cloud, card: Card, noise_id: int | None
) -> NDArray[np.int64]:
    """The ids of noise in place of those in `codes`, [N]; says what was found."""
    reserved = cloud.source.noise if cloud.source and cloud.source.noise else (None, None)
    classes, codes = {info.id for info in card.classes or ()}, codes.copy()
    masks = {"low": found.low, "high": found.high, "far": found.far}
    for (name, mask), own in zip(masks.items(), (*reserved, None), strict=True):
        if not mask.any():
            continue
        wanted = own if noise_id is None and own not in classes else noise_id
        codes[mask] = codes[mask] if wanted is None else wanted
        log.warning(
            "%s: %d of %d points are %s noise, the first at %s; they get the id %d and no other point feels "
            "them; --no-noise keeps them",
            cloud.name,
            int(mask.sum()),
            len(cloud),
            name,
            ", ".join(f"{value:.2f}" for value in cloud.coord[mask][0]),
            int(codes[mask][0]),
        )
    return codes


def segment_file(
    path: Path,
    output: Path,
    model: nn.Module,
    *,
    reading: ReadOptions | None = None,
    writing: WriteOptions | None = None,
    memory: str | int | None = None,
    project: bool = False,
    augmented: bool = False,
    unlabelled: int | None = None,
    noise: bool | None = None,
    noise_id: int | None = None,
    overwrite: bool = False,
) -> Cloud:
    """Read a cloud, give it classes as `segment` does, write it, and return it.

    Raises:
        GeomixError: whatever stands in the way; nothing is written then.
    """
    check_output(path, output, overwrite)
    result = segment(
        read_cloud(path, reading),
        model,
        memory=memory,
        project=project,
        augmented=augmented,
        unlabelled=unlabelled,
        noise=noise,
        noise_id=noise_id,
    )
    write_cloud(result, output, writing, overwrite)
    return result


def _unlabelled_code(card: Card) -> int:
    """0, "never classified" in LAS, SemanticKITTI and ScanNet alike; or a number that is no class."""
    ids = {info.id for info in card.classes or ()}
    return next(code for code in (0, 255, 65535) if code not in ids)


def _with_normals(cloud: Cloud, inputs: Inputs) -> Cloud:
    """The cloud with the normals of its mesh, where the model wants normals and the file has faces."""
    if "normal" not in inputs.features or "normal" in cloud.fields:
        return cloud
    faces = cloud.source.faces() if cloud.source and cloud.source.faces else None
    if faces is None:
        return cloud
    log.info("%s: normals are taken from the %d faces of the mesh", cloud.name, len(faces))
    return cloud.with_fields(normal=vertex_normals(cloud.coord, faces))


def _metric(cloud: Cloud, project: bool) -> Cloud:
    """The cloud in metres, which voxels are counted in."""
    if cloud.unit != "degree" or len(cloud) == 0:
        return cloud
    if not project:
        raise InputError(
            f"{cloud.name}: coordinates are longitude and latitude in degrees, the model needs metres; "
            "allow --project to predict in a local projection (the output keeps its degrees), "
            "or reproject the file"
        )
    import pyproj

    middle = np.median(cloud.coord[:, :2], axis=0)  # whatever one point far away says
    crs = pyproj.CRS.from_user_input(cloud.crs or "EPSG:4326").to_2d()
    local = pyproj.CRS.from_proj4(f"+proj=aeqd +lon_0={middle[0]:.9f} +lat_0={middle[1]:.9f} +units=m")
    transform = pyproj.Transformer.from_crs(crs.geodetic_crs or crs, local, always_xy=True)
    x, y = transform.transform(cloud.coord[:, 0], cloud.coord[:, 1])
    log.warning("%s: predicted in metres around longitude %.5f, latitude %.5f", cloud.name, *middle)
    return replace(cloud, coord=np.stack([x, y, cloud.coord[:, 2]], axis=1), unit="metre")


def _with_results(
    cloud: Cloud, codes: NDArray[np.int64], seen: NDArray[np.int64], probability: Tensor, card: Card
) -> Cloud:
    """The cloud with the fields of a prediction.

    Args:
        cloud: all N points.
        codes: the ids of those that the model has not seen, [N].
        seen: the numbers of those that it has seen, [M].
        probability: what it says of these, [M, K].
        card: of the model.
    """
    if card.classes is None:
        raise CheckpointError(f"the model {card.name!r} names no classes on its card; it cannot label points")
    ids = np.array([info.id for info in card.classes], dtype=np.int64)
    largest = max(int(ids.max(initial=0)), int(codes.max(initial=0)))
    dtype = np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32
    best, number = probability.max(dim=1)
    classes = codes.astype(dtype)
    confidence, entropy = np.zeros((2, len(cloud)), dtype=np.float32)
    classes[seen] = ids[number.numpy()]
    confidence[seen] = best.numpy()
    entropy[seen] = -torch.xlogy(probability, probability).sum(dim=1).numpy()
    return cloud.with_fields(classification=classes, confidence=confidence, entropy=entropy)
