import json
from pathlib import Path

import numpy as np
import pytest

from geomix.cli import run
from geomix.errors import InputError, UnsupportedError
from pointcloud.cloud import Cloud
from pointcloud.io import check_output, read_cloud, write_cloud
from pointcloud.io.preview import write_preview
from tests.pointcloud.making import cloud_of, make_las, tiny_model_file


@pytest.fixture
def model(tmp_path):
    return str(tiny_model_file(tmp_path / "model.safetensors"))


def segment(*words, model):
    return run(["pointcloud", "segment", *map(str, words), "--model", model, "--device", "cpu"])


def test_segment_writes_the_file_and_says_where(tmp_path, model, capsys):
    source = make_las(tmp_path / "a.laz")
    out = tmp_path / "b.laz"
    assert segment(source, "-o", out, "--confidence", "--preview", tmp_path / "b.png", model=model) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == [str(out), str(tmp_path / "b.png")]
    assert "points in" in captured.err
    assert set(read_cloud(out).fields["classification"]) <= {2, 3, 4, 5, 6}
    assert "confidence" in read_cloud(out).fields
    assert "entropy" not in read_cloud(out).fields
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_quiet_leaves_results_alone(tmp_path, model, capsys):
    source = make_las(tmp_path / "a.las", count=200)
    assert segment(source, "-o", tmp_path / "b.las", "--quiet", model=model) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'b.las'}\n", "")


def test_a_bad_file_of_a_batch_is_reported_and_the_rest_goes_on(tmp_path, model, capsys):
    good = [make_las(tmp_path / name, count=50) for name in ("a.las", "c.laz")]
    bad = tmp_path / "b.las"
    bad.write_bytes(good[0].read_bytes()[:300])
    out = tmp_path / "out"
    code = segment(good[0], bad, good[1], "-o", out, "--preview", tmp_path / "png", model=model)
    assert code == 1
    assert sorted(p.name for p in out.iterdir()) == ["a.las", "c.laz"]
    assert sorted(p.name for p in (tmp_path / "png").iterdir()) == ["a.las.png", "c.laz.png"]
    err = capsys.readouterr().err
    assert len([line for line in err.splitlines() if "b.las" in line]) == 1
    assert "1 of 3 inputs failed" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.las", "-o", "out.las"], "there is no such file"),
        (["a.las", "-o", "out.doc"], "names no format"),
        (["a.las", "-o", "a.las"], "is the input itself"),
        (["a.las", "-o", "out.las", "--memory", "much"], "not a size"),
        (["a.las", "-o", "out.las", "--unit", "league"], "unit 'league' is unknown"),
        (["a.las", "a.las", "-o", "out.las"], "go to a folder"),
        (["-o", "out.las"], "one file or more"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(tmp_path, monkeypatch, model, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    make_las(tmp_path / "a.las", count=5)
    assert segment(*words, model=model) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "rror:" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "out.las").exists()


def test_wrong_words_are_exit_code_2(capsys):
    assert run(["pointcloud", "segment", "a.las"]) == 2
    assert run(["pointcloud", "segment", "a.las", "-o", "b.las", "--nonsense"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_info_says_how_a_file_is_read(tmp_path, capsys):
    source = make_las(tmp_path / "a.laz", point_format=7)
    assert run(["pointcloud", "info", str(source)]) == 0
    out = capsys.readouterr().out
    for words in ("LAZ 1.4, point format 7", "points: 300", "unit: metre", "intensity", "class"):
        assert words in out


def test_info_as_json(tmp_path, capsys):
    write_cloud(cloud_of(30), tmp_path / "a.ply")
    (tmp_path / "bad.ply").write_text("nothing")
    assert run(["pointcloud", "info", str(tmp_path / "a.ply"), str(tmp_path / "bad.ply"), "--json"]) == 1
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["points"] == 30
    assert facts["fields"]["color"]["type"] == "float32 x 3"
    assert sum(facts["classes"].values()) == 30


def test_info_of_a_configuration_counts_parameters(capsys):
    assert run(["pointcloud", "info", "--config", "tiny"]) == 0
    rows = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert int(rows.pop("all")) == sum(map(int, rows.values())) > 10_000


def test_view_without_open3d_says_what_to_do(tmp_path, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "open3d", None)
    write_cloud(cloud_of(5), tmp_path / "a.ply")
    assert run(["pointcloud", "view", str(tmp_path / "a.ply")]) == 1
    assert "geomix[view]" in capsys.readouterr().err


def test_evaluate_hands_everything_on(tmp_path, capsys, monkeypatch):
    from geomix.learn import verbs

    seen = {}

    def fake(kind, model, data, split, **options):
        seen.update(options, data=data, split=split)
        return {"miou": 0.5, "points": 7}

    monkeypatch.setattr(verbs, "evaluate", fake)
    model = str(tiny_model_file(tmp_path / "m.safetensors"))
    words = ["--model", model, "--split", "val", "--tta", "--memory", "2GB", "--csv", "scores.csv", "--json"]
    assert run(["pointcloud", "evaluate", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"miou": 0.5, "points": 7}
    assert seen == {
        "data": None,
        "split": "val",
        "augmented": True,
        "memory": "2GB",
        "csv": Path("scores.csv"),
    }


def test_import_refuses_what_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / "a.pth").write_bytes(np.arange(9).tobytes())
    assert run(["pointcloud", "import", str(tmp_path / "a.pth")]) == 1
    assert "is no PyTorch file of tensors alone" in capsys.readouterr().err


def test_what_cannot_be_written_is_said_before_the_work(tmp_path):
    cloud = tmp_path / "a.csv"
    cloud.write_text("x,y,z\n0,0,0\n1,1,1\n")
    with pytest.raises(UnsupportedError, match=r"a\.e57: E57 is written from E57 alone"):
        check_output(cloud, tmp_path / "a.e57", overwrite=False)
    labelled = Cloud.from_arrays(np.zeros((2, 3)), classification=np.array([2, 2]))
    with pytest.raises(InputError, match=r"a\.jpg: the picture is a PNG"):
        write_preview(labelled, tmp_path / "a.jpg")


def test_the_old_names_of_extra_fields_still_work_and_say_the_new_one(tmp_path, capsys):
    cloud = make_las(tmp_path / "a.las")
    model = str(tiny_model_file(tmp_path / "m.safetensors"))
    common = ["pointcloud", "segment", str(cloud), "--model", model]
    assert run([*common, "-o", str(tmp_path / "b.las"), "--entropy", "--confidence"]) == 0
    assert "--confidence is now --extra confidence" in capsys.readouterr().err
    assert run([*common, "-o", str(tmp_path / "c.las"), "--extra", "confidence", "entropy"]) == 0
    assert (tmp_path / "b.las").read_bytes() == (tmp_path / "c.las").read_bytes()


def test_a_pattern_in_quotes_is_expanded_and_what_is_done_is_skipped(tmp_path, capsys):
    weights = tiny_model_file(tmp_path / "model.safetensors")
    for name in ("a.laz", "b.laz"):
        make_las(tmp_path / name)
    command = ["pointcloud", "segment", f"{tmp_path}/*.laz", "--model", str(weights), "--device", "cpu"]
    command += ["-o", str(tmp_path / "out"), "--skip-existing"]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "out" / f"{name}.laz") for name in "ab"]
    (tmp_path / "out" / "b.laz").unlink()
    assert run(command) == 0
    found = capsys.readouterr()
    assert found.out.splitlines() == [str(tmp_path / "out" / "b.laz")]
    assert "1 of 2 inputs are done already" in found.err
