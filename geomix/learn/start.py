"""Where a training starts: with fresh weights, or with those of a trained model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from geomix.checkpoint import load_model
from geomix.errors import CheckpointError

FRESH = "none"
"""The name of no model: the training starts with fresh weights, whatever the configuration says."""


def starting_model(
    start: nn.Module | str | Path | None, configured: str | None, domain: str
) -> nn.Module | None:
    """Load the model whose weights a training starts from.

    Args:
        start: the model, its name or file; `none` for fresh weights; None for what the configuration says.
        configured: what the configuration says; None for fresh weights.
        domain: the domain of the model.

    Returns:
        The model with its card; None for fresh weights.
    """
    if isinstance(start, nn.Module):
        return start
    name = configured if start is None else start
    return None if name is None or str(name) == FRESH else load_model(name, domain=domain)


def take_weights(
    model: nn.Module,
    before: nn.Module,
    ours: Sequence[str] = (),
    theirs: Sequence[str] = (),
    by_class: Mapping[str, int] | None = None,
) -> None:
    """Give a fresh model the weights of a trained one; a class that both know keeps its own rows.

    Args:
        model: fresh; of the shape of `before` but for the number of classes.
        before: the trained model.
        ours: names of the classes of `model`, or its characters, in the order of its outputs, K.
        theirs: names of the classes of `before` in the order of its outputs.
        by_class: which weights have one slice per class: their name -> the dimension that counts the classes.
            In these, the slices of classes that `before` does not know stay fresh.

    Raises:
        CheckpointError: if any other weight is missing in `before`, unknown to `model` or of another shape.
    """
    by_class = by_class or {}
    mine, trained = model.state_dict(), before.state_dict()
    for name in sorted({*mine, *trained}):
        if name not in mine or name not in trained:
            whose = "the model to start from" if name not in trained else "the model of the configuration"
            raise CheckpointError(f"{whose} has no weight {name!r}; start from a model of the same shape")
        if name not in by_class and mine[name].shape != trained[name].shape:
            raise CheckpointError(
                f"weight {name!r} has the shape {list(trained[name].shape)} in the model to start from, "
                f"{list(mine[name].shape)} here; start from a model of the same shape"
            )
    shared = [name for name in ours if name in theirs]
    rows = torch.tensor([list(ours).index(name) for name in shared], dtype=torch.int64)
    their_rows = torch.tensor([list(theirs).index(name) for name in shared], dtype=torch.int64)
    with torch.no_grad():
        for name, value in mine.items():
            if name in by_class:
                _copy_rows(value, rows, trained[name].to(value), their_rows, by_class[name])
            else:
                value.copy_(trained[name])


def _copy_rows(target: Tensor, rows: Tensor, source: Tensor, their_rows: Tensor, dim: int) -> None:
    target.index_copy_(dim, rows.to(target.device), source.index_select(dim, their_rows.to(source.device)))
