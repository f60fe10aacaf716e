"""How fast whole scans are labelled: PPoMv3 against PTv3's attention of the same size, and the parts."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomix.bench import Row, Timing, measure
from geomix.config import load_config
from geomix.errors import NonFiniteError
from pointcloud.cloud import Cloud
from pointcloud.data import prepare
from pointcloud.model import PPoMv3
from pointcloud.serialization import ORDERS, encode
from pointcloud.sparse import build_table, submanifold_conv
from pointcloud.synthetic import town
from pointcloud.task.experiment import PointcloudConfig

log = logging.getLogger(__name__)

# Four times the square of the width in weights, as attention has.
_POM = {"name": "pom", "degree": 2, "expand": 2, "groups": 2, "gate_heads": "channels"}
_ATTENTION = {"name": "attention"}
WINDOWS = (1024, 4096, None)
_TOLERANCE = 1e-4


def run(cap_seconds: float = 60.0, points: int = 100_000, device: str = "cpu") -> list[Row]:
    """Measure on a made-up town, with the sizes of the bundled model.

    Args:
        cap_seconds: a case that would take longer is not run, and its row says so.
        points: points of the town, about.
        device: `cpu` or `cuda`.

    Raises:
        NonFiniteError: if a result is wrong, so that no time is printed for it.
    """
    cloud = scan(points)
    config = load_config("aerial", "pointcloud", PointcloudConfig)
    sample = prepare(cloud, config.inputs)
    place = torch.device(device)
    grid, feat = sample.grid_coord.to(place), sample.feat.to(place)
    return [
        *_networks(config, grid, feat, len(cloud), cap_seconds),
        *_parts(grid, cap_seconds),
    ]


def scan(points: int) -> Cloud:
    """Towns side by side with about so many points."""
    density = 10.0
    size = min(50.0, max((points / density / 1.5) ** 0.5, 8.0))
    one = len(town(0, size, density))
    width = max(1, round((points / one) ** 0.5))
    towns = []
    for number in range(width * max(1, round(points / one / width))):
        part = town(number, size, density)
        x, y = number % width, number // width
        towns.append(Cloud.from_arrays(part.coord + np.array([x * size, y * size, 0.0]), **part.fields))
    fields = {name: np.concatenate([part.fields[name] for part in towns]) for name in towns[0].fields}
    return Cloud.from_arrays(np.concatenate([part.coord for part in towns]), **fields)


def _networks(
    config: PointcloudConfig, grid: Tensor, feat: Tensor, points: int, cap_seconds: float
) -> Iterator[Row]:
    for window in WINDOWS:
        context = "whole scan" if window is None else f"window {window}"
        pom = _network(config, _POM, window).to(grid.device)
        check(pom, grid, feat)
        ours = _time(pom, grid, feat, cap_seconds)
        attention = _network(config, _ATTENTION, window).to(grid.device)
        theirs = _time(attention, grid, feat, cap_seconds)
        ratio = theirs.median / ours.median if ours and theirs else None
        size = f"{len(grid):,} voxels, {context}"
        yield Row(
            f"PPoMv3 {_millions(pom)}, {size}", "points/s", _rate(points, ours), "points/s",
            versus=f"PTv3 attention {_millions(attention)}", ratio=ratio, device=str(grid.device),
        )  # fmt: skip
        yield Row(
            f"PTv3 attention {_millions(attention)}, {size}", "points/s", _rate(points, theirs), "points/s",
            device=str(grid.device),
        )  # fmt: skip


def _network(config: PointcloudConfig, mixer: dict[str, Any], window: int | None) -> PPoMv3:
    torch.manual_seed(0)
    return PPoMv3(config.model.model_copy(update={"mixer": mixer, "patch_size": window})).eval()


def check(model: PPoMv3, grid: Tensor, feat: Tensor, count: int = 5000) -> None:
    """Refuse a network whose streamed result is not the one computed at once.

    Raises:
        NonFiniteError: naming the difference.
    """
    with torch.inference_mode():
        whole = model(grid[:count], feat[:count])
        least = model.memory_estimate(len(whole), 1 << 12)
        streamed = model(grid[:count], feat[:count], memory=least)
    difference = (whole - streamed).abs().max().item() if len(whole) else 0.0
    if not difference < _TOLERANCE:
        raise NonFiniteError(
            f"streaming differs by {difference:.2g} from all at once; no time is given for it"
        )


def _time(model: PPoMv3, grid: Tensor, feat: Tensor, cap_seconds: float) -> Timing | None:
    """Time a prediction, geometry included; None where a fifth of the scene predicts more than the cap."""
    part = max(len(grid) // 5, 1)

    def predict(count: int) -> Tensor:
        with torch.inference_mode():
            out: Tensor = model(grid[:count], feat[:count])
            return out

    small = measure(lambda: predict(part), device=grid.device, min_seconds=0.0, cap_seconds=cap_seconds)
    is_quadratic = any("attention" in str(one) for one in _mixers(model)) and model.config.patch_size is None
    growth = len(grid) / part
    if small is None or small.median * growth ** (2 if is_quadratic else 1) > cap_seconds:
        log.warning("not run: %d voxels would take longer than %g s", len(grid), cap_seconds)
        return None
    return measure(lambda: predict(len(grid)), device=grid.device, cap_seconds=2 * cap_seconds)


def _mixers(model: PPoMv3) -> list[dict[str, Any]]:
    chosen = model.config.mixer
    return chosen if isinstance(chosen, list) else [chosen]


def _parts(grid: Tensor, cap_seconds: float) -> Iterator[Row]:
    device = str(grid.device)
    for order in ORDERS:
        timing = measure(partial(encode, grid, order), device=device)
        yield Row(f"encode {order}, {len(grid):,} voxels", "voxels/s", _rate(len(grid), timing), "voxels/s",
                  device=device)  # fmt: skip
    batch = torch.zeros(len(grid), dtype=torch.int64, device=grid.device)
    for size in (3, 5):
        timing = measure(partial(build_table, grid, batch, size), device=device, cap_seconds=cap_seconds)
        yield Row(f"neighbours {size}^3, {len(grid):,} voxels", "voxels/s", _rate(len(grid), timing),
                  "voxels/s", device=device)  # fmt: skip
    table = build_table(grid, batch, 3)
    feat, weight = torch.randn(len(grid), 32, device=device), torch.randn(32, 3, 3, 3, 32, device=device)
    timing = measure(lambda: submanifold_conv(feat, weight, table), device=device, cap_seconds=cap_seconds)
    yield Row(f"convolution 3^3 of 32 channels, {table.pairs / len(grid):.1f} neighbours a voxel", "voxels/s",
              _rate(len(grid), timing), "voxels/s", device=device)  # fmt: skip


def _rate(count: int, timing: Timing | None) -> float | None:
    return None if timing is None else count / timing.median


def _millions(model: PPoMv3) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M"
