"""Whole clouds in, the same clouds with classes out: every point, in its order, none cut away.

The scene is never tiled. What it will need is estimated and logged before the work starts; beyond the budget
the network works in slices with the same result.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.checkpoint import Card, card_of, load_model
from geomix.device import choose_device
from geomix.errors import (
    CheckpointError,
    GeomixError,
    InputError,
    MemoryBudgetError,
    NonFiniteError,
    UnsupportedError,
)
from geomix.files import make_folder, new_file
from geomix.memory import default_budget, format_memory, parse_memory
from pointcloud.augment import views
from pointcloud.cloud import Cloud
from pointcloud.data.inputs import Inputs, Sample, prepare, read_inputs
from pointcloud.data.scannet import vertex_normals
from pointcloud.io import ReadOptions, WriteOptions, format_of, read_cloud, write_cloud
from pointcloud.io.ply import faces_of
from pointcloud.io.sniff import sniff

log = logging.getLogger(__name__)

DEFAULT_MODEL = "aerial"
_CROWD = 100
"""From how many points on a cloud says something about its density and extent."""


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
    scores = _score(_metric(known, project), model, card, memory, augmented)
    return _with_results(cloud, measured, scores, card, code)


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


def outputs_for(inputs: Sequence[Path], output: Path, suffix: str | None = None) -> dict[Path, Path]:
    """Where the result of each input goes: `output` itself, or a file in it where it is a folder.

    In a folder, which is made if needed, results keep the name of their input; but a table of floats becomes
    `.label`, or `_lidarseg.bin` for nuScenes, and a folder of arrays becomes `.npz`.

    Args:
        inputs: files or folders.
        output: a file for a single input; a folder, which has no suffix, for one or more.
        suffix: what is hung on the name of each input instead.

    Raises:
        InputError: if there is no input, two have the same name, or several should go to one file.
    """
    if not inputs:
        raise InputError("name one file or more to segment")
    if output.suffix and not output.is_dir():
        if len(inputs) > 1:
            raise InputError(f"{output}: {len(inputs)} inputs go to a folder; give its name without a suffix")
        return {inputs[0]: output}
    twins = sorted({p.name for p in inputs if sum(q.name == p.name for q in inputs) > 1})
    if twins:
        raise InputError(f"{output}: several inputs are called {', '.join(twins)}; segment them one by one")
    make_folder(output)
    return {path: output / (f"{path.name}{suffix}" if suffix else _result_name(path)) for path in inputs}


def _result_name(path: Path) -> str:
    if path.is_dir():
        return f"{path.name}.npz"
    if path.name.endswith(".pcd.bin"):
        return f"{path.name.removesuffix('.pcd.bin')}_lidarseg.bin"
    return f"{path.stem}.label" if path.suffix == ".bin" else path.name


def check_output(path: Path, output: Path, overwrite: bool) -> None:
    """Refuse an output before the work instead of after it.

    Raises:
        UnsupportedError: if its suffix names no format, or E57 for what is none.
        OutputExistsError: if it exists and `overwrite` is false.
        MissingFileError: if its folder does not exist.
        InputError: if it is the input and `overwrite` is false.
    """
    if format_of(output) == "e57" and path.is_file() and sniff(path) != "e57":
        raise UnsupportedError(f"{output}: E57 is written from E57 alone; choose .laz, .ply or .pcd")
    if output.exists() and not overwrite and path.exists() and output.samefile(path):
        raise InputError(f"{output}: is the input itself; choose another name or allow --overwrite")
    with new_file(output, overwrite):
        pass  # nothing is written here, so nothing appears


def _unlabelled_code(card: Card) -> int:
    """0, "never classified" in LAS, SemanticKITTI and ScanNet alike; or a number that is no class."""
    ids = {info.id for info in card.classes or ()}
    return next(code for code in (0, 255, 65535) if code not in ids)


def _with_normals(cloud: Cloud, inputs: Inputs) -> Cloud:
    """The cloud with the normals of its mesh, where the model wants normals and the file has faces."""
    if "normal" not in inputs.features or "normal" in cloud.fields:
        return cloud
    faces = faces_of(cloud)
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


def _budget(memory: str | int | None, device: torch.device) -> int:
    if isinstance(memory, str):
        return parse_memory(memory)
    if memory is not None:
        return memory
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) * 9 // 10
    return default_budget()


class _Scores(NamedTuple):
    """What the model says of each point, [N] each."""

    number: NDArray[np.int64]
    confidence: NDArray[np.float32]
    entropy: NDArray[np.float32]


def _score(cloud: Cloud, model: nn.Module, card: Card, memory: str | int | None, augmented: bool) -> _Scores:
    """Run the model on measured points in metres and carry its scores back from voxels to points."""
    inputs = read_inputs(card.inputs)
    _warn_of_strange(cloud, inputs, card)
    total: Tensor | None = None
    seen = views() if augmented else views(1)
    for view in seen:
        sample = prepare(view(cloud), inputs)
        logits = _run(cloud, sample, model, memory)
        if not torch.isfinite(logits).all():
            bad = int((~torch.isfinite(logits)).any(dim=1).sum())
            raise NonFiniteError(f"{cloud.name}: the model returns NaN for {bad} of {len(logits)} voxels")
        found = logits.float().softmax(dim=1)[sample.inverse]
        total = found if total is None else total + found
    if total is None:
        raise InputError("a prediction needs one view or more")
    probability = total / len(seen)
    entropy = -torch.xlogy(probability, probability).sum(dim=1)
    best, number = probability.max(dim=1)
    return _Scores(number.numpy(), best.numpy(), entropy.numpy())


def _run(cloud: Cloud, sample: Sample, model: nn.Module, memory: str | int | None) -> Tensor:
    """Scores of the voxels, [M, K], on the CPU."""
    weights = next(model.parameters(), None)
    device = weights.device if weights is not None else torch.device("cpu")
    voxels = len(sample.feat)
    budget = _budget(memory, device)
    estimate: Any = model.memory_estimate
    needed = int(estimate(voxels))
    log.info(
        "%s: %d points in %d voxels; needs about %s, may use %s%s",
        cloud.name,
        len(cloud),
        voxels,
        format_memory(needed),
        format_memory(budget),
        "" if needed <= budget else ", so it works in slices",
    )
    try:
        with torch.inference_mode():
            logits: Tensor = model(sample.grid_coord.to(device), sample.feat.to(device), memory=budget)
            return logits.cpu()
    except (MemoryError, torch.OutOfMemoryError) as error:
        if isinstance(error, GeomixError):
            raise type(error)(f"{cloud.name}: {error}") from None
        raise _out_of_memory(cloud, voxels, needed) from None
    except RuntimeError as error:
        if "allocate memory" in str(error):
            raise _out_of_memory(cloud, voxels, needed) from None
        raise


def _out_of_memory(cloud: Cloud, voxels: int, needed: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{cloud.name}: the memory of the machine ran out over {voxels} voxels, which need about "
        f"{format_memory(needed)} at once; give --memory below what is free, to work in slices"
    )


def _warn_of_strange(cloud: Cloud, inputs: Inputs, card: Card) -> None:
    """Say so where a cloud is unlike what the model was made for."""
    if len(cloud) == 0:
        return
    extent = np.ptp(cloud.coord, axis=0)
    if len(cloud) >= _CROWD and extent[:2].max() < 2 * inputs.voxel:
        log.warning(
            "%s: all %d points lie within %.3g m, the model sees voxels of %g m; "
            "are the coordinates in metres? --unit says what they are",
            cloud.name,
            len(cloud),
            extent[:2].max(),
            inputs.voxel,
        )
    low, high = card.limits.get("density", (0.0, np.inf))
    cells = np.floor(cloud.coord[:, :2] - cloud.coord[:, :2].min(axis=0)).astype(np.int64)
    density = len(cloud) / len(np.unique(cells[:, 0] << 32 | cells[:, 1]))
    if len(cloud) >= _CROWD and not low <= density <= high:
        log.warning(
            "%s: has %.3g points a square metre, the model %s was made for %g to %g; expect errors",
            cloud.name,
            density,
            card.name,
            low,
            high,
        )


def _with_results(cloud: Cloud, measured: NDArray[np.bool_], scores: _Scores, card: Card, code: int) -> Cloud:
    if card.classes is None:
        raise CheckpointError(f"the model {card.name!r} names no classes on its card; it cannot label points")
    ids = np.array([info.id for info in card.classes], dtype=np.int64)
    largest = max(int(ids.max(initial=0)), code)
    dtype = np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32
    classes = np.full(len(cloud), code, dtype=dtype)
    confidence = np.zeros(len(cloud), dtype=np.float32)
    entropy = np.zeros(len(cloud), dtype=np.float32)
    classes[measured] = ids[scores.number]
    confidence[measured] = scores.confidence
    entropy[measured] = scores.entropy
    return cloud.with_fields(classification=classes, confidence=confidence, entropy=entropy)
