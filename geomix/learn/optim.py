"""The optimiser and its schedule: AdamW on two groups of parameters, with a warm-up and a cosine."""

import math

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR


def adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> AdamW:
    """AdamW with weight decay on the weight matrices alone.

    Biases, norms, embeddings, tokens and polynomial coefficients do not mix channels, so decay would only
    weaken the signal.
    """
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            place, _, own_name = name.rpartition(".")
            is_matrix = _mixes(model.get_submodule(place), own_name, parameter)
            (decayed if is_matrix else kept).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=learning_rate)


def _mixes(module: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix that mixes channels: a `weight`, or one of the mixers' `w_*`."""
    is_weight = name == "weight" or name.startswith("w_")
    return is_weight and parameter.ndim > 1 and not isinstance(module, nn.Embedding)


def warmup_cosine(optimizer: Optimizer, warmup_steps: int, total_steps: int) -> LambdaLR:
    """Raise the learning rate linearly over the warm-up, then lower it along half a cosine to 0."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))

    return LambdaLR(optimizer, factor)
