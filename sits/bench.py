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

from geomix.bench import Row, Timing, measure
from geomix.checkpoint import Card
from geomix.config import load_config
from geomix.device import choose_device
from geomix.encoder import parameters
from geomix.errors import NonFiniteError
from geomix.memory import peak_memory
from sits.grid import Grid, Window
from sits.io.cog import Layer, new_cog
from sits.io.legend import NODATA
from sits.model import TSViPoM
from sits.predict import Scorer, score_blocks
from sits.series import Acquisition, Mask, TimeSeries, Values
from sits.task import SitsConfig

log = logging.getLogger(__name__)

TILES = (24, 48, 96, 192)
DATES = 60
_PIXEL_KM2 = 1e-4
_LARGE = (2048, 10980)
"""Sides of the large scenes, pixels: one for the memory, and a whole Sentinel-2 tile."""
_LARGE_DATES = 12
_PUBLISHED = ("pastis_tsvipom", "pastis_tsvit")
_NAMES = {"scene": "TSViPoM (scene)", "pastis_tsvipom": "TSViPoM", "pastis_tsvit": "TSViT (SDPA)"}
_FREE = {"tile": None, "place_code": "sincos", "day_code": "sincos"}


def run(cap_seconds: float = 20.0, device: str = "auto", tiles: Sequence[int] = TILES) -> list[Row]:
    """Measure both models on square tiles of made-up numbers, and the memory of a scene of 2048 x 2048.

    Args:
        cap_seconds: a model whose tile takes longer is not timed there, nor on larger tiles.
        device: `auto`, `cpu` or `cuda`.
        tiles: sides of the tiles in pixels.

    Returns:
        km2/s of TSViPoM as `scene.yaml` has it and of the size of TSViT, with their ratio to TSViT of the
        published size (fused attention over the whole tile, a code of places that knows no end); then speed
        and peak memory of `tiny.yaml` over as much of two large scenes as the cap allows.

    Raises:
        NonFiniteError: if blocks do not give the scores of the whole, so that no time is printed.
    """
    place = choose_device(device)
    _check(place)
    return [*_speeds(place, tiles, cap_seconds), *_large(cap_seconds)]


def models() -> dict[str, TSViPoM]:
    """TSViPoM of `scene.yaml`, TSViPoM of the size of TSViT, and TSViT, made to take tiles of any size.

    The scene model sees a local window and is smaller; the one of equal size tells what the mixer alone does.
    """
    torch.manual_seed(0)
    configs = {name: load_config(name, "sits", SitsConfig).model for name in ("scene", *_PUBLISHED)}
    for name in _PUBLISHED:
        configs[name] = configs[name].model_copy(update=_FREE)
    return {_NAMES[name]: TSViPoM(config).eval() for name, config in configs.items()}


def _speeds(place: torch.device, tiles: Sequence[int], cap: float) -> Iterator[Row]:
    contestants = {name: model.to(place) for name, model in models().items()}
    rival, slow = list(contestants)[-1], set[str]()
    for side in tiles:
        # Small tiles in a batch, as anyone would run them.
        batch = max(1, (96 // side) ** 2) if place.type == "cuda" else max(1, (48 // side) ** 2)
        found: dict[str, Timing | None] = {}
        for name, model in contestants.items():
            found[name] = None if name in slow else _time(model, batch, side, place, cap)
            if found[name] is None:
                slow.add(name)
        area, theirs = batch * side**2 * _PIXEL_KM2, found[rival]
        case = f"{side} px tiles, T = {DATES}, batch {batch}"
        for name, timing in found.items():
            ratio = theirs.median / timing.median if theirs and timing and name != rival else None
            size = f"{name}, {parameters(contestants[name]) / 1e6:.2f} M parameters"
            yield Row(case, size, _speed(area, timing), "km2/s", "" if name == rival else rival, ratio)


def _speed(area: float, timing: Timing | None) -> float | None:
    return None if timing is None else area / timing.median


def _time(model: TSViPoM, batch: int, side: int, place: torch.device, cap: float) -> Timing | None:
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
    """Each scene in a process of its own, whose peak is that of the scene alone."""
    for side in _LARGE:
        done = subprocess.run(
            [sys.executable, "-m", "sits.bench", str(cap), str(side)],
            capture_output=True,
            text=True,
            check=False,
        )
        case = f"{side} x {side}, T = {_LARGE_DATES}, tiny"
        if done.returncode:
            log.warning("the large scene was not measured: %s", done.stderr.strip().splitlines()[-1:])
            yield Row(case, "peak memory", None, "MB")
            continue
        found = json.loads(done.stdout)
        part = "" if found["part"] == 1 else f", first {100 * found['part']:.2g} %"
        yield Row(case + part, "speed", found["km2"] / found["seconds"], "km2/s")
        yield Row(case + part, "peak memory", found["peak"] / 1e6, "MB")
        whole = found["seconds"] / found["part"]
        yield Row(case, "time" if found["part"] == 1 else "time, extrapolated", whole, "s")


def map_large(cap: float, side: int, dates: int = _LARGE_DATES) -> dict[str, float]:
    """Map a large made-up scene to a file, or as much of it as the time allows; and what that took."""
    scorer, series = _tiny(torch.device("cpu")), made_up(side, dates)
    layer = Layer("uint8", NODATA, ("class",), {}, scorer.legend.colormap, "mode")
    pixels, start = 0, time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        new_cog(Path(folder) / "map.tif", series.grid, layer) as sink,
    ):
        for scores in score_blocks(scorer, series, scorer.block_size(series, 2 * 10**9)):
            sink.write(scores.codes(scorer.legend)[None], scores.window)
            pixels += scores.window.height * scores.window.width
            if time.perf_counter() - start > cap:
                break
        # Before the file is finished: the rest of it would be empty.
        seconds, peak = time.perf_counter() - start, peak_memory()
    return {
        "seconds": seconds,
        "km2": pixels * _PIXEL_KM2,
        "part": pixels / side**2,
        "peak": float(peak),
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
    sys.stdout.write(json.dumps(map_large(float(sys.argv[1]), int(sys.argv[2]))))
