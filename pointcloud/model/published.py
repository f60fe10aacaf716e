"""Published PTv3 checkpoints, so that the same weights give the same scores here."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from geomix.checkpoint import Card, ClassInfo, Source
from geomix.errors import CheckpointError, ConfigError
from geomix.published import load_weights, read_weights
from pointcloud.data.labels import SCANNET, SEMANTICKITTI
from pointcloud.model.config import ModelConfig
from pointcloud.model.network import PPoMv3

log = logging.getLogger(__name__)

PATCH_SIZE, HEAD_DIM = 1024, 16
"""Voxels of a window and channels of an attention head of all published PTv3; the weights do not tell."""

# Names of the published code (backbone of Pointcept's segmentor) and ours, applied in turn.
_NAMES = (
    (r"^(module\.)?", ""),
    (r"^backbone\.", ""),
    (r"^embedding\.stem\.conv\.", "stem."),
    (r"^embedding\.stem\.norm\.", "stem_norm."),
    (r"^enc\.enc(\d+)\.", r"encoder.\1."),
    (r"^dec\.dec(\d+)\.", r"decoder.\1."),
    (r"\.block(\d+)\.", r".blocks.\1."),
    (r"\.down\.norm\.0\.", ".down.norm."),
    (r"\.up\.proj\.0\.", ".up.proj."),
    (r"\.up\.proj\.1\.", ".up.norm."),
    (r"\.up\.proj_skip\.0\.", ".up.proj_skip."),
    (r"\.up\.proj_skip\.1\.", ".up.norm_skip."),
    (r"\.cpe\.0\.", ".code.conv."),
    (r"\.cpe\.1\.", ".code.proj."),
    (r"\.cpe\.2\.", ".code.norm."),
    (r"\.norm([12])\.0\.", r".norm\1."),
    (r"\.attn\.qkv\.", ".mixer.qkv."),
    (r"\.attn\.proj\.", ".mixer.out."),
    (r"\.mlp\.0\.fc1\.", ".mlp.0."),
    (r"\.mlp\.0\.fc2\.", ".mlp.2."),
    (r"^seg_head\.", "head."),
)

_ADAPTIVE = re.compile(r"modulation|norm\d?\.0\.norm\.|norm\.norm\.")

_DATASETS: dict[tuple[int, int], tuple[str, list[dict[str, Any]], dict[str, Any], str]] = {
    (6, 20): (
        "ScanNet v2", SCANNET, {"voxel": 0.02, "features": ["color", "normal"]}, "ScanNet terms of use",
    ),
    (4, 19): (
        "SemanticKITTI", SEMANTICKITTI,
        {"voxel": 0.05, "features": ["sensor", "intensity"], "intensity": "file"}, "CC BY-NC-SA 4.0",
    ),
}  # fmt: skip


def our_name(name: str) -> str:
    """Our name of a published weight."""
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def import_checkpoint(
    path: str | Path,
    *,
    published: bool = True,
    patch_size: int | None = None,
    head_dim: int | None = None,
    color: Literal["unit", "signed"] | None = None,
    inputs: Mapping[str, Any] | None = None,
    classes: tuple[ClassInfo, ...] | None = None,
) -> tuple[PPoMv3, Card]:
    """Read a PTv3 checkpoint of the published code into our network with attention.

    Args:
        path: a .pth file; only tensors are unpickled.
        published: window as the published code does, so that the scores are the same; otherwise even windows
            without borrowed points.
        patch_size: voxels of a window. The weights do not tell; None takes 1,024 with a warning.
        head_dim: channels of an attention head. The weights do not tell; None takes 16 with a warning.
        color: scale of the colours of ScanNet: "unit" from 0 to 1, "signed" from -1 to 1 as in Pointcept up
            to 1.5.2. The weights do not tell; None takes "unit" with a warning.
        inputs: the preprocessing; None: that of ScanNet (6 features, 20 classes) or SemanticKITTI (4, 19).
        classes: names and ids of the outputs; None: those of the same data sets.

    Returns:
        The network in eval mode and its card, ready for `save_model`.

    Raises:
        MissingFileError: if the file is not there.
        CheckpointError: if it holds something else, or its preprocessing must be given.
    """
    path = Path(path)
    weights = read_weights(path)
    guessed = patch_size is None or head_dim is None
    config = _config(weights, path, patch_size or PATCH_SIZE, head_dim or HEAD_DIM, published)
    if guessed:
        log.warning(
            "%s does not tell windows and heads; %d voxels and %d channels are taken",
            path,
            config.patch_size,
            config.head_dim,
        )
    known = _DATASETS.get((config.in_channels, config.classes))
    if known is None and (inputs is None or classes is None):
        raise CheckpointError(
            f"{path}: takes {config.in_channels} features and has {config.classes} classes, which is neither "
            "ScanNet nor SemanticKITTI; give its inputs and classes"
        )
    name, table, preprocessing, licence = known or ("unknown", [], {}, "unknown")
    if inputs is None and "color" in preprocessing["features"]:
        if color is None:
            log.warning(
                "%s does not tell the scale of its colours; 0 to 1 is taken. For weights of Pointcept up to "
                "1.5.2 give color signed, -1 to 1",
                path,
            )
        preprocessing = preprocessing | {"color": color or "unit"}
    model = PPoMv3(config)
    load_weights(model, weights, _renamed, path, "a plain PTv3")
    card = Card(
        domain="pointcloud",
        name=path.stem,
        model=config.model_dump(mode="json"),
        classes=classes or tuple(ClassInfo(**one) for one in table),
        inputs=dict(inputs or preprocessing),
        data=(Source(source=f"{name}, imported from {path.name}", licence=licence),),
    )
    return model.eval(), card


def _renamed(name: str, value: Tensor) -> tuple[str, Tensor]:
    """Our name and form of a published tensor."""
    # spconv 1 stored [k, k, k, in, out], spconv 2 stores [out, k, k, k, in].
    if value.ndim == 5 and value.shape[0] == value.shape[1] == value.shape[2] != value.shape[3]:
        value = value.permute(4, 0, 1, 2, 3).contiguous()
    return our_name(name), value


def _config(
    published_weights: Mapping[str, Tensor], path: Path, patch_size: int, head_dim: int, published: bool
) -> ModelConfig:
    """The architecture, from names and shapes."""
    weights = dict(_renamed(name, value) for name, value in published_weights.items())
    adaptive = [name for name in published_weights if _ADAPTIVE.search(name)]
    if adaptive:
        raise CheckpointError(
            f"{path}: is not a plain PTv3: {adaptive[0]!r} is of a norm that depends on the data set (PDNorm)"
        )
    if "stem.weight" not in weights or "head.weight" not in weights:
        raise CheckpointError(f"{path}: is no PTv3 segmentor: embedding.stem.conv or seg_head is missing")
    if not any(name.startswith("decoder.") for name in weights):
        raise CheckpointError(f"{path}: is no PTv3 segmentor: it has no decoder (cls_mode)")
    try:
        return ModelConfig(
            **_sizes(weights),
            mixer={"name": "attention"},
            patch_size=patch_size,
            head_dim=head_dim,
            published=published,
        )
    except (ConfigError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{path}: is not a PTv3 that geomix knows: {reason}") from None


def _sizes(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Depths and channels, from names and shapes."""
    stem = weights["stem.weight"]

    def blocks(part: str) -> list[list[int]]:
        """Channels of the blocks of each stage."""
        found: dict[int, dict[int, int]] = {}
        for name, value in weights.items():
            match = re.match(rf"{part}\.(\d+)\.blocks\.(\d+)\.norm1\.weight$", name)
            if match:
                found.setdefault(int(match[1]), {})[int(match[2])] = len(value)
        return [list(found[stage].values()) for stage in sorted(found)]

    encoder, decoder = blocks("encoder"), blocks("decoder")
    return {
        "in_channels": stem.shape[4],
        "classes": len(weights["head.weight"]),
        "stem_kernel": stem.shape[1],
        "encoder_depths": tuple(len(stage) for stage in encoder),
        "encoder_channels": tuple(stage[0] for stage in encoder),
        "decoder_depths": tuple(len(stage) for stage in decoder),
        "decoder_channels": tuple(stage[0] for stage in decoder),
    }
