"""Batches over a Dask cluster: the same results, failures retried and told, nothing lost with a worker."""

import logging
import os
import time
import warnings
from contextlib import contextmanager

import pytest
from PIL import Image

from geomix.cli import run
from geomix.errors import FormatError, InputError
from geomix.files import is_taken, new_file, rewriting_since
from geomix.options import BatchOptions
from geomix.parallel import cluster
from geomix.parallel.jobs import run_jobs
from tests.htr.making import column, page_of, tiny_model
from tests.pointcloud.making import make_las, tiny_model_file
from tests.sits.making import dataset, model_file


@contextmanager
def local(processes):
    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dask's own start and end
        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None
        ) as running:
            yield running.scheduler.address


@pytest.fixture(scope="module")
def address():
    """Two workers that can be killed."""
    with local(processes=True) as found:
        yield found


@pytest.fixture(scope="module")
def threads():
    """Two workers in this process, which has imported everything already."""
    with local(processes=False) as found:
        yield found


def counter(folder):
    """What counts the attempts at an item, in files, for the attempts may be in several processes."""

    def count(item):
        file = folder / f"{item}.tries"
        with file.open("a") as opened:
            opened.write("x")
        return file.stat().st_size

    return count


def said_by_us(caplog):
    return [
        record.message
        for record in caplog.records
        if record.name.startswith("geomix") and record.levelno > logging.INFO
    ]


def test_results_come_in_the_order_of_the_inputs_with_what_was_said(address, caplog):
    def work(item):
        time.sleep(0.3 if item == "a" else 0)
        logging.getLogger("geomix.somewhere").warning("%s looks odd", item)
        return item.upper(), os.getpid()

    found = []
    with caplog.at_level(logging.INFO):
        assert run_jobs(["a", "b", "c"], work, BatchOptions(scheduler=address), done=found.append) == 0
    assert [name for name, _ in found] == ["A", "B", "C"]
    assert os.getpid() not in {process for _, process in found}
    assert [m for m in caplog.messages if "odd" in m] == ["a looks odd", "b looks odd", "c looks odd"]


def test_a_bad_input_is_reported_once_and_the_rest_goes_on(address, tmp_path, caplog):
    count = counter(tmp_path)

    def work(item):
        count(item)
        if item == "bad.las":
            raise FormatError("bad.las: is\ntruncated")

    assert run_jobs(["a", "bad.las", "b"], work, BatchOptions(scheduler=address)) == 1
    assert said_by_us(caplog) == ["bad.las: is truncated", "1 of 3 inputs failed"]
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == {
        "a.tries": 1, "bad.las.tries": 1, "b.tries": 1,
    }  # fmt: skip


def test_what_is_not_the_inputs_fault_is_tried_again(address, tmp_path, caplog):
    count = counter(tmp_path)

    def work(item):
        if count(item) < {"flaky": 3, "lost": 99}.get(item, 0):
            raise ConnectionError("the share is away")
        return item

    found = []
    assert run_jobs(["flaky", "lost", "c"], work, BatchOptions(scheduler=address), done=found.append) == 1
    assert found == ["flaky", "c"]
    assert "lost: ConnectionError: the share is away" in caplog.messages
    assert (tmp_path / "lost.tries").stat().st_size == 1 + cluster.RETRIES


def test_a_worker_that_is_killed_loses_no_file(address, tmp_path, caplog):
    """Killed once before and once after its output was in place: the second finds that in its way."""
    count = counter(tmp_path)

    def work(item):
        attempt, target = count(item), tmp_path / f"{item}.out"
        if item == "early" and attempt == 1:
            os._exit(9)
        with new_file(target) as temporary:
            temporary.write_text(f"{item} {attempt}")
        if item == "late" and attempt == 1:
            os._exit(9)
        return target

    found = []
    items = ["a", "early", "late", "b"]
    assert run_jobs(items, work, BatchOptions(scheduler=address), done=found.append) == 0
    assert [file.name for file in found] == [f"{item}.out" for item in items]
    for item in ("early", "late"):
        name, attempt = (tmp_path / f"{item}.out").read_text().split()
        assert name == item
        assert int(attempt) > 1


def test_a_file_from_before_the_batch_is_not_replaced(tmp_path):
    file = tmp_path / "map.tif"
    file.write_text("precious")
    os.utime(file, (time.time() - 5,) * 2)
    with rewriting_since(time.time()):
        assert is_taken(file)
    with rewriting_since(time.time() - 60):
        assert not is_taken(file)
    assert is_taken(file)
    assert not is_taken(file, overwrite=True)
    assert not is_taken(tmp_path / "other.tif")


def test_no_scheduler_is_an_error_that_says_how_to_start_one(monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 0.3)
    with pytest.raises(InputError, match="no Dask scheduler answers at tcp://127.0.0.1:9 .*`dask scheduler`"):
        run_jobs(["a"], str, BatchOptions(scheduler="tcp://127.0.0.1:9"))


def scans(folder):
    sources = [make_las(folder / name) for name in ("one.laz", "two.las")]
    weights = tiny_model_file(folder / "model.safetensors")
    return ["pointcloud", "segment", *map(str, sources), str(folder / "gone.laz"), "--model", str(weights)]


def pages(folder):
    image, _ = page_of(column(60, 540, 60, 5))
    for name in ("one.png", "two.png"):
        Image.fromarray(image).save(folder / name)
    (folder / "torn.png").write_bytes(b"no picture")
    tiny_model(folder / "model.safetensors")
    sources = [str(folder / name) for name in ("one.png", "torn.png", "two.png")]
    return ["htr", "transcribe", *sources, "--model", str(folder / "model.safetensors"), "--format", "page"]


def series(folder):
    weights = model_file(folder)
    for name in ("one.nc", "two.nc"):
        dataset().to_netcdf(folder / name)
    (folder / "torn.nc").write_bytes(b"no cube")
    sources = [str(folder / name) for name in ("one.nc", "torn.nc", "two.nc")]
    return ["sits", "segment", *sources, "--model", str(weights)]


@pytest.mark.parametrize("make", [scans, pages, series], ids=lambda make: make.__name__)
def test_a_verb_gives_the_same_files_and_words_over_a_cluster(make, threads, tmp_path, capsys):
    command = make(tmp_path)
    said = []
    for place, more in (("here", []), ("there", ["--scheduler", threads])):
        out = tmp_path / place
        assert run([*command, "-o", str(out), "--device", "cpu", "--quiet", *more]) == 1
        captured = capsys.readouterr()
        # Workers in this process speak for themselves too, and not as quietly: what counts is said by both.
        loud = {line for line in captured.err.splitlines() if line.startswith(("warning:", "error:"))}
        said.append((captured.out.replace(str(out), ""), {line.replace(str(out), "") for line in loud}))
    assert said[0] == said[1]
    assert "error: 1 of 3 inputs failed" in said[0][1]
    here, there = (
        {file.name: file.read_bytes() for file in (tmp_path / p).iterdir()} for p in ("here", "there")
    )
    assert sorted(here) == sorted(there)
    assert len(here) >= 2
    same = [name for name in here if here[name] == there[name]]
    assert len(same) == len(here) or make is not scans


def test_a_single_map_has_nothing_to_share(tmp_path, capsys):
    words = [
        "sits",
        "segment",
        "a.nc",
        "--model",
        "m",
        "-o",
        str(tmp_path / "map.tif"),
        "--scheduler",
        "tcp://x:1",
    ]
    assert run(words) == 1
    assert "give a folder as output" in capsys.readouterr().err
