"""Lines a second and memory of the three mixers, one line at a time and on unrolled pages.

geomix bench htr --json
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from geomix.bench import Row, measure
from geomix.config import load_config
from geomix.errors import InputError
from geomix.memory import peak_memory
from htr.data.unroll import Slots, unroll
from htr.model.network import LineRecogniser
from htr.study import ATTENTION, POM
from htr.task.experiment import HtrConfig

MIXERS: dict[str, Any] = {"attention": ATTENTION, "pom": POM, "hybrid": [ATTENTION, POM] * 2}
"""The mixers that are compared; the hybrid takes turns between the other two."""

PAGES = (2, 8, 16, 64)
"""Lines of the unrolled pages."""

LINE_WIDTH = 428
"""Width of a line, px at a height of 32: about eight words."""

_TOLERANCE = 1e-4


def run(cap_seconds: float = 60.0) -> list[Row]:
    """Measure the three mixers, all with the same stem and width.

    Args:
        cap_seconds: a case whose first call takes longer is not repeated.

    Returns:
        For each mixer and page the lines read a second, compared with attention, and the peak memory of
        a process that reads it.
    """
    return list(rows(cap_seconds))


def rows(
    cap_seconds: float, pages: tuple[int, ...] = PAGES, width: int = LINE_WIDTH, min_seconds: float = 1.0
) -> Iterator[Row]:
    """The rows of `run`, one after another."""
    models = {name: build(name) for name in MIXERS}
    for model in models.values():
        _check(model, width)
    for count in (1, *pages):
        images, slots = unroll([[_line(width, seed) for seed in range(count)]])
        case = "single line" if count == 1 else f"page of {count} lines"
        speeds: dict[str, float | None] = {}
        for name, model in models.items():
            call = _reading(model, images, slots)
            timing = measure(call, min_seconds=min_seconds, cap_seconds=cap_seconds)
            speeds[name] = None if timing is None else count / timing.median
            yield _row(f"{name}, {case}", "speed", speeds[name], "lines/s", speeds["attention"])
            yield _row(f"{name}, {case}", "peak memory", _memory_of(name, count, width) / 1e6, "MB", None)


def _row(case: str, metric: str, value: float | None, unit: str, rival: float | None) -> Row:
    if value is None or rival is None or case.startswith("attention"):
        return Row(case, metric, value, unit)
    return Row(case, metric, value, unit, versus="attention", ratio=value / rival)


def build(mixer: str) -> LineRecogniser:
    """The recogniser of `small.yaml` with another mixer and random weights; its lines see each other."""
    shape = load_config("small", "htr", HtrConfig).model
    torch.manual_seed(0)
    return LineRecogniser(shape.model_copy(update={"mixer": MIXERS[mixer], "context": "page"})).eval()


def _line(width: int, seed: int) -> torch.Tensor:
    return torch.rand(32, width, generator=torch.Generator().manual_seed(seed))


def _reading(model: LineRecogniser, images: torch.Tensor, slots: Slots) -> Callable[[], object]:
    def read() -> object:
        with torch.inference_mode():
            return model.read(images, slots)

    return read


def _check(model: LineRecogniser, width: int) -> None:
    """Refuse to time a model whose unrolled page differs from the same page with other gaps."""
    lines = [[_line(width, seed) for seed in range(2)]]
    with torch.inference_mode():
        narrow, wide = (model.read(*unroll(lines, gap)) for gap in (16, 64))
    error = float((narrow - wide).abs().max() / wide.abs().max())
    if error > _TOLERANCE:
        raise InputError(f"not timed: the gaps of a page change its logits by {error:.1e}")


def _memory_of(mixer: str, count: int, width: int) -> float:
    """Most bytes that a process of its own ever held, libraries and model included, to read a page once."""
    command = [sys.executable, "-m", "htr.bench", mixer, str(count), str(width)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def read_once(mixer: str, count: int, width: int) -> int:
    """Read a page of `count` lines once; the most bytes that this process ever held."""
    _reading(build(mixer), *unroll([[_line(width, seed) for seed in range(count)]]))()
    return peak_memory()


if __name__ == "__main__":
    sys.stdout.write(f"{read_once(sys.argv[1], *map(int, sys.argv[2:]))}\n")
