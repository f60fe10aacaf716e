"""A batch computed in parts by threads that each own a copy of the model and meet once a step.

Threads inside the operators meet hundreds of times a step: on two cores that other programs use as well, they
wait for each other more than they work. Parts meet once.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]


class _Known(torch.autograd.Function):
    """A loss whose gradients have been computed already."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Any:
        return None, None, *(gradient * grad[0] for gradient in ctx.gradients)


class Shards:
    """Computes a loss and its gradients in parts, one thread each.

    The first part runs on the model itself, so its batch norms follow that part; the others run on copies.

    Args:
        model: what is trained.
        count: how many parts, 2 or more.
    """

    def __init__(self, model: nn.Module, count: int) -> None:
        self._model = model
        self._copies = [deepcopy(model) for _ in range(count - 1)]
        self._pool = ThreadPoolExecutor(count)

    def loss(self, function: Loss, parts: Sequence[Any], weights: Sequence[float]) -> Tensor:
        """Add up the weighted losses of the parts; a backward pass gives their gradients.

        Args:
            function: the loss of a model on a part.
            parts: at most `count` of them.
            weights: what each part counts, such as its share of the lines.
        """
        models = [self._model, *self._copies][: len(parts)]
        with torch.no_grad():
            for copy in models[1:]:
                copy.train(self._model.training)
                for mine, theirs in zip(copy.parameters(), self._model.parameters(), strict=True):
                    mine.copy_(theirs)
        work = [
            self._pool.submit(_gradients, function, model, part, weight)
            for model, part, weight in zip(models, parts, weights, strict=True)
        ]
        results = [part.result() for part in work]
        total = torch.stack([loss for loss, _ in results]).sum()
        gradients = [torch.stack(same).sum(0) for same in zip(*(grads for _, grads in results), strict=True)]
        parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        known: Tensor = _Known.apply(total, gradients, *parameters)  # type: ignore[no-untyped-call]
        return known


def _gradients(function: Loss, model: nn.Module, part: Any, weight: float) -> tuple[Tensor, list[Tensor]]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # A thread of its own starts without the modes of its caller.
    with torch.enable_grad():
        loss = weight * function(model, part)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return loss.detach(), list(gradients)
