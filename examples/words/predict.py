"""What users call: a text in, the same text with labels out."""

from pathlib import Path

import torch
from torch import Tensor, nn

from geomix.checkpoint import card_of
from geomix.files import new_file
from words.data import Sentence, collate, read_sentences


def predict(model: nn.Module, sentences: list[Sentence]) -> Tensor:
    """The class number of every word, [N]."""
    batch = collate(sentences, [])
    with torch.inference_mode():
        scores: Tensor = model(batch.letters, batch.offsets)
    return scores.argmax(1)


def label_file(model: nn.Module, source: Path, target: Path, overwrite: bool) -> None:
    """Label every word of a file."""
    names = [one.name for one in card_of(model).classes or ()]
    sentences = read_sentences(source)
    found = iter(predict(model, sentences).tolist())
    lines = [" ".join(f"{word}/{names[next(found)]}" for word, _ in sentence) for sentence in sentences]
    with new_file(target, overwrite) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
