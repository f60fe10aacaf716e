"""A tagger: the letters of a word are averaged, the words of a sentence are mixed."""

from typing import Any

from torch import Tensor, nn

from geomix import Encoder, Segments
from geomix.config import Config, parse_config


class ModelConfig(Config):
    """Shape of the network."""

    classes: int
    dim: int = 16
    mixer: dict[str, Any]


class Tagger(nn.Module):
    """Class scores of each word, [N, classes], from its letters, [N, LETTERS]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.letters = nn.EmbeddingBag(128, config.dim)
        self.encoder = Encoder(config.dim, 1, config.mixer)
        self.head = nn.Linear(config.dim, config.classes)

    def forward(self, letters: Tensor, offsets: Tensor) -> Tensor:
        mixed = self.encoder(self.letters(letters), Segments.packed(offsets))
        scores: Tensor = self.head(mixed)
        return scores


def build_model(config: Any) -> Tagger:
    """Build the model that a card describes."""
    return Tagger(parse_config(ModelConfig, config, "model"))
