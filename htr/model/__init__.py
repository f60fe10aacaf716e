"""The line recogniser: a convolutional stem, blocks of a token mixer, and CTC."""

from htr.model.network import LineRecogniser as LineRecogniser
from htr.model.network import ModelConfig as ModelConfig
from htr.model.network import build_model as build_model
