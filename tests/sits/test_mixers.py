"""Every mixer can be named for any layer of the model and trains a step."""

import pytest

from geomix.checkpoint import read_card
from geomix.config import load_config, parse_config
from geomix.errors import UnsupportedError
from geomix.learn.experiment import train
from sits.task import SitsConfig, SitsExperiment

POM = {"name": "pom"}
SPATIAL = [
    {"name": "attention", "heads": 2},
    {"name": "poly_attention", "heads": 2, "degree": 1},
    {"name": "poly_attention", "heads": 2, "degree": 3},
    {"name": "tree_attention", "heads": 2},
    {"name": "concentration", "shape": [4, 4]},
    {"name": "pom_official"},
]


def config(temporal: dict, spatial: dict) -> SitsConfig:
    plain = load_config("tiny", "sits", SitsConfig).model_dump(mode="json")
    plain["model"]["temporal"]["mixer"] = temporal
    plain["model"]["spatial"]["mixer"] = spatial
    plain["model"] |= {"window": None, "tile": 8}  # concentration knows one size of grid
    plain["train"] |= {"epochs": 1, "epoch_steps": 1, "batch_size": 2}
    plain["data"] |= {"patches": 5, "dates": 5}
    return parse_config(SitsConfig, plain, "test")


@pytest.mark.parametrize("mixer", SPATIAL, ids=lambda mixer: f"{mixer['name']}{mixer.get('degree', '')}")
def test_a_mixer_trains_a_step_in_the_tiny_model(mixer: dict, tmp_path) -> None:
    temporal = POM if mixer["name"] == "concentration" else mixer
    file = train(SitsExperiment(config(temporal, mixer)), tmp_path, device="cpu")
    assert read_card(file).model["spatial"]["mixer"]["name"] == mixer["name"]


def test_concentration_cannot_mix_dates(tmp_path) -> None:
    """Series have ragged dates and no grid of fixed size."""
    with pytest.raises(UnsupportedError, match="built for grids"):
        train(SitsExperiment(config({"name": "concentration", "shape": [15]}, POM)), tmp_path, device="cpu")
