"""Every configuration that ships can be read, and the tiny one of each domain trains a step."""

import pytest

from geomix.checkpoint import read_card
from geomix.config import config_folder, list_configs
from geomix.domains import DOMAINS, room
from geomix.learn.experiment import train

NAMES = [(domain, name) for domain in DOMAINS for name in list_configs(domain)]


def experiment(domain, name):
    return getattr(room(domain, "task.experiment"), f"{domain.capitalize()}Experiment")(name)


@pytest.mark.parametrize(("domain", "name"), NAMES, ids=map("/".join, NAMES))
def test_every_configuration_can_be_read(domain, name):
    experiment(domain, name)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_tiny_configuration_trains_a_step(domain, tmp_path):
    if "tiny" not in list_configs(domain):
        pytest.skip(f"{domain} is being built: it has no tiny.yaml yet")
    one_step = {"train.epochs": 1, "train.epoch_steps": 1, "train.batch_size": 2}
    config = experiment(domain, "tiny").config.changed(one_step)
    file = train(experiment(domain, config), tmp_path, device="cpu")
    assert read_card(file).domain == domain


def test_no_configuration_lies_where_nobody_finds_it():
    files = {
        path.relative_to(config_folder()).as_posix() for path in config_folder().rglob("*") if path.is_file()
    }
    assert files == {f"{domain}/{name}.yaml" for domain, name in NAMES}
