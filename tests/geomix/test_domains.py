import importlib

import pytest

from geomix import domains
from geomix.domains import DOMAINS, domain_folder, installed_domains, room
from geomix.errors import ConfigError, MissingPackageError


def test_every_domain_is_ours():
    assert [name for name, _ in installed_domains()] == list(DOMAINS)
    assert all((folder / "py.typed").is_file() for _, folder in installed_domains())


def test_an_unknown_domain_is_an_error():
    with pytest.raises(ConfigError, match=r"unknown domain 'sit'; did you mean 'sits'\?"):
        room("sit", "model")


def test_a_package_that_shadows_a_domain_is_named(monkeypatch, tmp_path):
    (tmp_path / "sits").mkdir()
    for file in ("__init__", "model"):
        (tmp_path / "sits" / f"{file}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "sits", raising=False)
    monkeypatch.setattr(domains, "packages_distributions", lambda: {"sits": ["sits", "geomix"]})
    assert domain_folder("sits") is None
    with pytest.raises(MissingPackageError, match="'sits' is taken by sits, .*environment of its own"):
        room("sits", "model")


def test_a_package_that_overwrote_a_domain_is_named(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'sits\.nothing'"):
        room("sits", "nothing")
    monkeypatch.setattr(domains, "packages_distributions", lambda: {"sits": ["sits", "geomix"]})
    with pytest.raises(MissingPackageError, match="taken by sits"):
        room("sits", "nothing")
