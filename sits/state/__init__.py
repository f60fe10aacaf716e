"""Scenes that are followed through the season: what is known is kept on disk, new dates are added."""

from sits.state.files import segment_and_keep, update_file
from sits.state.store import SceneState, create_state, read_state, score_state, update_state

__all__ = [
    "SceneState",
    "create_state",
    "read_state",
    "score_state",
    "segment_and_keep",
    "update_file",
    "update_state",
]
