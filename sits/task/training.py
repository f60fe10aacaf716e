"""Training of time-series models: loss and judge."""

from torch import Tensor, nn

from geomix.learn.metrics import confusion
from geomix.learn.task import SegmentationTask
from sits.data import IGNORE, Batch


class SitsTask(SegmentationTask):
    """A time-series model under training: cross entropy over labelled pixels, judged by mean IoU."""

    def loss(self, batch: Batch) -> Tensor:
        """Cross entropy of the labelled pixels, each weighted by its class."""
        logits = self.model(batch.values, batch.days, batch.valid).float()
        weights = self._pixel_weights(batch)
        losses = nn.functional.cross_entropy(logits, batch.labels.clamp(min=0), reduction="none")
        return (losses * weights).sum() / weights.sum().clamp(min=1e-6)

    def weight(self, batch: Batch) -> Tensor:
        """The weights of the labelled pixels."""
        return self._pixel_weights(batch).sum()

    def _pixel_weights(self, batch: Batch) -> Tensor:
        labelled = (batch.labels != IGNORE) & batch.valid.any(1)
        return self.weights[batch.labels.clamp(min=0)] * labelled

    def judge(self, batch: Batch) -> None:
        """Count what the served weights make of whole series."""
        found = self.served(batch.values, batch.days, batch.valid).argmax(1)
        self.matrix += confusion(found, batch.labels, self.classes, ignore=IGNORE)
