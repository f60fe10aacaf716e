import logging
import os
import time

import pytest

from geomix import memory
from geomix.errors import FormatError, MissingFileError, one_line
from geomix.files import expand
from geomix.options import BatchOptions
from geomix.parallel.jobs import run_jobs


def work_on(done):
    def work(item):
        if item.startswith("bad"):
            raise FormatError(f"{item}: is\ntruncated")
        done.append(item)

    return work


def errors(caplog):
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


def test_a_bad_input_is_reported_and_the_rest_goes_on(caplog):
    done = []
    assert run_jobs(["a", "bad.las", "b"], work_on(done)) == 1
    assert done == ["a", "b"]
    assert errors(caplog) == ["bad.las: is truncated", "1 of 3 inputs failed"]


def test_a_good_batch_ends_with_0_and_says_how_far_it_is(caplog):
    with caplog.at_level(logging.INFO):
        assert run_jobs(["a", "b"], work_on([])) == 0
    assert caplog.messages == ["1 of 2: a, about 0 s left", "2 of 2: b, 0 s in all"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ZeroDivisionError("division by zero"), "scans/a.las: ZeroDivisionError: division by zero"),
        (OSError(28, "No space left on device"), "scans/a.las: No space left on device"),
        (OSError(28, "No space left on device", "out.las"), "scans/a.las: out.las: No space left on device"),
        (FormatError("is no cloud"), "scans/a.las: is no cloud"),
        (FormatError("a.las: bell \x07, escape \x1b[31m"), "a.las: bell \\x07, escape \\x1b[31m"),
        (MemoryError("x" * 999), f"scans/a.las: MemoryError: {'x' * 270} ..."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_error_of_one_input_is_one_line_that_names_it(error, line, caplog):
    def work(_):
        raise error

    with caplog.at_level(logging.DEBUG, "geomix"):
        assert run_jobs(["scans/a.las"], work) == 1
    assert errors(caplog) == [line]
    traces = [record.message for record in caplog.records if record.levelno == logging.DEBUG]
    assert "Traceback (most recent call last)" in traces[0]


def test_ctrl_c_stops_the_whole_batch():
    def work(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(["a", "b"], work)


def write(folder, name, age):
    (folder / name).write_text(name)
    os.utime(folder / name, (time.time() - age,) * 2)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (BatchOptions(), ["new", "old", "half", "none"]),
        (BatchOptions(resume=True), ["old", "half", "none"]),
        (BatchOptions(skip_existing=True), ["half", "none"]),
    ],
    ids=["all", "resume", "skip"],
)
def test_inputs_that_are_done_are_left_out(options, left, tmp_path, caplog):
    """To resume, outputs must be newer than the input; half of the outputs is not enough."""
    names = ["new", "old", "half", "none"]
    for name in names:
        write(tmp_path, name, 50)
    for output, age in (("new.a", 5), ("new.b", 5), ("old.a", 99), ("old.b", 5), ("half.a", 5)):
        write(tmp_path, output, age)
    done = []
    with caplog.at_level(logging.INFO):
        run_jobs(
            [tmp_path / name for name in names],
            lambda path: path.name,
            options,
            outputs=lambda path: [path.with_suffix(".a"), path.with_suffix(".b")],
            done=done.append,
        )
    assert done == left
    said = f"{4 - len(left)} of 4 inputs are done already"
    assert (said in caplog.messages) is (len(left) < 4)


def test_jobs_run_in_processes_of_their_own_that_share_the_memory(tmp_path, caplog):
    def work(item):
        if item == "c":
            raise ZeroDivisionError("no")
        return item, os.getpid(), os.environ[memory.JOBS_VARIABLE]

    found = []
    assert run_jobs(["a", "b", "c"], work, BatchOptions(jobs=2), done=found.append) == 1
    assert [item for item, _, _ in found] == ["a", "b"]
    assert os.getpid() not in {process for _, process, _ in found}
    assert {jobs for _, _, jobs in found} == {"2"}
    assert "c: ZeroDivisionError: no" in errors(caplog)


def test_a_worker_of_two_takes_half_the_memory(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 800)
    assert memory.default_budget() == 400
    monkeypatch.setenv(memory.JOBS_VARIABLE, "2")
    assert memory.default_budget() == 200


def test_patterns_become_the_files_that_they_match_in_order(tmp_path):
    for name in ("b.las", "a.las", "c[1].las"):
        (tmp_path / name).touch()
    inner = tmp_path / "more"
    inner.mkdir()
    (inner / "d.las").touch()
    assert [path.name for path in expand([tmp_path / "[ab].las"])] == ["a.las", "b.las"]
    assert [path.name for path in expand([f"{tmp_path}/**/d.*", tmp_path / "c[1].las"])] == [
        "d.las",
        "c[1].las",
    ]
    assert expand(["gone.las", "s3://bucket/*.tif"])[0].name == "gone.las"
    with pytest.raises(MissingFileError, match=r"x\*.las: no file matches this pattern"):
        expand([tmp_path / "x*.las"])


def test_one_line():
    assert one_line(ValueError("a\n  b")) == "a b"
