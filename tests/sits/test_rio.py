import tomllib
from importlib import import_module

import rasterio
from click.testing import CliRunner

from sits.cli.rio import geomix
from tests.helpers import ROOT
from tests.sits.making import model_file, write_folder


def test_rio_maps_a_series(tmp_path):
    files = [str(file) for file in write_folder(tmp_path / "s2")]
    out = tmp_path / "map.tif"
    arguments = [*files, "--model", str(model_file(tmp_path)), "-o", str(out)]
    done = CliRunner().invoke(geomix, arguments)
    assert done.exit_code == 0, done.output
    with rasterio.open(out) as found:
        assert found.shape == (30, 26)
    again = CliRunner().invoke(geomix, arguments)
    assert again.exit_code == 1
    assert "exists already" in again.output


def test_rio_finds_the_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["rasterio.rio_commands"]["geomix"].partition(":")
    assert getattr(import_module(module), name) is geomix
