import json
import shutil

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine

from geomix.cli import run
from tests.sits.making import (
    BANDS,
    DATES,
    TRANSFORM,
    dataset,
    grid,
    model_file,
    numbers,
    write_folder,
    write_tif,
)


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A folder with a series and a model, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "s2")
    model_file(tmp_path)
    (tmp_path / "out").mkdir()
    return tmp_path


def segment(*arguments):
    return run(["sits", "segment", *map(str, arguments), "--quiet"])


def test_segment_prints_what_it_wrote(room, capsys):
    assert segment("s2", "--model", "fake.safetensors", "-o", "out/map.tif", "--preview", "out/map.png") == 0
    printed = capsys.readouterr().out.split()
    assert printed == ["out/map.tif", "out/map.tif.aux.xml", "out/map.qml", "out/map.png"]
    assert {file.name for file in (room / "out").iterdir()} == {
        "map.tif",
        "map.tif.aux.xml",
        "map.qml",
        "map.png",
    }


def test_segment_takes_a_pattern_and_memory(room):
    assert segment("s2/S2_*.tif", "--model", "fake.safetensors", "-o", "out/a.tif", "--memory", "1GB") == 0
    assert segment("s2", "--model", "fake.safetensors", "-o", "out/b.tif", "--block", "8") == 0
    with rasterio.open("out/a.tif") as first, rasterio.open("out/b.tif") as second:
        np.testing.assert_array_equal(first.read(), second.read())


def no_dates(room):
    write_tif(room / "s2" / "spring.tif", numbers()[0])
    return ["s2"], "spring.tif: has no acquisition date"


def mixed_crs(room):
    write_tif(room / "s2" / "S2_20190801.tif", numbers()[0], grid(crs="EPSG:32632"))
    return ["s2"], "coordinate system EPSG:32632 instead of EPSG:32633"


def mixed_grid(room):
    moved = Affine(TRANSFORM.a, 0, TRANSFORM.c + 40, 0, TRANSFORM.e, TRANSFORM.f)
    write_tif(room / "s2" / "S2_20190801.tif", numbers()[0], grid(transform=moved))
    return ["s2"], "lies on another grid"


def missing_band(room):
    shutil.rmtree(room / "s2")
    write_folder(room / "s2", numbers()[:, :3], names=BANDS[:3])
    return ["s2"], "lacks band B8, which the model needs"


def truncated(room):
    file = room / "s2" / f"S2_{DATES[1]:%Y%m%d}.tif"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    return ["s2"], "S2_20190502.tif: is damaged, truncated"


