"""A domain is one folder and one line: examples/words, put beside a copy of the core, has all its verbs."""

import json
import os
import random
import shutil
import subprocess
import sys
from difflib import SequenceMatcher

import pytest

from geomix.domains import DOMAINS
from tests.helpers import ROOT

WORDS = ROOT / "examples" / "words"
VERBS = """
import sys
from geomix.cli import run
for argv in (
    "train words/tiny.yaml --data texts.txt -o run --device cpu --quiet",
    "train words/tiny.yaml --data texts.txt -o again --model run/tiny.safetensors --device cpu --quiet",
    "evaluate --model run/tiny.safetensors --data texts.txt --json",
    "label plain*.txt --model run/tiny.safetensors -o out --quiet",
):
    code = run(["words", *argv.split()])
    if code:
        sys.exit(code)
"""


def sentence(draw):
    """`w` is a unit in a sentence with a number and a word elsewhere: the other words decide."""
    number = str(draw.randint(1, 999))
    return draw.choice([f"{number}/number w/unit", f"w/unit {number}/number", "the/word w/word"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The core with one more line, the folder of the domain, and texts."""
    folder = tmp_path_factory.mktemp("stranger")
    shutil.copytree(ROOT / "geomix", folder / "geomix", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(WORDS, folder / "words", ignore=shutil.ignore_patterns("__pycache__"))
    table = folder / "geomix" / "domains.py"
    line = '    "words": "Texts to the same texts with labels.",\n'
    table.write_text(table.read_text("utf-8").replace("DOMAINS = {\n", f"DOMAINS = {{\n{line}"), "utf-8")
    draw = random.Random(0)
    (folder / "texts.txt").write_text("\n".join(sentence(draw) for _ in range(80)), "utf-8")
    (folder / "plain.txt").write_text("the w\n12 w\n", "utf-8")
    return folder


def test_a_new_domain_trains_evaluates_and_labels(place):
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", VERBS], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, again, *figures = done.stdout.splitlines()
    assert (file, again) == ("run/tiny.safetensors", "again/tiny.safetensors")
    assert json.loads("\n".join(figures))["oa"] == 1
    assert (place / "out" / "plain.txt").read_text("utf-8") == "the/word w/word\n12/number w/unit\n"


def lines_of(file):
    return [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]


def test_a_new_domain_needs_150_lines_besides_imports_and_copies_none_of_them():
    """A copy is lines that stand together; a signature that the core prescribes stands alone."""
    own = [
        line
        for file in WORDS.glob("*.py")
        for line in lines_of(file)
        if not line.startswith(("from", "import"))
    ]
    assert len(own) <= 150
    for domain in DOMAINS:
        for file in (ROOT / domain).rglob("*.py"):
            match = SequenceMatcher(None, own, lines_of(file), autojunk=False).find_longest_match()
            assert match.size <= 3, f"{file}: {own[match.a : match.a + match.size]}"
