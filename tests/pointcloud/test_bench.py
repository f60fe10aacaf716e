"""The benchmark runs small, says what it did not run, and gives no time for a wrong result."""

import pytest
import torch

from geomix.bench import Timing
from geomix.errors import NonFiniteError
from pointcloud import bench
from pointcloud.model import PPoMv3


def test_rows_compare_equal_networks_at_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    # Once each: this test is about the rows, not about the times.
    monkeypatch.setattr(bench, "measure", lambda call, **_: call() is None or Timing(1.0, 1.0, 1.0, 1))
    rows = bench.run(points=1000)
    cases = [row.case for row in rows]
    for context in ("window 1024", "window 4096", "whole scan"):
        pom, attention = (next(row for row in rows if row.case.startswith(name) and context in row.case)
                          for name in ("PPoMv3", "PTv3 attention"))  # fmt: skip
        assert pom.ratio == pytest.approx(pom.value / attention.value)
        sizes = [float(one.case.split(" M,")[0].split()[-1]) for one in (pom, attention)]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.01)
    assert any("convolution" in case for case in cases)
    assert all(row.value is None or row.value > 0 for row in rows)


def test_a_slow_rival_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    rows = bench.run(points=500, cap_seconds=1e-6)
    attention = [row for row in rows if row.case.startswith("PTv3")]
    assert [row.value for row in attention] == [None] * 3
    assert "would take longer" in caplog.text


def test_no_time_for_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    config = bench.load_config("aerial", "pointcloud", bench.PointcloudConfig)
    model = bench._network(config, {"name": "pom"}, None)
    right = PPoMv3.forward

    def wrong(self, grid, feat, cu_seqlens=None, *, memory=None):
        return right(self, grid, feat, cu_seqlens) + (memory is not None)

    monkeypatch.setattr(PPoMv3, "forward", wrong)
    grid = torch.stack([torch.arange(50), torch.zeros(50).long(), torch.zeros(50).long()], dim=1)
    with pytest.raises(NonFiniteError, match="no time is given"):
        bench.check(model, grid, torch.randn(50, 23))
