"""Training and scoring of time-series models."""

from sits.task.experiment import SitsConfig, SitsExperiment
from sits.task.scoring import count, month_ends, score, score_by_month
from sits.task.training import SitsTask

__all__ = [
    "SitsConfig",
    "SitsExperiment",
    "SitsTask",
    "count",
    "month_ends",
    "score",
    "score_by_month",
]
