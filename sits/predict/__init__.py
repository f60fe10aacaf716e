"""Whole scenes in, georeferenced maps out."""

from sits.predict.blocks import Scorer, Scores, score_blocks
from sits.predict.files import MapPaths, segment_file
from sits.predict.lazy import segment
from sits.predict.limits import warn_outside

__all__ = ["MapPaths", "Scorer", "Scores", "score_blocks", "segment", "segment_file", "warn_outside"]
