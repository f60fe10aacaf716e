"""From the probabilities of a line to its text: the best path, or a beam search with a language model."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geomix.errors import InputError
from htr.charset import BLANK, Charset
from htr.model.ctc import Symbol, best_path
from htr.predict.lm import CharacterModel

Probabilities = NDArray[np.float32]

LM_WEIGHT = 0.5
"""How much the language model counts against the image; the best of ten pairs with the bonus on 120 lines."""
LENGTH_BONUS = 0.8
"""What each character adds to the score: without it a language model prefers short texts."""

_LOWEST = 1e-3
"""Classes less probable than this at a token are not tried there."""
_NEVER = -math.inf


def decode(
    probabilities: Probabilities, charset: Charset, *, beam: int = 1, lm: CharacterModel | None = None
) -> list[Symbol]:
    """Find the text of one line.

    Args:
        probabilities: [tokens, classes].
        charset: the characters of the classes.
        beam: texts kept from token to token; 1 follows the best path.
        lm: what text is like; only a beam above 1 uses it.

    Returns:
        The characters with their runs of tokens, in the order of the image.

    Raises:
        InputError: if the beam is below 1.
    """
    if beam < 1:
        raise InputError(f"a beam keeps 1 or more texts, got {beam}")
    if beam == 1:
        return best_path(probabilities)
    return align(probabilities, beam_search(probabilities, charset, beam, lm))


def beam_search(
    probabilities: Probabilities,
    charset: Charset,
    beam: int,
    lm: CharacterModel | None = None,
    lm_weight: float = LM_WEIGHT,
    length_bonus: float = LENGTH_BONUS,
) -> list[int]:
    """Find the classes of the most probable text, all paths that write it taken together.

    Without a language model no bonus is given: the score is the probability of the text alone.
    """
    # For each text: log probability of its paths that end in a blank, and in its last character.
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, _NEVER)}
    extra: dict[tuple[int, ...], float] = {(): 0.0}
    for token in probabilities:
        candidates = np.flatnonzero(token >= _LOWEST)
        logs = {int(number): math.log(token[number]) for number in candidates}
        grown: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [_NEVER, _NEVER])
        for text, (blank, last) in beams.items():
            both = _add(blank, last)
            for number, log in logs.items():
                if number == BLANK:
                    grown[text][0] = _add(grown[text][0], both + log)
                    continue
                longer = (*text, number)
                if longer not in extra:
                    extra[longer] = extra[text] + _bonus(text, number, charset, lm, lm_weight, length_bonus)
                if text and text[-1] == number:
                    # The same character again is a longer run, unless a blank stood between.
                    grown[text][1] = _add(grown[text][1], last + log)
                    grown[longer][1] = _add(grown[longer][1], blank + log)
                else:
                    grown[longer][1] = _add(grown[longer][1], both + log)
        score = {text: _add(blank, last) + extra[text] for text, (blank, last) in grown.items()}
        best = sorted(score, key=score.__getitem__, reverse=True)[:beam]
        beams = {text: (grown[text][0], grown[text][1]) for text in best}
    winner = max(beams, key=lambda text: _add(*beams[text]) + extra[text])
    return list(winner)


def _bonus(
    text: Sequence[int],
    number: int,
    charset: Charset,
    lm: CharacterModel | None,
    lm_weight: float,
    length_bonus: float,
) -> float:
    if lm is None:
        return 0.0
    # The model adds the mark of a line's start, so it must see that something stands before, if it does.
    before = charset.decode(text[-lm.order :])
    return lm_weight * lm.log_probability(before, charset.decode([number])) + length_bonus


def _add(left: float, right: float) -> float:
    """The logarithm of the sum of two numbers given by their logarithms."""
    if left < right:
        left, right = right, left
    if right == _NEVER:
        return left
    return left + math.log1p(math.exp(right - left))


def align(probabilities: Probabilities, label: Sequence[int]) -> list[Symbol]:
    """Find the runs of tokens of a given text: the most probable path that writes it.

    Args:
        probabilities: [tokens, classes].
        label: classes; a text that needs more tokens than there are gives no symbols for its rest.
    """
    tokens = len(probabilities)
    states = [BLANK]
    for number in label:
        states += [number, BLANK]
    if len(label) == 0 or tokens == 0:
        return []
    logs = np.log(np.maximum(probabilities, 1e-12))[:, states]  # [tokens, states]
    # A blank may be skipped between two different characters.
    may_skip = np.array([i >= 2 and i % 2 == 1 and states[i] != states[i - 2] for i in range(len(states))])
    score = np.full(len(states), _NEVER)
    score[:2] = logs[0, :2]
    back = np.zeros((tokens, len(states)), dtype=np.int8)
    for token in range(1, tokens):
        steps = np.stack(
            [
                score,
                np.r_[_NEVER, score[:-1]],
                np.where(may_skip, np.r_[_NEVER, _NEVER, score[:-2]], _NEVER),
            ]
        )
        back[token] = steps.argmax(0)
        score = steps.max(0) + logs[token]
    state = len(states) - 1 if score[-1] >= score[-2] else len(states) - 2
    if not np.isfinite(score[state]):
        state = int(np.flatnonzero(np.isfinite(score))[-1])
    path = np.empty(tokens, dtype=np.int64)
    for token in range(tokens - 1, -1, -1):
        path[token] = state
        state -= int(back[token, state])
    return _runs(probabilities, path, states)


def _runs(probabilities: Probabilities, path: NDArray[np.int64], states: Sequence[int]) -> list[Symbol]:
    edges = np.flatnonzero(np.diff(path)) + 1
    symbols = []
    for start, end in zip(np.r_[0, edges], np.r_[edges, len(path)], strict=True):
        number = states[path[start]]
        if path[start] % 2 == 0:
            continue
        run = probabilities[start:end, number]
        symbols.append(Symbol(number, int(start), int(end), int(start) + int(run.argmax()), float(run.max())))
    return symbols
