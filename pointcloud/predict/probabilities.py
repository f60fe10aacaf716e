"""What a model makes of a whole scene: the probability of each class for each point.

The scene is never tiled. What it will need is estimated and logged before the work starts; beyond the budget
the network works in slices with the same result.
"""

import logging
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from geomix.errors import GeomixError, InputError, MemoryBudgetError, NonFiniteError
from geomix.memory import default_budget, format_memory, parse_memory
from pointcloud.cloud import Cloud
from pointcloud.data.augment import views
from pointcloud.data.inputs import Inputs, Sample, prepare, whole_features
from pointcloud.predict.strange import warn_of_ground

log = logging.getLogger(__name__)


def probabilities(
    model: nn.Module,
    cloud: Cloud,
    inputs: Inputs,
    seen: Sequence[Callable[[Cloud], Cloud]] | None = None,
    memory: str | int | None = None,
) -> Tensor:
    """Class probabilities of every point of a cloud, averaged over its views, float32 [N, K] on the CPU.

    Args:
        model: a PPoMv3 in eval mode.
        cloud: points with finite coordinates, metres.
        inputs: the preprocessing.
        seen: the views; None: the cloud as it is.
        memory: most memory to use, as bytes or text like `4GB`; half of what is free if None.

    Raises:
        MemoryBudgetError: if the work does not fit into the memory.
        NonFiniteError: if the model returns NaN.
    """
    chosen = views(1) if seen is None else seen
    if not chosen:
        raise InputError("a prediction needs one view or more")
    total = reduce(
        torch.add, (_of_view(model, view(cloud), inputs, memory, view is chosen[0]) for view in chosen)
    )
    return total / len(chosen)


def _of_view(model: nn.Module, cloud: Cloud, inputs: Inputs, memory: str | int | None, warn: bool) -> Tensor:
    cloud = whole_features(cloud, inputs)
    if warn:
        warn_of_ground(cloud)
    sample = prepare(cloud, inputs)
    logits = _logits(cloud, sample, model, memory)
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits)).any(dim=1).sum())
        raise NonFiniteError(f"{cloud.name}: the model returns NaN for {bad} of {len(logits)} voxels")
    return logits.float().softmax(dim=1)[sample.inverse]


def _logits(cloud: Cloud, sample: Sample, model: nn.Module, memory: str | int | None) -> Tensor:
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


def _budget(memory: str | int | None, device: torch.device) -> int:
    if isinstance(memory, str):
        return parse_memory(memory)
    if memory is not None:
        return memory
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) * 9 // 10
    return default_budget()
