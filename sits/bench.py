"""How fast scenes are mapped: TSViPoM against TSViT with fused attention, and the memory of a large scene."""

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import torch
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS
from torch import nn

from geomix.bench import Row, Timing, measure
from geomix.checkpoint import Card
from geomix.config import load_config
from geomix.device import choose_device
from geomix.errors import NonFiniteError
from geomix.memory import peak_memory
from sits.experiment import SitsConfig
from sits.grid import Grid, Window
from sits.model import TSViPoM
from sits.outputs import NODATA, Layer, new_cog
from sits.predict import Scorer, score_blocks
from sits.series import Acquisition, Mask, TimeSeries, Values

log = logging.getLogger(__name__)

TILES = (24, 48, 96, 192)
DATES = 60
_PIXEL_KM2 = 1e-4
_MEMORY_SIDE, _MEMORY_DATES = 2048, 12
_ATTENTION = {"name": "attention", "heads": 4, "head_dim": 32}


def run(cap_seconds: float = 20.0, device: str = "auto", tiles: Sequence[int] = TILES) -> list[Row]:
    """Measure both models on square tiles of made-up numbers, and the memory of a scene of 2048 x 2048.

    Args:
        cap_seconds: a model whose tile takes longer is not timed there, nor on larger tiles.
        device: `auto`, `cpu` or `cuda`.
        tiles: sides of the tiles in pixels.

    Returns:
        km2/s of TSViPoM as `scene.yaml` has it, with its ratio to TSViT of the published size (fused
        attention over the whole tile, a code of places that knows no end); then speed and peak memory of
        `tiny.yaml` over as much of the large scene as the cap allows.

    Raises:
        NonFiniteError: if blocks do not give the scores of the whole, so that no time is printed.
    """
    place = choose_device(device)
    _check(place)
    return [*_speeds(place, tiles, cap_seconds), *_large(cap_seconds)]


def models() -> tuple[nn.Module, nn.Module]:
    """TSViPoM of `scene.yaml`, and TSViT of the published size made to take tiles of any size."""
    torch.manual_seed(0)
    ours = load_config("scene", "sits", SitsConfig).model
    published = load_config("pastis_tsvit", "sits", SitsConfig).model
    free = {"tile": None, "place_code": "sincos", "day_code": "sincos", "fill_dates": None}
    theirs = published.model_copy(update=free)
    return TSViPoM(ours).eval(), TSViPoM(theirs).eval()


