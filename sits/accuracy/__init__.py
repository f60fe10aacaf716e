"""How good a map is, and how large its classes are: with intervals, from references that were sampled."""

from sits.accuracy.estimate import Accuracy, Estimate, estimate, sample_size
from sits.accuracy.reference import evaluate_map
from sits.accuracy.sample import allocate, sample_map

__all__ = ["Accuracy", "Estimate", "allocate", "estimate", "evaluate_map", "sample_map", "sample_size"]
