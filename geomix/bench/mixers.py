"""What each mixer can learn: small experiments with equal budgets, several seeds, mean and spread.

`composition`  look up f2(f1(x)) in a sequence that lists both functions, in one layer with one head
`forecast`     predict the next values of noisy waves: concentration against attention, paired seeds
`large`        tell the spread of numbers that the published activation clips, with and without its bounds
`recall`       name the value that stands beside a key, far away in the sequence

Each trains from scratch on data drawn anew for each step, and judges on sequences drawn apart. How the mixers
label a real scene, `geomix sits study eolearn --mixers` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.bench import Row, measure
from geomix.config import hint
from geomix.encoder import Encoder, parameters
from geomix.errors import InputError
from geomix.mixers import PoM
from geomix.segments import Segments

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Budget:
    """What every contestant of an experiment gets."""

    steps: int
    batch: int
    learning_rate: float
    seeds: int


def train(
    model: nn.Module,
    draw: Callable[[torch.Generator, int], Batch],
    loss: Callable[[Tensor, Tensor], Tensor],
    budget: Budget,
    seed: int,
) -> None:
    """Train a model on fresh batches with AdamW and a one-cycle learning rate.

    Args:
        model: what is trained, in place.
        draw: makes inputs and targets of a batch.
        loss: compares outputs and targets.
        budget: steps, batch size and learning rate.
        seed: of the data.
    """
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=budget.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, budget.learning_rate, total_steps=budget.steps, pct_start=0.1
    )
    for _ in range(budget.steps):
        inputs, targets = draw(random, budget.batch)
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


class TokenModel(nn.Module):
    """Symbols with learned positions, an encoder, and a class from the last token."""

    def __init__(
        self,
        symbols: int,
        length: int,
        classes: int,
        dim: int,
        depth: int,
        mixer: Any,
        grid: tuple[int, ...] | None,
    ) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(symbols, dim), nn.Embedding(length, dim)
        self.encoder = Encoder(dim, depth, mixer, mlp_ratio=2.0)
        self.head, self.grid = nn.Linear(dim, classes), grid

    def forward(self, symbols: Tensor) -> Tensor:
        """Classify sequences; `symbols` is [B, N, parts], whose embeddings add up."""
        x = self.symbol(symbols).sum(2) + self.place.weight
        segments = None if self.grid is None else Segments.grid(len(x), self.grid)
        scores: Tensor = self.head(self.encoder(x, segments)[:, -1])
        return scores


# ---------------------------------------------------------------------- composition

COMPOSITION = Budget(steps=4000, batch=128, learning_rate=3e-3, seeds=3)
NAMES = 8
"""Values of each function: sequences of 2 * NAMES + 1 tokens."""


def draw_composition(random: torch.Generator, size: int) -> Batch:
    """List f1, then f2, then x; the target is f2(f1(x))."""
    first, second = torch.randint(NAMES, (2, size, NAMES), generator=random)
    x = torch.randint(NAMES, (size, 1), generator=random)
    target = second.gather(1, first.gather(1, x)).squeeze(1)
    return torch.cat([first, second, x], 1)[..., None], target


def composition() -> list[Row]:
    """Learn f2(f1(x)): tree attention does in one layer, self-attention does not."""
    contestants = {
        "tree_attention, 1 layer": (1, {"name": "tree_attention", "heads": 1}),
        "attention, 1 layer": (1, {"name": "attention", "heads": 1}),
        "attention, 2 layers": (2, {"name": "attention", "heads": 1}),
    }
    rows = []
    for name, (depth, mixer) in contestants.items():
        scores = []
        for seed in range(COMPOSITION.seeds):
            torch.manual_seed(seed)
            model = TokenModel(NAMES, 2 * NAMES + 1, NAMES, 64, depth, mixer, None)
            train(model, draw_composition, F.cross_entropy, COMPOSITION, seed)
            scores.append(_accuracy(model, draw_composition))
        rows += _summary(f"composition: {name}", "accuracy", scores)
        solved = float(sum(score > 0.99 for score in scores))
        rows.append(Row(f"composition: {name}", "seeds that solve it", solved, f"of {len(scores)}"))
    return rows


# ---------------------------------------------------------------------- forecast

FORECAST = Budget(steps=500, batch=64, learning_rate=3e-3, seeds=8)
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
CONTEXT, HORIZON = 32, 8


def draw_waves(random: torch.Generator, size: int) -> Batch:
    """Draw sums of three waves with noise: 32 values to see, 8 to predict."""
    period = 4 + 28 * torch.rand(size, 3, 1, generator=random)
    phase, height = torch.rand(2, size, 3, 1, generator=random)
    time = torch.arange(CONTEXT + HORIZON)
    wave = (height * torch.sin(2 * torch.pi * (time / period + phase))).sum(1)
    wave = wave + 0.1 * torch.randn(wave.shape, generator=random)
    return wave[:, :CONTEXT], wave[:, CONTEXT:]


class Forecaster(nn.Module):
    """One token a value, an encoder, and the horizon from the mean of the tokens."""

    def __init__(self, mixer: Mapping[str, Any], mlp_ratio: float, dim: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.value, self.place = nn.Linear(1, dim), nn.Parameter(0.1 * torch.randn(CONTEXT, dim))
        self.encoder = Encoder(dim, depth, mixer, mlp_ratio=mlp_ratio)
        self.head = nn.Linear(dim * CONTEXT, HORIZON)

    def forward(self, wave: Tensor) -> Tensor:
        """Predict [B, HORIZON] from [B, CONTEXT]."""
        x = self.encoder(self.value(wave[..., None]) + self.place, Segments.grid(len(wave), (CONTEXT,)))
        forecast: Tensor = self.head(x.flatten(1))
        return forecast


def forecast() -> list[Row]:
    """Forecast waves with concentration and with attention of as many parameters, each at its best rate."""
    contestants: dict[str, tuple[Mapping[str, Any], float]] = {
        "concentration": ({"name": "concentration", "shape": [CONTEXT]}, 3.0),
        "attention": ({"name": "attention", "heads": 4}, 2.0),
    }
    errors, rows = {}, []
    for name, (mixer, mlp_ratio) in contestants.items():
        # The rate is chosen on seeds that the comparison does not use.
        tuned = {
            rate: mean(_forecast_errors(mixer, mlp_ratio, rate, range(100, 102))) for rate in LEARNING_RATES
        }
        rate = min(tuned, key=lambda key: tuned[key])
        errors[name] = _forecast_errors(mixer, mlp_ratio, rate, range(FORECAST.seeds))
        size = parameters(Forecaster(mixer, mlp_ratio))
        rows += _summary(
            f"forecast: {name}, {size:,} parameters, rate {rate:g}", "mean squared error", errors[name]
        )
    pairs = list(zip(errors["concentration"], errors["attention"], strict=True))
    wins = sum(ours < theirs for ours, theirs in pairs)
    rows.append(
        Row("forecast: concentration", "seeds won", float(wins), f"of {len(pairs)}", versus="attention")
    )
    return rows


def _forecast_errors(
    mixer: Mapping[str, Any], mlp_ratio: float, rate: float, seeds: Iterable[int]
) -> list[float]:
    errors = []
    for seed in seeds:
        torch.manual_seed(seed)
        model = Forecaster(mixer, mlp_ratio)
        budget = Budget(FORECAST.steps, FORECAST.batch, rate, FORECAST.seeds)
        train(model, draw_waves, F.mse_loss, budget, seed)
        wave, future = draw_waves(torch.Generator().manual_seed(10_000), 2000)
        with torch.no_grad():
            errors.append(float(F.mse_loss(model(wave), future)))
    return errors


# ---------------------------------------------------------------------- recall

RECALL = Budget(steps=1000, batch=64, learning_rate=3e-3, seeds=3)
KEYS, VALUES, SIDE = 64, 8, 8
"""Keys, values, and the side of the grid that 63 pairs and one question fill."""


def draw_recall(random: torch.Generator, size: int) -> Batch:
    """List 63 pairs of a key and a value in random order, then one of the keys; the target is its value."""
    length = SIDE * SIDE - 1
    keys = torch.rand(size, KEYS, generator=random).argsort(1)[:, :length]
    values = torch.randint(VALUES, (size, length), generator=random)
    asked = torch.randint(length, (size, 1), generator=random)
    pairs = torch.stack([keys, KEYS + values], -1)
    question = torch.stack([keys.gather(1, asked), torch.full((size, 1), KEYS + VALUES)], -1)
    return torch.cat([pairs, question], 1), values.gather(1, asked).squeeze(1)


def recall() -> list[Row]:
    """Look one pair up among 63: what one state for all tokens cannot hold, and attention can."""
    pom, attention = {"name": "pom", "degree": 2}, {"name": "attention", "heads": 2}
    contestants: dict[str, Any] = {
        "pom": pom,
        "attention": attention,
        "pom + attention": [pom, attention],
        "poly_attention, degree 3": {"name": "poly_attention", "heads": 2, "degree": 3},
        "tree_attention": {"name": "tree_attention", "heads": 2},
        "concentration": {"name": "concentration", "shape": [SIDE, SIDE]},
    }
    rows = []
    for name, mixer in contestants.items():
        scores, size = [], 0
        for seed in range(RECALL.seeds):
            torch.manual_seed(seed)
            model = TokenModel(KEYS + VALUES + 1, SIDE * SIDE, VALUES, 64, 2, mixer, (SIDE, SIDE))
            size = parameters(model)
            train(model, draw_recall, F.cross_entropy, RECALL, seed)
            scores.append(_accuracy(model, draw_recall))
        rows += _summary(f"recall: {name}, {size:,} parameters", "accuracy", scores)
    return rows


def _accuracy(model: nn.Module, draw: Callable[[torch.Generator, int], Batch]) -> float:
    symbols, target = draw(torch.Generator().manual_seed(10_000), 2000)
    with torch.no_grad():
        return float((model(symbols).argmax(-1) == target).double().mean())


def _summary(case: str, metric: str, values: list[float]) -> list[Row]:
    unit = f"of {len(values)} seeds"
    return [
        Row(case, f"{metric}, mean", mean(values), unit),
        Row(case, f"{metric}, spread", stdev(values) if len(values) > 1 else 0.0, unit),
    ]


# ---------------------------------------------------------------------- large numbers

LARGE = Budget(steps=1500, batch=64, learning_rate=3e-3, seeds=3)
LARGEST, SET = 30.0, 16
"""The largest number of a set, and how many there are: h clips all beyond 6."""
ACTIVATIONS = ("clamped_leaky_relu", "leaky_softsign")


class SetModel(nn.Module):
    """A mixer of numbers without a norm before it, and one number for the whole set."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.embed, self.mixer = nn.Linear(1, 16), PoM(16, degree=4, activation=activation)
        self.head = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, numbers: Tensor) -> Tensor:
        """Judge sets of numbers, [B, N, 1] to [B]."""
        judged: Tensor = self.head(self.mixer(self.embed(numbers)).mean(1)).squeeze(-1)
        return judged


