"""Published TSViT checkpoints become model files: names and shapes mapped, nothing unpickled but tensors.

Source: https://github.com/michaeltrs/DeepSatModels (Apache-2.0), models/TSViT/TSViTdense.py, class TSViT.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from geomix.checkpoint import Card, ClassInfo, Source, save_model
from geomix.errors import CheckpointError
from geomix.published import load_weights, read_weights
from sits.data.inputs import Inputs
from sits.io.pastis import BANDS, CLASSES
from sits.model.config import ModelConfig
from sits.model.tsvipom import TSViPoM

log = logging.getLogger(__name__)

# The constants of the published training, which are those of fold 1 of PASTIS for all five experiments.
_MEAN = (1165.93982, 1375.65344, 1429.21912, 1764.79883, 2719.27319, 3063.61182, 3205.90186, 3319.10962)
_STD = (1942.61562, 1881.92346, 1959.37988, 1867.22400, 1754.58508, 1769.40466, 1784.86060, 1767.71008)
_MEAN_SWIR, _STD_SWIR = (2422.90430, 1639.37036), (1458.96362, 1299.28333)

HEADS = 4
"""Attention heads of all published TSViT."""
_DATES = 60
"""Length to which the published code brings each series: by unmasked zero images, or by cutting."""

_BLOCK = {
    "0.norm": "norm1",
    "0.fn.to_qkv": "mixer.qkv",
    "0.fn.to_out.0": "mixer.out",
    "1.norm": "norm2",
    "1.fn.net.0": "mlp.0",
    "1.fn.net.3": "mlp.3",
}
_NAMES = {
    "to_patch_embedding.1": "embed",
    "to_temporal_embedding_input": "day_table.linear",
    "mlp_head.0": "head.0",
    "mlp_head.1": "head.1",
    "temporal_transformer.norm": "temporal.norm",
    "space_transformer.norm": "spatial.norm",
}
_LAYER = re.compile(r"(temporal|space)_transformer\.layers\.(\d+)\.(.+)")


def import_tsvit(
    file: str | Path,
    output: str | Path,
    name: str | None = None,
    heads: int | None = None,
    overwrite: bool = False,
) -> Card:
    """Turn a checkpoint of the published TSViT for PASTIS into a model file.

    Args:
        file: the checkpoint, as torch saved it; only tensors are read from it.
        output: the .safetensors file to write.
        name: name of the model; by default that of the file.
        heads: number of attention heads. The weights do not tell; None takes 4, as published, with a warning.
        overwrite: replace `output`.

    Returns:
        The card that was written.

    Raises:
        MissingFileError: if the checkpoint is not there.
        CheckpointError: if it holds something else.
    """
    file = Path(file)
    model = load_tsvit(file, heads)
    card = make_card(model.config, name or file.stem)
    save_model(model, card, output, overwrite)
    return card


def load_tsvit(file: Path, heads: int | None = None) -> TSViPoM:
    """Build the network of a checkpoint with its weights; arguments and errors as for `import_tsvit`."""
    weights = read_weights(file)
    try:
        config = config_of(weights, heads)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: is not a TSViT that geomix knows: {error}") from None
    model = TSViPoM(config)
    load_weights(model, weights, _rename, file, "a TSViT")
    return model


def config_of(weights: Mapping[str, Tensor], heads: int | None = None) -> ModelConfig:
    """Read the architecture off the shapes of the published weights.

    Args:
        weights: the tensors by their published names.
        heads: as in `import_tsvit`.

    Raises:
        CheckpointError: if a tensor is missing or the shapes contradict each other.
    """
    try:
        pixels = weights["mlp_head.1.weight"].shape[0]
        dim, inputs = weights["to_patch_embedding.1.weight"].shape
        days = weights["to_temporal_embedding_input.weight"].shape[1]
        places = weights["space_pos_embedding"].shape[1]
        classes = weights["temporal_token"].shape[1]
        inner = weights["temporal_transformer.layers.0.0.fn.to_qkv.weight"].shape[0] // 3
        hidden = weights["temporal_transformer.layers.0.1.fn.net.0.weight"].shape[0]
    except KeyError as error:
        raise CheckpointError(f"{error.args[0]} is missing") from None
    except (IndexError, ValueError):
        raise CheckpointError("its tensors have another number of axes") from None
    if heads is None:
        heads = HEADS
        log.warning(
            "the weights do not tell the number of attention heads: %d, as published, are taken", heads
        )
    patch, side = round(pixels**0.5), round(places**0.5)
    if patch**2 != pixels or side**2 != places or inputs % pixels or inner % heads or days != 366:
        raise CheckpointError(
            f"{pixels} pixels per patch, {places} places, {inputs} inputs, {days} days, "
            f"{inner} attention channels for {heads} heads do not fit together"
        )
    mixer = {"name": "attention", "heads": heads, "head_dim": inner // heads}

    def stage(which: str) -> dict[str, Any]:
        depth = len({m[2] for m in map(_LAYER.fullmatch, weights) if m and m[1] == which})
        return {"depth": depth, "mixer": mixer, "mlp_ratio": hidden / dim}

    return ModelConfig.model_validate(
        {
            "bands": inputs // pixels,
            "classes": classes,
            "dim": dim,
            "patch": patch,
            "temporal": stage("temporal"),
            "spatial": stage("space"),
            "day_code": "table",
            "place_code": "table",
            "tile": side * patch,
            "fill_dates": _DATES,
            "pixel_order": "published",
        }
    )


def make_card(config: ModelConfig, name: str) -> Card:
    """The card of an imported model: the published preprocessing and nomenclature of PASTIS.

    Raises:
        CheckpointError: if the model has other bands or classes.
    """
    if config.bands != len(BANDS) or config.classes != len(CLASSES):
        raise CheckpointError(
            f"a TSViT for {config.bands} bands and {config.classes} classes; only those for PASTIS "
            f"({len(BANDS)} bands, {len(CLASSES)} classes) can be imported"
        )
    inputs = Inputs(
        bands=BANDS,
        level="L2A",
        mean=tuple(value / 10000 for value in _MEAN + _MEAN_SWIR),
        std=tuple(value / 10000 for value in _STD + _STD_SWIR),
        days="year",
    )
    return Card(
        domain="sits",
        name=name,
        model=config.model_dump(mode="json"),
        classes=tuple(ClassInfo(id=i, name=text, color=color) for i, (text, color) in enumerate(CLASSES)),
        inputs={**inputs.model_dump(mode="json"), "patch": config.patch},
        data=(
            Source(
                source="PASTIS, https://github.com/VSainteuf/pastis-benchmark; weights from the user's file",
                licence="etalab-2.0 (data)",
                split={"kind": "pastis", "experiment": 1},
            ),
        ),
        limits={
            "sensor": "Sentinel-2",
            "level": "L2A",
            "region": "metropolitan France",
            "dates": ["2018-09-01", "2019-11-30"],
        },
    )


def _rename(key: str, value: Tensor) -> tuple[str, Tensor] | None:
    """Our name and shape of a published tensor; None for an unknown one."""
    if key in ("temporal_token", "space_pos_embedding"):
        ours = "class_tokens" if key == "temporal_token" else "place_table"
        return (ours, value[0]) if value.ndim == 3 and len(value) == 1 else None
    stem, _, kind = key.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}", value
    layer = _LAYER.fullmatch(stem)
    if layer is None or layer[3] not in _BLOCK:
        return None
    encoder = "spatial" if layer[1] == "space" else "temporal"
    return f"{encoder}.blocks.{layer[2]}.{_BLOCK[layer[3]]}.{kind}", value
