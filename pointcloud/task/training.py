"""What is trained: a model of point clouds under its loss, and the judge of its epochs."""

from torch import Tensor

from geomix.learn.config import TrainConfig
from geomix.learn.metrics import confusion
from geomix.learn.task import SegmentationTask
from pointcloud.data import IGNORE, Batch
from pointcloud.model import PPoMv3
from pointcloud.task.losses import segmentation_loss


class PointcloudTask(SegmentationTask):
    """A point-cloud model under training: Lovász and cross-entropy on voxels, judged by mean IoU of points.

    Args:
        model: what is trained.
        config: the settings of the loop.
        weights: weight of each class in the cross-entropy, [K]; None for all alike.
        lovasz: weight of the Lovász loss beside the cross-entropy.
        smoothing: label smoothing of the cross-entropy.
    """

    def __init__(
        self,
        model: PPoMv3,
        config: TrainConfig,
        weights: Tensor | None = None,
        lovasz: float = 1.0,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__(model, config, model.config.classes, weights)
        self.lovasz, self.smoothing = lovasz, smoothing

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy and Lovász over the labelled voxels."""
        logits = self.model(batch.grid_coord, batch.feat, batch.cu_seqlens)
        return segmentation_loss(logits, batch.labels, self.weights, self.lovasz, self.smoothing)

    def weight(self, batch: Batch) -> Tensor:
        """The weights of the labelled voxels, so that the cross-entropy is that of the whole batch.

        The Lovász loss is no mean over voxels: over several processes it is the mean of those of the shares.
        """
        return self.weights[batch.labels[batch.labels != IGNORE]].sum()

    def judge(self, batch: Batch) -> None:
        """Count what the served weights make of every point of whole clouds."""
        found = self.served(batch.grid_coord, batch.feat, batch.cu_seqlens).argmax(1)
        self.matrix += confusion(found[batch.inverse], batch.point_labels, self.classes, ignore=IGNORE)
