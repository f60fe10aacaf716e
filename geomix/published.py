"""Weights that others published: tensors alone are read, and every name is used or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from geomix.errors import CheckpointError, MissingFileError

Rename = Callable[[str, Tensor], tuple[str, Tensor] | None]
"""Our name and form of a published tensor; None where the published network has no such name."""

TABLES = ("state_dict", "model_state_dict", "model")
"""Under which names training loops keep the weights."""


def read_weights(file: Path, tables: Sequence[str] = TABLES) -> dict[str, Tensor]:
    """Read the tensors of a PyTorch file; nothing in it is executed.

    Args:
        file: what `torch.save` wrote: a state dict, or one beside other things.
        tables: where the state dict may lie; the first that is there is taken.

    Returns:
        The tensors by their names, without the `module.` of parallel training.

    Raises:
        MissingFileError: if the file is not there.
        CheckpointError: if it cannot be read as tensors alone.
    """
    if not file.is_file():
        raise MissingFileError(f"{file}: there is no such checkpoint")
    try:
        with warnings.catch_warnings():
            # A pickle that the safe reader only half knows: it then reads it or says why not.
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever a damaged or hostile pickle raises
        # torch advises to load without safety, which is not the way out here.
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise CheckpointError(
            f"{file}: is no PyTorch file of tensors alone ({reason[:120]}); save its `state_dict()` by itself"
        ) from None
    if isinstance(content, Mapping):
        inner = next((content[key] for key in tables if isinstance(content.get(key), Mapping)), content)
        if inner and all(isinstance(value, Tensor) for value in inner.values()):
            return {str(name).removeprefix("module."): value for name, value in inner.items()}
    raise CheckpointError(f"{file}: holds no state dict of tensors")


def load_weights(
    model: nn.Module, weights: Mapping[str, Tensor], rename: Rename, file: Path, what: str
) -> None:
    """Give a model the published weights.

    Args:
        model: the network of the same architecture.
        weights: the tensors by their published names.
        rename: from published to our names.
        file: named in messages.
        what: the published network, with its article.

    Raises:
        CheckpointError: if a tensor is unknown, missing, of another shape or not finite.
    """

    def refuse(reason: str) -> CheckpointError:
        return CheckpointError(f"{file}: is not {what} that geomix knows: {reason}")

    target = model.state_dict()
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        renamed = rename(name, value)
        if renamed is None or renamed[0] not in target:
            raise refuse(f"it holds {name!r}, which has no place there")
        ours, tensor = renamed
        if ours in found:
            raise refuse(f"{name!r} is a second tensor for {ours!r}")
        if tensor.shape != target[ours].shape:
            raise refuse(f"{name!r} has shape {list(tensor.shape)}, not {list(target[ours].shape)}")
        if not bool(tensor.isfinite().all()):
            raise refuse(f"{name!r} holds numbers that are not finite")
        found[ours] = tensor
    missing = [name for name in target if name not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise refuse(f"nothing in it fills {missing[0]!r}{more}")
    model.load_state_dict(found)
