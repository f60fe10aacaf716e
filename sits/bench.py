"""How fast and how large: square kilometres a second beside TSViT, and the memory of a whole scene.

geomix bench sits --json
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import torch

from geomix.bench import Row
from geomix.checkpoint import Card, ClassInfo
from geomix.config import load_config
from geomix.device import choose_device
from geomix.memory import peak_memory
from sits.experiment import SitsConfig
from sits.grid import Grid, Window
from sits.model import ModelConfig, TSViPoM
from sits.predict import Scorer, score_blocks
from sits.series import Acquisition, Mask, TimeSeries, Values

DATES = 60
TILES = (24, 48, 96, 192)
"""Sides of the tiles, pixels of 10 m."""

SCENE = 2048
SCENE_DATES = 12


@dataclass(frozen=True)
class Contestant:
    """A model to be timed."""

    name: str
    model: TSViPoM


def run(cap_seconds: float = 20.0) -> list[Row]:
    """Measure throughput on tiles of four sizes and peak memory on a large scene.

    Args:
        cap_seconds: once a call of a model takes longer, its larger tiles are not run; and how long the
            large scene is worked on.
    """
    return [*throughput(cap_seconds), *memory(cap_seconds)]


def contestants() -> tuple[Contestant, Contestant]:
    """TSViPoM as `scene.yaml` has it, and TSViT, whose spatial attention takes a whole tile."""
    device = choose_device("auto")
    scene = load_config("scene", "sits", SitsConfig).model
    tsvit = load_config("pastis_tsvit", "sits", SitsConfig).model
    # The learned table of places knows 24 pixels only; a computed code costs the same.
    free = tsvit.model_copy(update={"place_code": "sincos", "tile": None})
    return (
        Contestant("TSViPoM (scene)", TSViPoM(scene).to(device).eval()),
        Contestant("TSViT (SDPA)", TSViPoM(free).to(device).eval()),
    )


def throughput(cap_seconds: float, sizes: Sequence[int] = TILES, dates: int = DATES) -> list[Row]:
    """Square kilometres a second of both models on tiles of each size; small ones several at once."""
    ours, rival = contestants()
    late: set[str] = set()
    rows = []
    for size in sizes:
        tiles = max(1, max(sizes[:3]) // size) ** 2
        seconds = {
            one.name: None
            if one.name in late
            else _time(_forward(one.model, tiles, size, dates), cap_seconds)
            for one in (ours, rival)
        }
        area = tiles * (size * 10 / 1000) ** 2
        speed = {name: None if spent is None else area / spent for name, spent in seconds.items()}
        late |= {name for name, spent in seconds.items() if spent is not None and spent > cap_seconds}
        own, other = speed[ours.name], speed[rival.name]
        case = f"{size} px tiles, {dates} dates"
        ratio = own / other if own is not None and other is not None else None
        rows.append(Row(case, ours.name, own, "km2/s", versus=rival.name, ratio=ratio))
        rows.append(Row(case, rival.name, other, "km2/s"))
    return rows


def memory(cap_seconds: float, size: int = SCENE, dates: int = SCENE_DATES) -> list[Row]:
    """Peak memory of a large scene with `tiny`, in a process of its own, and the time for all of it."""
    code = f"from sits.bench import measure_scene; print(*measure_scene({cap_seconds}, {size}, {dates}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    base, peak, seconds, share = (float(word) for word in done.stdout.split())
    case = f"{size} x {size} px, {dates} dates, tiny"
    how = "measured" if share == 1 else f"from {100 * share:.0f} % of the blocks"
    return [
        Row(case, "peak memory", peak / 2**20, "MiB"),
        Row(case, "peak memory above that of the loaded libraries", (peak - base) / 2**20, "MiB"),
        Row(case, f"time, {how}", seconds / share, "s"),
    ]


def measure_scene(cap_seconds: float, size: int, dates: int) -> tuple[int, int, float, float]:
    """Score a made-up scene block by block until the time is up.

    Returns:
        Bytes at the start and at the peak, seconds, and the share of the blocks that were scored.
    """
    config = load_config("tiny", "sits", SitsConfig)
    scorer = Scorer(_with_card(TSViPoM(config.model), config))
    series = simulated(config.inputs.bands, size, dates)
    block = scorer.block_size(series, None)
    total = series.grid.block_count(block)
    base, start, done = peak_memory(), time.perf_counter(), 0
    for _ in score_blocks(scorer, series, block):
        done += 1
        if time.perf_counter() - start > cap_seconds:
            break
    return base, peak_memory(), time.perf_counter() - start, done / total


def simulated(bands: Sequence[str], size: int, dates: int) -> TimeSeries:
    """A scene that is made when it is read, so that it takes no memory of its own."""
    first = date(2018, 9, 5)
    days = tuple(first + timedelta(days=round(400 * step / dates)) for step in range(dates))
    return TimeSeries(
        grid=Grid(None, _affine(), size, size),
        acquisitions=tuple(Acquisition(day) for day in days),
        bands=tuple(bands),
        source=_Noise(),
        name="simulated scene",
    )


class _Noise:
    """Pixels that depend on their window alone."""

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        rng = np.random.default_rng([window.row, window.col])
        shape = (len(steps), len(bands), window.height, window.width)
        values = rng.random(shape, dtype=np.float32)
        return values, rng.random((len(steps), 1, 1)) < np.ones(shape[-2:]) * 0.8


def _affine() -> Any:
    from affine import Affine

    return Affine(10.0, 0.0, 399960.0, 0.0, -10.0, 5400000.0)


def _with_card(model: TSViPoM, config: SitsConfig) -> TSViPoM:
    bands = len(config.inputs.bands)
    inputs = config.inputs.model_copy(update={"mean": (0.2,) * bands, "std": (0.2,) * bands})
    card = Card(
        domain="sits",
        name="tiny",
        model=config.model.model_dump(mode="json"),
        classes=tuple(ClassInfo.model_validate(one.model_dump()) for one in config.classes),
        inputs={**inputs.model_dump(mode="json"), "patch": config.model.patch},
    )
    object.__setattr__(model, "card", card)
    return model.eval()


def _forward(model: TSViPoM, tiles: int, size: int, dates: int) -> Callable[[], object]:
    config: ModelConfig = model.config
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(tiles, dates, config.bands, size, size, generator=generator).to(device)
    valid = torch.ones(tiles, dates, size, size, dtype=torch.bool, device=device)
    days = (torch.arange(dates, device=device) * 6).clamp(max=365)

    def call() -> None:
        with torch.inference_mode():
            model(values, days, valid)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return call


def _time(call: Callable[[], object], cap_seconds: float) -> float:
    """Seconds of a call: the median of three, or the first alone where it is slow already."""
    spent = [_seconds(call)]
    while len(spent) < 4 and spent[0] < cap_seconds / 4:
        spent.append(_seconds(call))
    # The first call warms up.
    return float(np.median(spent[1:] or spent))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
