"""Published HTR-VT checkpoints as model files of geomix.

Source: names and shapes of https://github.com/YutingLi0606/HTR-VT; no code of it is used.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from geomix.checkpoint import Card, Source, save_model
from geomix.errors import CheckpointError
from geomix.published import load_weights, read_weights
from htr.charset import Charset
from htr.model.network import LineRecogniser, ModelConfig, StemConfig, published_position

log = logging.getLogger(__name__)

HEADS = 6
"""Attention heads of all published HTR-VT models."""

_TABLES = ("state_dict_ema", "model_ema", "ema", "model", "state_dict")
_SKIPPED = ("mask_token", "pos_embed")
"""What only the training reads, and what is computed here and checked by `_check_position`."""
_RULES = (
    (r"^patch_embed\.conv1\.", "stem.enter.conv."),
    (r"^patch_embed\.bn1\.", "stem.enter.norm."),
    (r"^patch_embed\.layer(\d)\.(\d)\.conv1\.", r"stem.stages.\1.\2.first.conv."),
    (r"^patch_embed\.layer(\d)\.(\d)\.bn1\.", r"stem.stages.\1.\2.first.norm."),
    (r"^patch_embed\.layer(\d)\.(\d)\.conv2\.", r"stem.stages.\1.\2.second.conv."),
    (r"^patch_embed\.layer(\d)\.(\d)\.bn2\.", r"stem.stages.\1.\2.second.norm."),
    (r"^patch_embed\.layer(\d)\.(\d)\.downsample\.", r"stem.stages.\1.\2.shortcut."),
    (r"^blocks\.(\d+)\.attn\.qkv\.", r"blocks.\1.mixer.qkv."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"blocks.\1.mixer.out."),
    (r"^blocks\.(\d+)\.mlp\.fc1\.", r"blocks.\1.mlp.0."),
    (r"^blocks\.(\d+)\.mlp\.fc2\.", r"blocks.\1.mlp.3."),
    (r"^(blocks\.\d+\.norm[12]|norm|head)\.", r"\1."),
)


def import_htr_vt(
    path: str | Path,
    output: str | Path,
    charset: Charset,
    *,
    name: str | None = None,
    heads: int | None = None,
    licence: str = "unknown",
    overwrite: bool = False,
) -> LineRecogniser:
    """Convert a published HTR-VT checkpoint; the norms that it was trained with are kept.

    Args:
        path: the checkpoint, a PyTorch file of tensors alone.
        output: the model file to write, .safetensors.
        charset: its characters in the order of its classes. The checkpoint does not hold them: HTR-VT
            collects them from its training labels.
        name: of the model; that of `output` if not given.
        heads: number of attention heads. The weights do not tell; None takes 6, as published, with a warning.
        licence: of the weights, for the card.
        overwrite: whether an existing file is replaced.

    Raises:
        MissingFileError: if the checkpoint is not there.
        CheckpointError: if it is no PyTorch file of tensors, or no HTR-VT, or the charset has another number
            of characters.
    """
    model = load_htr_vt(Path(path), heads)
    config = model.config
    if config.classes != len(charset):
        raise CheckpointError(
            f"{path}: has {config.classes} classes, so {config.classes - 1} characters and the blank; "
            f"the charset has {len(charset) - 1} characters"
        )
    card = Card(
        domain="htr",
        name=name or Path(output).stem,
        model=config.model_dump(mode="json"),
        charset=charset.characters,
        inputs={"height": 64, "contrast": False},
        data=(Source(source=f"imported from {Path(path).name}", licence=licence),),
        limits={"norms": "as published: the padding behind a line changes its result slightly"},
    )
    save_model(model, card, output, overwrite)
    return model.eval()


def load_htr_vt(path: Path, heads: int | None = None) -> LineRecogniser:
    """Build the network of a checkpoint with its weights; arguments and errors as for `import_htr_vt`."""
    weights = read_weights(path, _TABLES)
    model = LineRecogniser(_config(weights, str(path), heads))
    used = {key: value for key, value in weights.items() if key not in _SKIPPED}
    load_weights(model, used, _rename, path, "an HTR-VT")
    return model


def _config(weights: Mapping[str, Tensor], path: str, heads: int | None) -> ModelConfig:
    try:
        classes, dim = weights["head.weight"].shape
        hidden = weights["blocks.0.mlp.fc1.weight"].shape[0]
    except (KeyError, ValueError, IndexError):
        raise CheckpointError(f"{path}: is not an HTR-VT: it has no head or no blocks") from None
    if heads is None:
        heads = HEADS
        log.warning("%s does not tell the attention heads; %d, as published, are taken", path, heads)
    if dim % 4 or heads < 1 or dim % heads:
        raise CheckpointError(
            f"{path}: is not an HTR-VT: its {dim} channels do not divide into {heads} heads"
        )
    depth = len({key.split(".")[1] for key in weights if key.startswith("blocks.")})
    _check_position(weights.get("pos_embed"), dim, path)
    return ModelConfig(
        classes=classes,
        height=64,
        stem=StemConfig(kind="resnet"),
        dim=dim,
        depth=depth,
        mixer={"name": "attention", "heads": heads, "qkv_bias": True},
        mlp_ratio=hidden / dim,
        norm_eps=1e-6,
        norms="published",
    )


def _check_position(table: Tensor | None, dim: int, path: str) -> None:
    """Refuse a checkpoint whose fixed position table is another than the one that is computed here."""
    if table is None:
        return
    if table.ndim != 3:
        raise CheckpointError(f"{path}: its position table has shape {list(table.shape)}, not [1, N, {dim}]")
    token = torch.arange(table.shape[1])
    across = max(1, table.shape[1] // 16)
    ours = published_position(torch.stack([token % across, token // across], dim=1), dim)
    if table.shape[1:] != ours.shape or not torch.allclose(table[0].float(), ours, atol=1e-4):
        raise CheckpointError(f"{path}: its position table is not that of the published HTR-VT")


def _rename(key: str, value: Tensor) -> tuple[str, Tensor] | None:
    """Our name of a published tensor; None for an unknown one."""
    for pattern, ours in _RULES:
        renamed, count = re.subn(pattern, ours, key)
        if count:
            # Stages count from 1 there and from 0 here.
            return re.sub(r"stages\.(\d)", lambda found: f"stages.{int(found[1]) - 1}", renamed), value
    return None
