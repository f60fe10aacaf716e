import pytest

from geomix.errors import FormatError
from geomix.parallel.jobs import one_line, run_jobs


def work_on(done):
    def work(item):
        if item.startswith("bad"):
            raise FormatError(f"{item}: is\ntruncated")
        done.append(item)

    return work


def test_a_bad_input_is_reported_and_the_rest_goes_on(caplog):
    done = []
    assert run_jobs(["a", "bad.las", "b"], work_on(done)) == 1
    assert done == ["a", "b"]
    assert caplog.messages == ["bad.las: is truncated", "1 of 3 inputs failed"]


def test_a_good_batch_ends_with_0(caplog):
    assert run_jobs(["a", "b"], work_on([])) == 0
    assert caplog.messages == []


def test_an_unexpected_error_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        run_jobs(["a"], lambda _: 1 / 0)


def test_one_line():
    assert one_line(ValueError("a\n  b")) == "a b"
