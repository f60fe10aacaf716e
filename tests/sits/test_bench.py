import json
import subprocess

import numpy as np
import pytest
import torch

from geomix.encoder import parameters
from geomix.errors import NonFiniteError
from sits import bench
from sits.grid import Window
from tests.sits.making import model


def test_the_rows_name_speed_rival_and_memory(monkeypatch):
    pair = {"ours": model({"bands": 10}), "theirs": model({"bands": 10, "window": None})}
    monkeypatch.setattr(bench, "DATES", 3)
    monkeypatch.setattr(bench, "models", lambda: pair)
    monkeypatch.setattr(bench, "_large", lambda cap: iter(()))
    ours, theirs = bench.run(cap_seconds=60, device="cpu", tiles=(8,))
    assert ours.metric.startswith("ours, 0.0")
    assert (ours.versus, ours.unit, theirs.versus, theirs.ratio) == ("theirs", "km2/s", "", None)
    assert ours.ratio == pytest.approx(ours.value / theirs.value)


def test_a_slow_rival_is_not_run_on_larger_tiles(monkeypatch):
    sides = []

    def slow(model, batch, side, place, cap):
        sides.append(side)

    monkeypatch.setattr(bench, "_time", slow)
    monkeypatch.setattr(bench, "_large", lambda cap: iter(()))
    rows = bench.run(device="cpu", tiles=(8, 16))
    assert [row.value for row in rows] == [None] * 6
    assert sides == [8, 8, 8]


def test_a_wrong_result_gets_no_time(monkeypatch):
    right = bench.Scorer.scores

    def wrong(self, series, days, window):
        found = right(self, series, days, window)
        found.logits[...] += window.row
        return found

    monkeypatch.setattr(bench.Scorer, "scores", wrong)
    with pytest.raises(NonFiniteError, match="no speed is reported"):
        bench.run(device="cpu")


def test_a_large_scene_is_mapped_in_part_and_says_so():
    found = bench.map_large(cap=0.0, side=300, dates=2)
    assert 0 < found["part"] < 1
    assert found["peak"] > 1e6


def test_a_time_from_a_part_is_called_extrapolated(monkeypatch):
    for part, words in ((0.01, "time, extrapolated"), (1, "time")):
        told = json.dumps({"seconds": 5.0, "km2": 120.0, "part": part, "peak": 8e8})
        done = subprocess.CompletedProcess([], 0, told, "")
        monkeypatch.setattr(subprocess, "run", lambda *a, done=done, **k: done)
        speed, memory, time = list(bench._large(1.0))[-3:]
        assert speed.case.startswith("10980 x 10980, T = 12, tiny")
        assert ("first 1 %" in speed.case) == (part < 1)
        assert (speed.value, memory.value) == (24, 800)
        assert (time.metric, time.value) == (words, 5 / part)


def test_memory_does_not_grow_with_the_scene():
    scorer = bench._tiny(torch.device("cpu"))
    budget, sides = 2 * 10**9, []
    for side in (2048, 10980):
        large = bench.made_up(side, 12)
        sides.append(scorer.block_size(large, budget))
        assert scorer.bytes_of(large, sides[-1] + 2 * scorer.halo) <= budget
    assert sides[0] == sides[1]


def test_made_up_windows_are_parts_of_the_scene():
    series = bench.made_up(40, 3)
    whole, _ = series.read()
    part, valid = series.read(Window(10, 5, 7, 9))
    np.testing.assert_allclose(part, whole[:, :, 10:17, 5:14], atol=1e-6)
    assert valid.all()


def test_the_rival_has_the_size_of_the_published_model():
    scene, ours, theirs = (parameters(net) for net in bench.models().values())
    # Published: 1,657,476 with tables of 366 days and 144 places, which a size-free code does not need.
    assert theirs == 1_657_476 - 366 * 128 - 128 - 144 * 128
    assert ours == pytest.approx(theirs, rel=0.01)
    assert scene < theirs
