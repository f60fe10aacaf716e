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
from pointcloud.data.inputs import Inputs, read_inputs
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

    Returns:
        The same points in the same order with three fields more or replaced: `classification`, the ids of
        the model; `confidence`, the probability of the class; `entropy` of all classes in nats. Points that
        are no measurement (see `Cloud.measured`) have the id `unlabelled` and confidence 0.

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
    metric = _metric(known, project)
    warn_of_strange(metric, card)
    found = probabilities(model, metric, read_inputs(card.inputs), views() if augmented else None, memory)
    return _with_results(cloud, measured, found, card, code)


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

    middle = cloud.coord[:, :2].mean(axis=0)
    crs = pyproj.CRS.from_user_input(cloud.crs or "EPSG:4326").to_2d()
    local = pyproj.CRS.from_proj4(f"+proj=aeqd +lon_0={middle[0]:.9f} +lat_0={middle[1]:.9f} +units=m")
    transform = pyproj.Transformer.from_crs(crs.geodetic_crs or crs, local, always_xy=True)
    x, y = transform.transform(cloud.coord[:, 0], cloud.coord[:, 1])
    log.warning("%s: predicted in metres around longitude %.5f, latitude %.5f", cloud.name, *middle)
    return replace(cloud, coord=np.stack([x, y, cloud.coord[:, 2]], axis=1), unit="metre")


def _with_results(cloud: Cloud, measured: NDArray[np.bool_], found: Tensor, card: Card, code: int) -> Cloud:
    if card.classes is None:
        raise CheckpointError(f"the model {card.name!r} names no classes on its card; it cannot label points")
    ids = np.array([info.id for info in card.classes], dtype=np.int64)
    largest = max(int(ids.max(initial=0)), code)
    dtype = np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32
    classes = np.full(len(cloud), code, dtype=dtype)
    confidence = np.zeros(len(cloud), dtype=np.float32)
    entropy = np.zeros(len(cloud), dtype=np.float32)
    best, number = found.max(dim=1)
    classes[measured] = ids[number.numpy()]
    confidence[measured] = best.numpy()
    entropy[measured] = -torch.xlogy(found, found).sum(dim=1).numpy()
    return cloud.with_fields(classification=classes, confidence=confidence, entropy=entropy)
