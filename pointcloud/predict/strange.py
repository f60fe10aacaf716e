"""Where a cloud is unlike what a model was made for: said before the answer, never in its place."""

import logging

import numpy as np

from geomix.checkpoint import Card
from pointcloud.cloud import Cloud
from pointcloud.data.augment import ABOVE_GROUND
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
            "%s: has %.3g points per square metre, the model %s was made for %g to %g; expect errors%s",
            cloud.name,
            density,
            card.name,
            low,
            high,
            _UNIT if density < low and cloud.crs is None else "",
        )


_UNIT = "; are the coordinates in feet or millimetres? --unit foot or --unit 0.001 says so"
_HIGHEST, _DEEPEST = 150.0, -10.0
_FEW = 0.01


def warn_of_ground(cloud: Cloud) -> None:
    """Say so where the ground that was found under a cloud cannot be the ground."""
    heights = np.asarray(cloud.fields.get(ABOVE_GROUND, ()))
    for what, wrong in (("above", heights > _HIGHEST), ("below", heights < _DEEPEST)):
        if len(heights) >= _CROWD and wrong.mean() > _FEW:
            log.warning(
                "%s: %.0f %% of the points lie more than %g m %s the ground that was found, so it is not the "
                "ground; look for steps and holes in the heights of the file, or say the unit with --unit",
                cloud.name,
                100 * wrong.mean(),
                abs(_HIGHEST if what == "above" else _DEEPEST),
                what,
            )
