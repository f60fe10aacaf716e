"""Studies go on with what is there, and report means and spreads."""

import json

import pytest

from geomix.learn.study import Trial, kept, report, run_methods, summary


def test_a_kept_result_is_not_made_again(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return {"oa": 0.5}

    assert [kept(tmp_path / "run", make) for _ in range(2)] == [{"oa": 0.5}] * 2
    assert len(calls) == 1


def test_a_study_that_was_stopped_repeats_only_what_is_missing(tmp_path):
    done = []

    def method(name, fails=False):
        def run(seed, place):
            if fails and seed == 1:
                raise KeyboardInterrupt
            done.append((name, seed, place.name))
            return {"oa": seed / 10}

        return run

    with pytest.raises(KeyboardInterrupt):
        run_methods({"PoM, small": method("a"), "b": method("b", fails=True)}, tmp_path, 2)
    done.clear()
    trials = run_methods({"PoM, small": method("a"), "b": method("b")}, tmp_path, 2)
    assert done == [("b", 1, "b-1")]
    assert [(trial.method, trial.seed) for trial in trials] == [
        ("PoM, small", 0),
        ("b", 0),
        ("PoM, small", 1),
        ("b", 1),
    ]
    assert (tmp_path / "PoM-small-0" / "result.json").exists()


def test_the_summary_is_a_mean_and_a_spread_over_the_seeds():
    trials = [Trial("a", 0, {"oa": 0.2}), Trial("b", 0, {"oa": 1.0}), Trial("a", 1, {"oa": 0.6})]
    assert summary(trials, ["oa"]) == [("a", 2, pytest.approx(0.4), pytest.approx(0.2)), ("b", 1, 1.0, 0.0)]
    assert report(trials, ["oa"], as_json=False).splitlines()[0].split() == ["method", "runs", "oa", "spread"]
    assert json.loads(report(trials, ["oa"], as_json=True))["trials"][0] == {
        "method": "a",
        "seed": 0,
        "figures": {"oa": 0.2},
    }