def _speeds(place: torch.device, tiles: Sequence[int], cap: float) -> Iterator[Row]:
    ours, theirs = (model.to(place) for model in models())
    slow = {"ours": False, "theirs": False}
    for side in tiles:
        # Small tiles in a batch, as anyone would run them.
        batch = max(1, (96 // side) ** 2) if place.type == "cuda" else max(1, (48 // side) ** 2)
        found: dict[str, Timing | None] = {}
        for name, model in (("ours", ours), ("theirs", theirs)):
            found[name] = None if slow[name] else _time(model, batch, side, place, cap)
            slow[name] = found[name] is None
        area = batch * side**2 * _PIXEL_KM2
        first, second = found["ours"], found["theirs"]
        case = f"{side} px tiles, T = {DATES}, batch {batch}"
        ratio = second.median / first.median if first and second else None
        yield Row(case, "TSViPoM (scene)", _speed(area, first), "km2/s", "TSViT (SDPA)", ratio)
        yield Row(case, "TSViT (SDPA)", _speed(area, second), "km2/s")


def _speed(area: float, timing: Timing | None) -> float | None:
    return None if timing is None else area / timing.median


def _time(model: nn.Module, batch: int, side: int, place: torch.device, cap: float) -> Timing | None:
    values = torch.randn(batch, DATES, 10, side, side, device=place)
    valid = torch.ones(batch, DATES, side, side, dtype=torch.bool, device=place)
    days = torch.arange(DATES, device=place) * 6

    def call() -> None:
        with torch.inference_mode():
            model(values, days, valid)

    try:
        return measure(call, device=place, cap_seconds=cap)
    except torch.OutOfMemoryError:
        log.warning("%d px: out of memory", side)
        return None


def _check(place: torch.device) -> None:
    """Blocks must give the scores of the whole before their speed means anything."""
    scorer = _tiny(place)
    series = made_up(64, 4)
    days = scorer.days(series)
    whole = scorer.scores(series, days, series.grid.whole).logits
    for scores in score_blocks(scorer, series, 32):
        worst = float(np.abs(scores.logits - whole[:, *scores.window.slices]).max())
        if not worst < 1e-4:
            raise NonFiniteError(f"blocks differ from the whole scene by {worst:.3g}; no speed is reported")


def _large(cap: float) -> Iterator[Row]:
    """In a process of its own, whose peak is that of the scene alone."""
    done = subprocess.run(
        [sys.executable, "-m", "sits.bench", str(cap)], capture_output=True, text=True, check=False
    )
    case = f"{_MEMORY_SIDE} x {_MEMORY_SIDE}, T = {_MEMORY_DATES}, tiny"
    if done.returncode:
        log.warning("the large scene was not measured: %s", done.stderr.strip().splitlines()[-1:])
        yield Row(case, "peak memory", None, "MB")
        return
    found = json.loads(done.stdout)
    part = "" if found["part"] == 1 else f", first {100 * found['part']:.0f} %"
    yield Row(case + part, "speed", found["km2"] / found["seconds"], "km2/s")
    yield Row(case + part, "peak memory", found["peak"] / 1e6, "MB")
    whole = found["seconds"] / found["part"]
    yield Row(case, "time" if found["part"] == 1 else "time, extrapolated", whole, "s")


def map_large(cap: float, side: int = _MEMORY_SIDE, dates: int = _MEMORY_DATES) -> dict[str, float]:
    """Map a large made-up scene to a file, or as much of it as the time allows; and what that took."""
    scorer, series = _tiny(torch.device("cpu")), made_up(side, dates)
    layer = Layer("uint8", NODATA, ("class",), {}, scorer.legend.colormap, "mode")
    pixels, start = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with new_cog(Path(folder) / "map.tif", series.grid, layer) as sink:
            for scores in score_blocks(scorer, series, scorer.block_size(series, 2 * 10**9)):
                sink.write(scores.codes(scorer.legend)[None], scores.window)
                pixels += scores.window.height * scores.window.width
                if time.perf_counter() - start > cap:
                    break
        seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "km2": pixels * _PIXEL_KM2,
        "part": pixels / side**2,
        "peak": float(peak_memory()),
    }


@dataclass(frozen=True)
class MadeUp:
    """Numbers that are made when a window is read, so that a scene of any size takes no memory."""

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Waves over rows, columns, bands and dates."""
        rows: NDArray[np.float32] = np.arange(window.row, window.row + window.height, dtype=np.float32)
        cols: NDArray[np.float32] = np.arange(window.col, window.col + window.width, dtype=np.float32)
        phase = np.add.outer(np.array(steps, dtype=np.float32) * 0.7, np.arange(len(bands), dtype=np.float32))
        waves = np.sin(phase[..., None, None] + rows[:, None] / 9 + cols / 7)
        values = (0.25 + 0.2 * waves).astype(np.float32)
        return values, np.ones((len(steps), window.height, window.width), dtype=bool)


def made_up(side: int, dates: int) -> TimeSeries:
    """A square series of that many pixels a side and dates, ten bands."""
    grid = Grid(CRS.from_epsg(32633), Affine(10.0, 0.0, 5e5, 0.0, -10.0, 5e6), side, side)
    bands = load_config("tiny", "sits", SitsConfig).inputs.bands
    taken = tuple(Acquisition(date(2018, 9, 10) + timedelta(days=25 * step)) for step in range(dates))
    return TimeSeries(grid, taken, bands, MadeUp(), f"made-up {side} x {side}")


def _tiny(place: torch.device) -> Scorer:
    torch.manual_seed(0)
    config = load_config("tiny", "sits", SitsConfig)
    model = TSViPoM(config.model)
    count = len(config.inputs.bands)
    inputs = {**config.inputs.model_dump(mode="json"), "mean": [0.25] * count, "std": [0.15] * count}
    card = Card(
        domain="sits",
        name=config.name,
        model=config.model.model_dump(mode="json"),
        classes=config.classes,
        inputs={**inputs, "patch": config.model.patch},
    )
    object.__setattr__(model, "card", card)
    return Scorer(model, place)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(map_large(float(sys.argv[1]))))
