"""Where a cloud is unlike what a model was made for: said before the answer, never in its place."""

import logging

import numpy as np

from geomix.checkpoint import Card
from pointcloud.cloud import Cloud
from pointcloud.data.inputs import read_inputs

log = logging.getLogger(__name__)

_CROWD = 100
"""From how many points on a cloud says something about its density and extent."""


def warn_of_strange(cloud: Cloud, card: Card) -> None:
    """Say so where a cloud is unlike what the model was made for."""
    if len(cloud) == 0:
        return
    inputs = read_inputs(card.inputs)
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
