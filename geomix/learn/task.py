"""A model under training, with its loss and its scores, which each domain adds."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geomix.errors import NonFiniteError
from geomix.learn.config import TrainConfig
from geomix.learn.metrics import scores
from geomix.learn.optim import adamw, warmup_cosine
from geomix.parallel.ranks import Nothing, here, portion, share_buffers, total


class Task(pl.LightningModule):
    """A model under training.

    A domain implements `loss`, `judge` and `scores`. Training stops at the first loss or gradient that is not
    finite, and names the batch. If the configuration says so, a running average of the weights is kept;
    `served` is what is validated and saved.

    Each of several processes computes the loss of its share of a batch, and `weight` turns the gradient into
    that of the whole batch. Batch norms see only the share; their statistics are those of rank 0.
    """

    goal = "loss"
    """The score that chooses the best epoch."""
    higher_is_better = False

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.average = deepcopy(model).requires_grad_(False) if config.ema else None
        self._place = "before the first batch"
        self._averaged_step = 0

    @property
    def served(self) -> nn.Module:
        """The weights that count: their running average where there is one."""
        return self.model if self.average is None else self.average

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The loss of `self.model` on a batch, a scalar."""

    def weight(self, batch: Any) -> float | Tensor:
        """The number that the loss is a mean over, such as that of the samples: how much a share counts."""
        return 1.0

    @abstractmethod
    def judge(self, batch: Any) -> None:
        """Predict a validation batch with `self.served` and add it to the scores."""

    @abstractmethod
    def scores(self) -> dict[str, float]:
        """The scores of all batches that any process judged since the last call."""

    def describe(self, batch: Any) -> str:
        """Name the samples of a batch, for the message about a loss that is not finite."""
        return ""

    def on_train_start(self) -> None:
        """Remember the step at which a resumed run starts."""
        self._averaged_step = self.global_step

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """One step of Lightning's training loop."""
        if isinstance(batch, Nothing):
            # Every weight takes part, because the other processes wait for its gradient.
            idle = torch.stack([0 * weight.sum() for weight in self.model.parameters()]).sum()
            return idle * self._portion(0.0)
        names = self.describe(batch)
        self._place = f"batch {batch_idx} of epoch {self.current_epoch}" + (f" ({names})" if names else "")
        loss = self.loss(batch)
        if not torch.isfinite(loss):
            raise NonFiniteError(
                f"the loss is {loss.item()} at {self._place}; look at that data, or lower the learning rate"
            )
        return loss if here().world == 1 else loss * self._portion(self.weight(batch))

    def _portion(self, weight: float | Tensor) -> Tensor:
        return portion(torch.as_tensor(weight, dtype=torch.float32, device=self.device))

    def on_validation_start(self) -> None:
        """Judge the same model on all processes: their batch norms have seen different samples."""
        share_buffers(self)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradient, and refuse one that would make all weights NaN."""
        limit = float("inf") if self.config.clip is None else self.config.clip
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if not torch.isfinite(norm):
            raise NonFiniteError(
                f"the gradient is {norm.item()} at {self._place}; "
                f"look at that data, or lower the learning rate"
            )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update the running average of the weights."""
        step = self.global_step
        if self.average is None or self.config.ema is None or step == self._averaged_step:
            return
        self._averaged_step = step
        # A young average follows quickly, so that it soon forgets the first weights, which are noise.
        decay = min(self.config.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            for kept, new in zip(
                self.average.state_dict().values(), self.model.state_dict().values(), strict=True
            ):
                if kept.is_floating_point():
                    kept.lerp_(new, 1 - decay)
                else:
                    kept.copy_(new)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """One step of Lightning's validation loop."""
        if not isinstance(batch, Nothing):
            self.judge(batch)

    def configure_optimizers(self) -> Any:
        """AdamW with a warm-up and a cosine over the whole run."""
        steps = int(self.trainer.estimated_stepping_batches)
        optimizer = adamw(self.model, self.config.learning_rate, self.config.weight_decay)
        schedule = warmup_cosine(optimizer, round(self.config.warmup * steps), steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class SegmentationTask(Task):
    """A task whose model labels pixels or points: judged by mean IoU from one confusion matrix.

    Args:
        model: what is trained.
        config: how.
        classes: number of classes, K.
        weights: weight of each class in the loss, [K]; None for equal weights.
    """

    goal = "miou"
    higher_is_better = True
    weights: Tensor
    matrix: Tensor

    def __init__(
        self, model: nn.Module, config: TrainConfig, classes: int, weights: Tensor | None = None
    ) -> None:
        super().__init__(model, config)
        self.classes = classes
        self.register_buffer("weights", torch.ones(classes) if weights is None else weights)
        self.register_buffer("matrix", torch.zeros(classes, classes, dtype=torch.int64))

    def scores(self) -> dict[str, float]:
        """Overall accuracy, mean IoU and macro F1 since the last call, over all processes."""
        found = scores(total(self.matrix))
        self.matrix.zero_()
        return {name: value for name, value in found.items() if isinstance(value, float)}

    def describe(self, batch: Any) -> str:
        """Name the samples of a batch."""
        return "; ".join(batch.names)


def class_weights(counts: Sequence[float] | NDArray[Any], power: float) -> Tensor:
    """Weights of the classes in the loss: 1 / frequency to some power, 1 on average over all samples.

    Args:
        counts: how often each class occurs in the training part, [K].
        power: 0 for classes as they come, 1 for the same share of the loss for every class.

    Returns:
        fp32, [K]; 0 for a class that does not occur.
    """
    seen = np.asarray(counts, dtype=np.float64)
    weights = np.where(seen > 0, np.maximum(seen, 1) ** -power, 0)
    weights *= seen.sum() / max(float((weights * seen).sum()), 1e-12)
    return torch.tensor(weights, dtype=torch.float32)
