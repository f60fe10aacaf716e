"""Every configuration that ships can be read, and the tiny one of each domain trains a step."""

import pytest

from geomix.checkpoint import read_card
from geomix.config import config_folder, list_configs, load_config
from geomix.domains import DOMAINS, room
from tests.helpers import ROOT

NAMES = [(domain, name) for domain in DOMAINS for name in list_configs(domain)]


def load(domain, name):
    place = "task.experiment" if (ROOT / domain / "task").is_dir() else "experiment"
    return load_config(name, domain, getattr(room(domain, place), f"{domain.capitalize()}Config"))


@pytest.mark.parametrize(("domain", "name"), NAMES, ids=map("/".join, NAMES))
def test_every_configuration_can_be_read(domain, name):
    load(domain, name)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_tiny_configuration_trains_a_step(domain, tmp_path):
    if "tiny" not in list_configs(domain):
        pytest.skip(f"{domain} is being built: it has no tiny.yaml yet")
    config = load(domain, "tiny")
    one_step = config.train.model_copy(update={"epochs": 1, "epoch_steps": 1, "batch_size": 2})
    file = room(domain, "task").train(config.model_copy(update={"train": one_step}), tmp_path, device="cpu")
    assert read_card(file).domain == domain


def test_no_configuration_lies_where_nobody_finds_it():
    files = {
        path.relative_to(config_folder()).as_posix() for path in config_folder().rglob("*") if path.is_file()
    }
    assert files == {f"{domain}/{name}.yaml" for domain, name in NAMES}
