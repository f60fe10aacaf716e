"""The experiments draw what they say, give every contestant the same, and report mean and spread."""

import pytest
import torch

from geomix.bench import mixers
from geomix.bench.mixers import Budget, Forecaster
from geomix.encoder import parameters
from geomix.errors import InputError


def test_a_composition_names_its_target() -> None:
    symbols, target = mixers.draw_composition(torch.Generator().manual_seed(0), 50)
    n = mixers.NAMES
    for row, expected in zip(symbols[..., 0].tolist(), target.tolist(), strict=True):
        first, second, x = row[:n], row[n : 2 * n], row[-1]
        assert second[first[x]] == expected


def test_a_recall_asks_for_a_pair_that_is_there() -> None:
    symbols, target = mixers.draw_recall(torch.Generator().manual_seed(0), 50)
    for row, expected in zip(symbols.tolist(), target.tolist(), strict=True):
        pairs = dict(row[:-1])
        assert len(pairs) == len(row) - 1 and pairs[row[-1][0]] == mixers.KEYS + expected


def test_forecasters_have_as_many_parameters() -> None:
    concentration = Forecaster({"name": "concentration", "shape": [mixers.CONTEXT]}, 3.0)
    attention = Forecaster({"name": "attention", "heads": 4}, 2.0)
    assert parameters(concentration) == pytest.approx(parameters(attention), rel=0.01)


@pytest.mark.parametrize("name", mixers.EXPERIMENTS)
def test_every_experiment_reports_mean_and_spread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in ("COMPOSITION", "FORECAST", "LARGE", "RECALL"):
        monkeypatch.setattr(mixers, budget, Budget(steps=2, batch=4, learning_rate=1e-3, seeds=2))
    monkeypatch.setattr(mixers, "LEARNING_RATES", (1e-3,))
    rows = mixers.run(name)
    metrics = {row.metric.rpartition(", ")[2] for row in rows}
    assert {"mean", "spread"} <= metrics and all(row.value is not None for row in rows)


def test_an_unknown_experiment_is_named() -> None:
    with pytest.raises(InputError, match="no experiment 'recal'; did you mean 'recall'"):
        mixers.run("recal")