def truncated_netcdf(room):
    dataset().to_netcdf(room / "s2.nc")
    whole = (room / "s2.nc").read_bytes()
    (room / "s2.nc").write_bytes(whole[: len(whole) // 3])
    return ["s2.nc"], "s2.nc: is damaged, truncated"


def empty_pattern(room):
    return ["s2/S3_*.tif"], "S3_*.tif: the pattern matches no file"


def missing_file(room):
    return ["s3"], "s3: no such file or folder"


def no_crs(room):
    shutil.rmtree(room / "s2")
    write_folder(room / "s2", place=grid(crs=None))
    return ["s2"], "has no coordinate system; name it with --crs"


def output_exists(room):
    (room / "out" / "map.tif").write_text("mine")
    return ["s2"], "map.tif: exists already"


def bad_memory(room):
    return ["s2", "--memory", "lots"], "'lots' is not a size"


def little_memory(room):
    return ["s2", "--memory", "1kB"], "the smallest block"


def bad_offset(room):
    return ["s2", "--offset", "some"], "--offset must be auto, none or a number"


BAD = (
    no_dates,
    mixed_crs,
    mixed_grid,
    missing_band,
    truncated,
    truncated_netcdf,
    empty_pattern,
    missing_file,
    no_crs,
    output_exists,
    bad_memory,
    little_memory,
    bad_offset,
)


@pytest.mark.parametrize("spoil", BAD, ids=lambda case: case.__name__)
def test_bad_input_is_one_line_and_leaves_no_file(room, capsys, spoil):
    inputs, message = spoil(room)
    before = {file.name for file in (room / "out").iterdir()}
    code = segment(*inputs, "--model", "fake.safetensors", "-o", "out/map.tif", "--preview", "out/map.png")
    assert code == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert {file.name for file in (room / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("other.safetensors", None, "there is no such model file"),
        ("wrong.safetensors", b"PK\x03\x04", "is a PyTorch checkpoint"),
        ("torn.safetensors", b"\x00" * 50, "is damaged or not a .safetensors file"),
        ("nothing-demo", None, "there is no bundled model 'nothing-demo'"),
    ],
)
def test_a_wrong_model_is_one_line(room, capsys, name, content, message):
    if content is not None:
        (room / name).write_bytes(content)
    assert segment("s2", "--model", name, "-o", "out/map.tif") == 1
    assert message in capsys.readouterr().err
    assert list((room / "out").iterdir()) == []


def test_info_shows_how_a_series_is_read(room, capsys):
    assert run(["sits", "info", "s2", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "crs: EPSG:32633" in printed
    assert "2019-05-02" in printed
    assert run(["sits", "info", "s2", "--json", "--quiet"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bands"] == list(BANDS)
    assert facts["scale"] == "0.0001 (guessed)"
    assert [row["date"] for row in facts["dates"]] == [day.isoformat() for day in DATES]


def test_train_writes_a_model_that_evaluate_and_segment_take(room, capsys, monkeypatch):
    from geomix.config import load_config
    from sits.task import SitsConfig

    config = load_config("tiny", "sits", SitsConfig).model_dump(mode="json")
    config["name"] = "short"
    config["data"] = {"kind": "synthetic", "patches": 5, "size": 16, "dates": 6}
    config["crop"], config["train"] = (
        8,
        {"epochs": 1, "epoch_steps": 1, "batch_size": 2, "learning_rate": 1e-3},
    )
    (room / "short.yaml").write_text(json.dumps(config))
    assert run(["sits", "train", "short.yaml", "--device", "cpu", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == "runs/short/short.safetensors"
    file = "runs/short/short.safetensors"
    assert run(["sits", "evaluate", "--model", file, "--split", "val", "--json", "--quiet"]) == 0
    figures = json.loads(capsys.readouterr().out)
    from geomix.checkpoint import read_card

    assert figures["oa"] == pytest.approx(read_card(file).metrics["val"]["oa"])
    assert run(["sits", "evaluate", "--model", file, "--by-month", "--quiet"]) == 0
    metrics, months = capsys.readouterr().out.split("until")
    assert "miou" in metrics
    assert [line.split()[0][:2] for line in months.splitlines()[1:]] == ["20"] * len(months.splitlines()[1:])
    assert len(months.splitlines()) > 2
    assert segment("s2", "--model", file, "-o", "out/map.tif") == 1  # four bands are not ten
    assert "lacks band" in capsys.readouterr().err


def test_import_refuses_what_is_no_published_model(room, capsys):
    (room / "other.pth").write_bytes(b"nothing")
    assert run(["sits", "import", "other.pth", "-o", "out/m.safetensors", "--quiet"]) == 1
    assert "other.pth" in capsys.readouterr().err
    assert list((room / "out").iterdir()) == []


def test_a_state_is_kept_and_updated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = write_folder(tmp_path / "s2")
    model_file(tmp_path, {"causal": True})
    early = [str(file) for file in files[:2]]
    how = ("--model", "fake.safetensors", "-o", "early.tif", "--save-state", "state", "--device", "cpu")
    assert segment(*early, *how) == 0
    assert capsys.readouterr().out.split()[-1] == "state"
    more = ("--device", "cpu", "--quiet")
    assert run(["sits", "update", "state", str(files[2]), "--proba", "p.tif", *more]) == 1
    assert "name the map with --output" in capsys.readouterr().err
    late = ("-o", "late.tif", "--proba", "p.tif", "--entropy", "e.tif", "--count", "n.tif", "--stac")
    assert run(["sits", "update", "state", str(files[2]), *late, *more]) == 0
    printed = capsys.readouterr().out.split()
    assert printed[0] == "state"
    assert printed[1:] == [f"late{end}" for end in (".tif", ".tif.aux.xml", ".qml")] + [
        "p.tif",
        "e.tif",
        "n.tif",
        "late.json",
    ]
    assert all((tmp_path / name).is_file() for name in printed[1:])
    assert segment("s2", "--model", "fake.safetensors", "-o", "once.tif") == 0
    with rasterio.open("late.tif") as first, rasterio.open("once.tif") as second:
        np.testing.assert_array_equal(first.read(), second.read())
    assert run(["sits", "update", "state", str(files[1]), "-o", "more.tif", "--quiet"]) == 1
    assert "segment --save-state" in capsys.readouterr().err
    assert segment("s2", *how, "--resume") == 1
    assert "cannot be resumed" in capsys.readouterr().err
