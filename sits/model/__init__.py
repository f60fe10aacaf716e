"""Models that label image time series."""

from collections.abc import Mapping
from typing import Any

from geomix.config import parse_config
from sits.model.codes import DayTable
from sits.model.config import ModelConfig, Stage
from sits.model.encoder import SeriesConfig, SeriesEncoder
from sits.model.fields import FieldsConfig, FieldsModel
from sits.model.tsvipom import TSViPoM

__all__ = [
    "DayTable",
    "FieldsConfig",
    "FieldsModel",
    "ModelConfig",
    "SeriesConfig",
    "SeriesEncoder",
    "Stage",
    "TSViPoM",
    "build_model",
]


def build_model(config: Mapping[str, Any]) -> TSViPoM | FieldsModel | SeriesEncoder:
    """Build the model that a card or a configuration describes.

    Raises:
        ConfigError: if a key is unknown or a value does not fit.
    """
    if config.get("kind") == "fields":
        return FieldsModel(parse_config(FieldsConfig, config, "model"))
    if config.get("kind") == "series":
        return SeriesEncoder(parse_config(SeriesConfig, config, "model"))
    return TSViPoM(parse_config(ModelConfig, config, "model"))
