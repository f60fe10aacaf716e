"""The wheel holds what it should and nothing else, and works where the repository is not."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from geomix.config import list_configs
from geomix.domains import DOMAINS
from tests.helpers import ROOT

PACKAGES = ("geomix", *DOMAINS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing of an earlier build slips in."""
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", target, source)
    (file,) = target.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment in which the packages come from the wheel and their dependencies from here."""
    site = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", "--no-index", "--target", site, wheel)
    return os.environ | {"PYTHONPATH": str(site), "PATH": f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return [PurePosixPath(name) for name in archive.namelist()]


def test_the_wheel_holds_the_four_packages_alone(wheel):
    tops = {path.parts[0] for path in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES}


def test_the_wheel_holds_every_file_of_the_packages_and_every_config(wheel):
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {f"geomix/configs/{domain}/{name}.yaml" for domain in DOMAINS for name in list_configs(domain)}
    found = {path.as_posix() for path in names(wheel) if not path.parts[0].endswith(".dist-info")}
    assert found == wanted
    assert wheel.stat().st_size < 60e6


def test_the_wheel_carries_the_licence(wheel):
    assert any(path.name == "LICENSE" for path in names(wheel))


def test_an_installed_geomix_is_not_the_repository(installed, tmp_path):
    code = "import geomix, sits\nfor thing in (geomix, sits): print(thing.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=installed, capture_output=True, check=True
    )
    paths = [Path(line) for line in done.stdout.decode().splitlines()]
    assert len(paths) == 2
    assert all(ROOT not in path.parents for path in paths)


@pytest.mark.parametrize("arguments", [["--version"], ["info"], ["config", "list"]], ids=" ".join)
def test_the_command_runs_outside_the_repository(installed, tmp_path, arguments):
    done = subprocess.run(
        ["geomix", *arguments], cwd=tmp_path, env=installed, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.strip()


def test_the_main_job_runs_outside_the_repository(installed, tmp_path):
    if not (ROOT / "sits" / "cli.py").exists() and not (ROOT / "sits" / "cli").exists():
        pytest.skip("sits is being built: it has no command line yet")
    done = subprocess.run(
        ["geomix", "sits", "demo", "-o", "demo", "--size", "64"],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert list((tmp_path / "demo").rglob("*.tif"))
