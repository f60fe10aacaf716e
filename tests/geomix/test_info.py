import json
import re

import torch

from geomix import info
from geomix.checkpoint import Card, ClassInfo, Source, save_model
from geomix.cli import run


def test_info_says_what_runs_and_why_not_the_rest(capsys, monkeypatch):
    monkeypatch.setattr(info, "_version", lambda name: {"triton": "3.7.0"}.get(name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(["info"]) == 0
    out = capsys.readouterr().out
    assert f"torch {torch.__version__}" in out
    assert "kernels: plain torch" in out
    assert re.search(r"triton +3\.7\.0 +no: torch ", out)
    assert re.search(r"pypdfium2 +- +not installed: pip install 'geomix\[pdf\]'", out)


def test_info_is_the_same_as_json(capsys):
    assert run(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(info.gather())) | {
        "device": json.loads(json.dumps(info.gather()["device"]))
    }


def test_models_are_shown_with_their_quality_and_limits(monkeypatch, tmp_path):
    card = Card(
        domain="sits",
        name="toy",
        model={},
        classes=(
            ClassInfo(id=0, name="wheat", color="#ff8000"),
            ClassInfo(id=1, name="corn", color="#008000"),
        ),
        data=(Source(source="made", licence="CC0"),),
        metrics={"test": {"oa": 0.51234, "iou": [0.5, None], "macro_f1": None}},
        limits={"season": "2015"},
    )
    path = tmp_path / "toy.safetensors"
    save_model(torch.nn.Linear(1, 1), card, path)
    monkeypatch.setattr(info, "bundled_models", lambda domain: [("toy", path)] if domain == "sits" else [])
    text = info.text(info.gather())
    assert text.endswith(
        f"toy (sits, {path.stat().st_size} B)\n  classes: wheat, corn\n  test: oa 0.512\n"
        "  data: made (CC0)\n  limit, season: 2015"
    )
    path.write_text("broken")
    assert "unusable:" in info.text(info.gather())


def test_a_hidden_domain_is_told(monkeypatch):
    monkeypatch.setattr(info, "domain_folder", lambda name: None)
    assert "the import name 'sits' is taken by" in info.text(info.gather())
