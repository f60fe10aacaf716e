"""Codes of places and times."""

import math

import pytest
import torch

from geomix.errors import UnsupportedError
from geomix.position import grid_yx, sincos, sincos_2d


def test_sincos_by_hand() -> None:
    code = sincos(torch.tensor([0, 1]), 4, min_period=4, max_period=12)
    expected = [[0, 0, 1, 1], [1, math.sin(math.pi / 6), 0, math.cos(math.pi / 6)]]
    torch.testing.assert_close(code, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=1e-6)


def test_a_place_far_out_keeps_its_phase() -> None:
    """Positions a whole number of periods apart have one code, also at ten million."""
    near, far = (sincos(torch.tensor([p]), 2, min_period=8, max_period=8) for p in (3, 10_000_003))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-6)


def test_both_axes_of_the_plane_are_told_apart() -> None:
    yx = grid_yx((2, 3))
    assert yx.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    code = sincos_2d(yx, 8)
    assert code.shape == (6, 8) and torch.unique(code, dim=0).shape[0] == 6
    assert torch.equal(code[0, :4], code[1, :4]) and torch.equal(code[0, 4:], code[3, 4:])


def test_odd_widths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="even width, got 3"):
        sincos(torch.zeros(1), 3)
    with pytest.raises(UnsupportedError, match="4 divides, got 6"):
        sincos_2d(torch.zeros(1, 2), 6)
