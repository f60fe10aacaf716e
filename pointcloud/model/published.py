"""Published PTv3 checkpoints, so that the same weights give the same scores here."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geomix.checkpoint import Card, ClassInfo, Source
from geomix.errors import CheckpointError, MissingFileError
from pointcloud.data.labels import SCANNET, SEMANTICKITTI
from pointcloud.model.config import ModelConfig
from pointcloud.model.network import PPoMv3

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
    patch_size: int = 1024,
    head_dim: int = 16,
    inputs: Mapping[str, Any] | None = None,
    classes: tuple[ClassInfo, ...] | None = None,
) -> tuple[PPoMv3, Card]:
    """Read a PTv3 checkpoint of the published code into our network with attention.

    Args:
        path: a .pth file; only tensors are unpickled.
        published: window as the published code does, so that the scores are the same; otherwise even windows
            without borrowed points.
        patch_size: voxels of a window; the weights do not tell.
        head_dim: channels of an attention head; the weights do not tell.
        inputs: the preprocessing; None: that of ScanNet (6 features, 20 classes) or SemanticKITTI (4, 19).
        classes: names and ids of the outputs; None: those of the same data sets.

    Returns:
        The network in eval mode and its card, ready for `save_model`.

    Raises:
        MissingFileError: if the file is not there.
        CheckpointError: if it holds something else, or its preprocessing must be given.
    """
    weights = _read(Path(path))
    sizes = _sizes(weights, Path(path))
    config = ModelConfig(
        **sizes, mixer={"name": "attention"}, patch_size=patch_size, head_dim=head_dim, published=published
    )
    known = _DATASETS.get((config.in_channels, config.classes))
    if known is None and (inputs is None or classes is None):
        raise CheckpointError(
            f"{path}: takes {config.in_channels} features and has {config.classes} classes, which is neither "
            "ScanNet nor SemanticKITTI; give its inputs and classes"
        )
    name, table, preprocessing, licence = known or ("unknown", [], {}, "unknown")
    model = PPoMv3(config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: is no plain PTv3: {str(error).splitlines()[1].strip()}") from None
    card = Card(
        domain="pointcloud",
        name=Path(path).stem,
        model=config.model_dump(mode="json"),
        classes=classes or tuple(ClassInfo(**one) for one in table),
        inputs=dict(inputs or preprocessing),
        data=(Source(source=f"{name}, imported from {Path(path).name}", licence=licence),),
    )
    return model.eval(), card


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever a damaged or hostile pickle raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: cannot be read as weights alone: {reason}") from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(one, Tensor) for one in content.values()):
        raise CheckpointError(f"{path}: holds no state_dict of tensors")
    weights = {our_name(name): value for name, value in content.items()}
    for name, value in weights.items():
        # spconv 1 stored [k, k, k, in, out], spconv 2 stores [out, k, k, k, in].
        if value.ndim == 5 and value.shape[0] == value.shape[1] == value.shape[2] != value.shape[3]:
            weights[name] = value.permute(4, 0, 1, 2, 3).contiguous()
    return weights


def _sizes(weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Depths and channels, from names and shapes."""
    if "stem.weight" not in weights or "head.weight" not in weights:
        raise CheckpointError(f"{path}: is no PTv3 segmentor: embedding.stem.conv or seg_head is missing")
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
