"""What README and docs tell a reader to type, works: every `sh` and `python` block, page by page, in order.

Blocks of another kind (`console`, `text`) are not run: set-up, and commands on data of the reader's own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geomix.domains import DOMAINS
from tests.helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(page, language, code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (language, code) in enumerate(BLOCK.findall(page.read_text("utf-8")), start=1)
]
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder a page: later blocks use what earlier ones wrote."""
    root = tmp_path_factory.mktemp("reader")

    def folder(page):
        (root / page.stem).mkdir(exist_ok=True)
        return root / page.stem

    return folder


def skip_what_is_not_there(code):
    for domain in DOMAINS:
        if f"geomix {domain} " in code and not list((ROOT / domain).glob("cli*")):
            pytest.skip(f"{domain} is being built: it has no command line yet")


@pytest.mark.parametrize(("page", "language", "code"), BLOCKS)
def test_the_page_s_commands_run(page, language, code, folder):
    skip_what_is_not_there(code)
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else [sys.executable, "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder(page), env=os.environ | {"PATH": path}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_s_links_lead_somewhere(page):
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def test_every_page_of_the_docs_is_in_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in readme] == []
