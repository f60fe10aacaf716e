"""Published HTR-VT checkpoints as model files of geomix.

Source: names and shapes of https://github.com/YutingLi0606/HTR-VT; no code of it is used.
"""

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from geomix.checkpoint import Card, Source, save_model
from geomix.errors import CheckpointError, FormatError, MissingFileError
from htr.charset import Charset
from htr.model.network import LineRecogniser, ModelConfig, StemConfig, published_position

HEADS = 6
"""Attention heads of all published HTR-VT models; a checkpoint does not tell."""

_CONTAINERS = ("state_dict_ema", "model_ema", "ema", "model", "state_dict")
_SKIPPED = ("mask_token", "pos_embed")
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
        licence: of the weights, for the card.
        overwrite: whether an existing file is replaced.

    Raises:
        MissingFileError: if the checkpoint is not there.
        FormatError: if it is not a PyTorch file of tensors.
        CheckpointError: if it is not an HTR-VT, or the charset has another number of characters.
    """
    weights = _read(Path(path))
    config = _config(weights, str(path))
    if config.classes != len(charset):
        raise CheckpointError(
            f"{path}: has {config.classes} classes, so {config.classes - 1} characters and the blank; "
            f"the charset has {len(charset) - 1} characters"
        )
    model = LineRecogniser(config)
    renamed = {_rename(key, str(path)): value for key, value in weights.items() if key not in _SKIPPED}
    try:
        model.load_state_dict(renamed)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise CheckpointError(f"{path}: is not an HTR-VT that geomix knows: {reason}") from None
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


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such checkpoint")
    try:
        with warnings.catch_warnings():
            # A pickle that the safe reader only half knows: it then reads it or says why not.
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FormatError(f"{path}: is no PyTorch file of tensors alone: {reason}") from None
    for key in _CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path}: holds no state dict of tensors")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def _config(weights: Mapping[str, Tensor], path: str) -> ModelConfig:
    try:
        classes, dim = weights["head.weight"].shape
        hidden = weights["blocks.0.mlp.fc1.weight"].shape[0]
    except (KeyError, ValueError):
        raise CheckpointError(f"{path}: is not an HTR-VT: it has no head or no blocks") from None
    depth = len({key.split(".")[1] for key in weights if key.startswith("blocks.")})
    _check_position(weights.get("pos_embed"), dim, path)
    return ModelConfig(
        classes=classes,
        height=64,
        stem=StemConfig(kind="resnet"),
        dim=dim,
        depth=depth,
        mixer={"name": "attention", "heads": HEADS, "qkv_bias": True},
        mlp_ratio=hidden / dim,
        norm_eps=1e-6,
        norms="published",
    )


def _check_position(table: Tensor | None, dim: int, path: str) -> None:
    """Refuse a checkpoint whose fixed position table is another than the one that is computed here."""
    if table is None:
        return
    token = torch.arange(table.shape[1])
    across = max(1, table.shape[1] // 16)
    ours = published_position(torch.stack([token % across, token // across], dim=1), dim)
    if table.shape[1:] != ours.shape or not torch.allclose(table[0].float(), ours, atol=1e-4):
        raise CheckpointError(f"{path}: its position table is not that of the published HTR-VT")


def _rename(key: str, path: str) -> str:
    for pattern, ours in _RULES:
        renamed, count = re.subn(pattern, ours, key)
        if count:
            # Stages count from 1 there and from 0 here.
            return re.sub(r"stages\.(\d)", lambda found: f"stages.{int(found[1]) - 1}", renamed)
    raise CheckpointError(f"{path}: holds {key!r}, which an HTR-VT does not have")
