"""Whole scenes in, georeferenced maps out."""

from sits.predict.blocks import Scorer, Scores, blocks_of, score_blocks
from sits.predict.files import MapPaths, load_scorer, segment_file
from sits.predict.jobs import segment_each
from sits.predict.lazy import segment
from sits.predict.limits import warn_outside
from sits.predict.names import is_batch

__all__ = [
    "MapPaths",
    "Scorer",
    "Scores",
    "blocks_of",
    "is_batch",
    "load_scorer",
    "score_blocks",
    "segment",
    "segment_each",
    "segment_file",
    "warn_outside",
]