def draw_large(random: torch.Generator, size: int) -> Batch:
    """Draw sets of numbers from 0 to at most LARGEST; the target is a tenth of their standard deviation."""
    numbers = torch.rand(size, SET, 1, generator=random) * torch.rand(size, 1, 1, generator=random) * LARGEST
    return numbers, numbers.squeeze(-1).std(1) / 10


def large() -> list[Row]:
    """Tell sets of large numbers apart: what clipping them costs, and what an injective activation does."""
    rows, tokens = [], torch.randn(1, 4096, 256)
    for activation in ACTIVATIONS:
        errors = []
        for seed in range(LARGE.seeds):
            torch.manual_seed(seed)
            model = SetModel(activation)
            train(model, draw_large, F.mse_loss, LARGE, seed)
            numbers, spread = draw_large(torch.Generator().manual_seed(10_000), 2000)
            with torch.no_grad():
                errors.append(float((model(numbers) - spread).square().mean()))
        case = f"large numbers: pom, {activation}"
        rows += _summary(case, "mean squared error", errors)
        mixer = PoM(256, activation=activation)
        with torch.inference_mode():
            timing = measure(partial(mixer, tokens))
        rows.append(
            Row(
                case,
                "forward, 4,096 tokens of width 256",
                None if timing is None else timing.fast * 1e3,
                "ms",
            )
        )
    return rows


EXPERIMENTS: dict[str, Callable[[], list[Row]]] = {
    "composition": composition,
    "forecast": forecast,
    "large": large,
    "recall": recall,
}


def run(*experiments: str) -> list[Row]:
    """Run experiments by name, all of them by default; minutes each on a laptop.

    Raises:
        InputError: if there is no such experiment.
    """
    for name in experiments:
        if name not in EXPERIMENTS:
            raise InputError(f"there is no experiment {name!r}{hint(name, EXPERIMENTS)}")
    return [row for name in experiments or EXPERIMENTS for row in EXPERIMENTS[name]()]
