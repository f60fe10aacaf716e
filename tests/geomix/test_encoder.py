"""Stacks of blocks: hybrids, states, streaming."""

import pytest
import torch

from geomix import Encoder, Segments
from geomix.encoder import Block, parameters
from geomix.errors import ConfigError, SegmentsError, UnsupportedError

POM, ATTENTION = {"name": "pom", "degree": 2}, {"name": "attention", "heads": 2}


def test_a_list_of_mixers_makes_a_hybrid() -> None:
    encoder = Encoder(8, 2, [POM, ATTENTION])
    assert [type(block.mixer).__name__ for block in encoder.blocks] == ["PoM", "Attention"]
    assert encoder(torch.randn(2, 5, 8)).shape == (2, 5, 8)


def test_parameters_of_the_published_block_widths() -> None:
    """Width 128: attention 65,664 and MLP 131,712 and two norms 512; PoM 99,072 with D = 2 d and k = 2."""
    block = Block(128, {"name": "attention", "heads": 4})
    assert [parameters(part) for part in (block.mixer, block.mlp, block.norm1)] == [65_664, 131_712, 256]
    assert parameters(Block(128, POM).mixer) == 99_072


def test_blocks_of_tokens_one_call_after_another_equal_one_call() -> None:
    torch.manual_seed(0)
    encoder, x = Encoder(8, 3, POM).double(), torch.randn(2, 12, 8, dtype=torch.float64)
    whole = encoder(x, Segments.dense(2, 12, block_size=4))
    state, parts = None, []
    for part in x.split(4, dim=1):
        y, state = encoder(part, Segments.dense(2, 4), state=state, return_state=True)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_observing_slices_then_reading_them_equals_one_call() -> None:
    torch.manual_seed(0)
    encoder, x = Encoder(8, 2, POM).double(), torch.randn(30, 8, dtype=torch.float64)
    slices = list(x.split(11))
    for block in encoder.blocks:
        states = [block.observe(part) for part in slices]
        state = states[0].merge(states[1]).merge(states[2])
        slices = [block.read(part, state) for part in slices]
    torch.testing.assert_close(encoder.norm(torch.cat(slices)), encoder(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mixer", [POM, ATTENTION])
def test_inference_mode_leaves_nothing_behind_that_training_trips_over(mixer: dict[str, object]) -> None:
    encoder, x, packed = Encoder(8, 1, mixer), torch.randn(2, 5, 8), Segments.packed([0, 2, 5])
    with torch.inference_mode():
        encoder(x)
        encoder(x[0], packed)
    (encoder(x).sum() + encoder(x[0], packed).sum()).backward()


def test_contradictions_are_named() -> None:
    with pytest.raises(ConfigError, match="depth is 3, the list has 2"):
        Encoder(8, 3, [POM, POM])
    with pytest.raises(SegmentsError, match="2 blocks, the state 1"):
        Encoder(8, 2, POM)(torch.randn(1, 3, 8), state=(None,))
    with pytest.raises(UnsupportedError, match="no state"):
        Encoder(8, 1, ATTENTION)(torch.randn(1, 3, 8), return_state=True)
