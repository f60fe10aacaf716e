import time

import torch

from geomix.bench import Row, measure, rows_table


def test_a_call_is_timed_after_a_warm_up():
    pauses = iter([0.2] + [0.01] * 50)
    timing = measure(lambda: time.sleep(next(pauses)), min_seconds=0.05, max_repeats=20)
    assert 0.01 <= timing.fast <= timing.median <= timing.slow < 0.1
    assert 3 <= timing.repeats <= 6


def test_a_slow_rival_is_not_repeated():
    calls = []
    assert measure(lambda: (calls.append(1), time.sleep(0.02)), cap_seconds=0.01) is None
    assert len(calls) == 1


def test_a_row_knows_the_machine_and_what_was_not_run():
    rows = [
        Row("1M tokens", "time", 1.25, "ms", "attention", 8.0),
        Row("1M tokens", "time of attention", None, "ms"),
    ]
    assert rows[0].as_dict()["threads"] == torch.get_num_threads()
    assert rows[0].as_dict()["versions"]["torch"] == torch.__version__
    text = rows_table(rows)
    assert "not run" in text
    assert text.splitlines()[-1].endswith(f"torch {torch.__version__}")
