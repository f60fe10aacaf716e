"""A model over a scene of any size: blocks with the context they need, so that no seam shows.

A block is read with the halo of the model around it, as far as the scene reaches, and only its own pixels
are kept. So every block size, and the whole scene at once, give the same scores. A model without a local
window sees the whole scene, which is scored at once where memory allows, else read several times.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.checkpoint import Card, card_of
from geomix.errors import InputError, MemoryBudgetError, NonFiniteError
from geomix.memory import default_budget, format_memory
from geomix.mixers import State
from geomix.progress import progress
from sits.data.inputs import Inputs, days_of, prepare
from sits.dates import season_start
from sits.grid import Grid, Window
from sits.io.legend import NODATA, Legend
from sits.series import TimeSeries

log = logging.getLogger(__name__)

Days = NDArray[np.int64]

_LARGEST = 256
"""Side of the blocks where memory allows; larger ones are no faster."""


@dataclass(frozen=True)
class Scores:
    """What a model makes of a window."""

    window: Window
    logits: NDArray[np.float32]
    """[K, h, w]."""
    dates: NDArray[np.uint16]
    """How many dates show each pixel, [h, w]."""

    def codes(self, legend: Legend) -> NDArray[np.uint8]:
        """The code of the best class [h, w]; 255 where no date shows the pixel."""
        best = legend.codes[self.logits.argmax(axis=0)]
        return np.where(self.dates > 0, best, np.uint8(NODATA))

    def probabilities(self) -> NDArray[np.float32]:
        """Softmax over the classes, [K, h, w]."""
        shifted = np.exp(self.logits - self.logits.max(axis=0))
        return np.asarray(shifted / shifted.sum(axis=0), dtype=np.float32)

    def entropy(self) -> NDArray[np.float32]:
        """How undecided the model is: 0 for one class alone, 1 for all alike, [h, w]."""
        shares = self.probabilities()
        bits = -(shares * np.log(np.maximum(shares, np.float32(1e-12)))).sum(axis=0)
        return np.asarray(bits / np.log(max(len(shares), 2)), dtype=np.float32)


class Scorer:
    """A loaded model with all that its card says about its input."""

    def __init__(
        self, model: nn.Module, device: torch.device | str = "cpu", digest: str | None = None
    ) -> None:
        """Take a model from `load_model`.

        Args:
            model: with its card.
            device: where it computes.
            digest: the SHA-256 of its file, for the tags of maps.

        Raises:
            CheckpointError: if it has no card.
            InputError: if its card lists no classes.
        """
        self.model = model.to(device).eval()
        self.card: Card = card_of(model)
        self.inputs = Inputs.of_card(self.card.inputs)
        self.legend = Legend.of(self.card.classes, self.card.name)
        self.device = torch.device(device)
        self.digest = digest
        self.unit = int(model.patch)  # type: ignore[arg-type]
        halo = model.halo
        self.halo: int | None = None if halo is None else int(halo)  # type: ignore[arg-type]
        self.surveys = bool(getattr(model, "surveys", False))
        """Whether a scene that is its own context can be scored in blocks."""
        self.depth = len(model.spatial.blocks) if self.surveys else 0  # type: ignore[union-attr, arg-type]
        """Spatial blocks, each of which needs to know the whole scene."""

    def series(self, series: TimeSeries) -> TimeSeries:
        """The series with the bands of the model, in its order.

        Raises:
            InputError: if one is missing.
        """
        return series.select(self.inputs.bands)

    def days(self, series: TimeSeries, start: date | None = None) -> Days:
        """When each image was taken, as the model counts, [T]."""
        return days_of(series.dates, self.inputs, start or self.season(series.dates))

    def season(self, dates: Sequence[date]) -> date | None:
        """The first day of the season in which most dates fall into the days that the model knows.

        None where the model does not say which it knows; then the first date decides.
        """
        known = getattr(self.model, "season_days", None)
        if known is None or self.inputs.days != "season":
            return None
        first = season_start(dates[0], self.inputs.season_start)

        def fitting(start: date) -> int:
            return sum(known[0] <= (day - start).days < known[1] for day in dates)

        # Of equals, the season of the first date.
        return max(
            (first, first.replace(year=first.year + 1), first.replace(year=first.year - 1)), key=fitting
        )

    def scores(
        self, series: TimeSeries, days: Days, window: Window, known: tuple[State, ...] | None = None
    ) -> Scores:
        """Score a window, which starts at a multiple of `unit` on the map, with its context.

        Args:
            series: with the bands of the model.
            days: when each image was taken, as the model counts.
            window: what is scored.
            known: what the whole scene says, from `survey_scene`; then the window alone is read.

        Raises:
            NonFiniteError: if a score is NaN or infinite.
        """
        grid = series.grid
        halo = self.halo if known is None else 0
        outer = grid.whole if halo is None else window.pad(halo, grid.shape)
        values, valid = series.read(outer)
        logits = self.run(values, valid, days, self.origin(grid, outer), known)
        rows, cols = window.within(outer)
        part = logits[:, rows, cols]
        if not np.isfinite(part).all():
            raise NonFiniteError(
                f"{series.name}: scores at row {window.row}, column {window.col} are not finite; "
                f"is model {self.card.name} damaged, or the scale of the input wrong?"
            )
        return Scores(window, part, valid[:, rows, cols].sum(axis=0).astype(np.uint16))

    def origin(self, grid: Grid, window: Window) -> tuple[int, int]:
        """Row and column of the first pixel of a window, from a multiple of `unit` on the map."""
        top, left = grid.phase(self.unit)
        return window.row + top, window.col + left

    def tensors(
        self, values: NDArray[np.float32], valid: NDArray[np.bool_], days: Days
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised values, days and validity of one series, as the model takes them."""
        normal = prepare(values, valid, self.inputs)
        return (
            torch.from_numpy(normal)[None].to(self.device),
            torch.from_numpy(days).to(self.device),
            torch.from_numpy(valid)[None].to(self.device),
        )

    def run(
        self,
        values: NDArray[np.float32],
        valid: NDArray[np.bool_],
        days: Days,
        origin: tuple[int, int],
        known: tuple[State, ...] | None = None,
    ) -> NDArray[np.float32]:
        """Logits [K, h, w] of reflectance [T, C, h, w] whose first pixel is at `origin`."""
        if not valid.any():
            # Nothing to see: no class is better than another, and the model need not be asked.
            return np.zeros((len(self.legend.classes), *valid.shape[1:]), dtype=np.float32)
        images = self.tensors(values, valid, days)
        with torch.inference_mode():
            if known is None:
                logits = self.model(*images, origin=origin)
            else:
                logits = self.model.answer(*images, known, origin=origin)  # type: ignore[operator]
        found: NDArray[np.float32] = logits[0].float().cpu().numpy()
        return found

    def block_size(
        self, series: TimeSeries, memory: int | None, block: int | None = None, at_once: bool = False
    ) -> int:
        """The side of the blocks in pixels: as asked, else the largest that fits into memory.

        Args:
            series: with the bands of the model.
            memory: most bytes to use; None for half of what is free.
            block: the side that is asked for.
            at_once: a scene that is its own context cannot be surveyed and must fit into memory.

        Raises:
            InputError: if the asked size is below 1.
            MemoryBudgetError: if not even the smallest fits.
        """
        grid = series.grid
        side = max(length + more for length, more in zip(grid.shape, grid.phase(self.unit), strict=True))
        budget = default_budget() if memory is None else memory
        halo = self.halo
        if halo is None:
            if at_once or not self.surveys:
                return self._whole(series, side, budget)
            if block is None and self.bytes_of(series, side) <= budget:
                return ceil(side / self.unit) * self.unit
            halo = 0
        if block is not None:
            if block < 1:
                raise InputError(f"--block must be at least 1 pixel, got {block}")
            return ceil(block / self.unit) * self.unit
        largest = min(ceil(side / self.unit), max(_LARGEST // self.unit, 1)) * self.unit
        for size in range(largest, 0, -self.unit):
            if self.bytes_of(series, size + 2 * halo) <= budget:
                return size
        needed = self.bytes_of(series, self.unit + 2 * halo)
        raise MemoryBudgetError(
            f"{series.name}: the smallest block with its context needs about {format_memory(needed)}, "
            f"but {format_memory(budget)} may be used; raise --memory or give fewer dates (--until)"
        )

    def bytes_of(self, series: TimeSeries, side: int) -> int:
        """About how many bytes a square of `side` pixels takes while it is scored."""
        dates, bands = len(series.dates), len(series.bands)
        rows, columns = min(side, series.grid.height), min(side, series.grid.width)
        reading = 16 * dates * bands * rows * columns
        estimate = getattr(self.model, "working_bytes", None)
        if estimate is not None:
            return int(estimate(dates, rows, columns)) + reading
        patch = int(self.card.inputs.get("patch", self.unit))
        width = int(self.card.model.get("dim", 128))
        tokens = ceil(rows / patch) * ceil(columns / patch) * (dates + len(self.legend.classes))
        # Features, two projections twice as wide and the MLP live at once, in float32.
        return reading + 4 * 12 * width * tokens

    def _whole(self, series: TimeSeries, side: int, budget: int) -> int:
        needed = self.bytes_of(series, side)
        if needed > budget:
            raise MemoryBudgetError(
                f"{series.name}: model {self.card.name} takes the whole scene as its context and so needs "
                f"about {format_memory(needed)} at once, but {format_memory(budget)} may be used; "
                "raise --memory, cut the scene, or take a model with a local window"
            )
        return ceil(side / self.unit) * self.unit


def survey_scene(scorer: Scorer, series: TimeSeries, days: Days, block: int) -> tuple[State, ...]:
    """The states of a whole scene in all spatial blocks of a model, from one reading a block.

    Args:
        scorer: a model that `surveys`.
        series: with the bands of the model.
        days: when each image was taken, as the model counts.
        block: side of the windows, a multiple of the model's unit.

    Returns:
        The states; none where no date shows anything.
    """
    known: tuple[State, ...] = ()
    for step in range(scorer.depth):
        words = f"Context {step + 1} of {scorer.depth}"
        total: State | None = None
        for window in progress(*blocks_of(scorer, series.grid, block, words)):
            found = _of_window(scorer, series, days, window, known)
            if found is not None:
                total = found if total is None else total.merge(found)
        if total is None:
            return ()
        known = (*known, total)
    return known


def _of_window(
    scorer: Scorer, series: TimeSeries, days: Days, window: Window, known: tuple[State, ...]
) -> State | None:
    values, valid = series.read(window)
    if not valid.any():
        return None
    with torch.inference_mode():
        found: State = scorer.model.survey(  # type: ignore[operator]
            *scorer.tensors(values, valid, days), known, origin=scorer.origin(series.grid, window)
        )
    return found


def blocks_of(scorer: Scorer, grid: Grid, block: int, words: str) -> tuple[Iterator[Window], str, int]:
    """The blocks of a scene, laid on multiples of the model's unit on the map: what `progress` takes."""
    phase = grid.phase(scorer.unit)
    return grid.blocks(block, phase), words, grid.block_count(block, phase)


def score_blocks(
    scorer: Scorer,
    series: TimeSeries,
    block: int,
    start: date | None = None,
    done: Collection[Window] = (),
    shown: bool = True,
) -> Iterator[Scores]:
    """Score a series block by block, row after row.

    Args:
        scorer: the model.
        series: with the bands of the model.
        block: side of a block, a multiple of the model's unit.
        start: first day of the season; None for the one the first date belongs to.
        done: windows to pass over.
        shown: whether a bar tells how far it is.
    """
    days = scorer.days(series, start)
    grid: Grid = series.grid
    known: tuple[State, ...] | None = None
    if scorer.surveys and grid.block_count(block, grid.phase(scorer.unit)) > 1:
        log.info(
            "%s: the whole scene is the context of model %s; it is read %d times, block by block",
            series.name,
            scorer.card.name,
            scorer.depth + 1,
        )
        known = survey_scene(scorer, series, days, block)
    windows = blocks_of(scorer, grid, block, "Blocks")
    for window in progress(*windows) if shown else windows[0]:
        if window in done:
            continue
        if known is None:
            yield scorer.scores(series, days, window)
        else:
            yield scorer.scores(series, days, window, known)
