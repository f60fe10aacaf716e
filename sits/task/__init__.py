"""Training and scoring of time-series models."""

from sits.task.experiment import SitsConfig
from sits.task.scoring import count, evaluate, month_ends, score, score_by_month
from sits.task.training import SitsTask, class_weights, train

__all__ = [
    "SitsConfig",
    "SitsTask",
    "class_weights",
    "count",
    "evaluate",
    "month_ends",
    "score",
    "score_by_month",
    "train",
]
