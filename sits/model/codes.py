"""How days and places are told to a model: waves that know no end, or the published table of days."""

import torch
from torch import Tensor, nn

from geomix.errors import InputError
from geomix.position import sincos

DAY_PERIODS = (12.0, 900.0)
"""Shortest and longest wave of the code of days, days: two revisits, and a season with what hangs over."""

PLACE_PERIODS = (4.0, 64.0)
"""The same for places, patches: not longer than a training crop with its context, or it would be unknown."""


class DayTable(nn.Module):
    """The published time code: a linear layer on a one-hot day of the year, read as a table."""

    DAYS = 366

    def __init__(self, dim: int) -> None:
        super().__init__()
        # Names, shapes and start of nn.Linear(366, dim): the published weights fit as they are.
        self.linear = nn.Linear(self.DAYS, dim)

    def forward(self, days: Tensor) -> Tensor:
        """Look up days of the year, [..., D]; days outside 0 to 365 are an error.

        The published code passes days as a fraction of 365.0001 in float32 and cuts it back to an integer,
        which turns 19 of them, such as 13, 26 and 52, into the day before. Its weights were trained with
        that, so it is repeated here.

        Raises:
            InputError: if a day lies outside the table.
        """
        index = (days.to(torch.float32) / 365.0001 * 365.0001).to(torch.int64)
        if index.numel() and (int(index.min()) < 0 or int(index.max()) >= self.DAYS):
            raise InputError(
                f"days of the year must lie within 0 and 366, got {int(days.min())} to {int(days.max())}; "
                "the inputs of this model need `days: year`"
            )
        return self.linear.weight.t()[index] + self.linear.bias


def code_of_days(days: Tensor, dim: int) -> Tensor:
    """Waves of the days, [..., D]."""
    return _waves(days, dim, DAY_PERIODS)


def code_of_places(rows: int, columns: int, first: tuple[int, int], dim: int, device: torch.device) -> Tensor:
    """Waves of the rows and columns of a grid of patches that begins at `first`, [rows * columns, D]."""
    half = dim // 2
    y = torch.arange(rows, device=device) + first[0]
    x = torch.arange(columns, device=device) + first[1]
    code_y = _waves(y, half, PLACE_PERIODS)[:, None].expand(-1, columns, -1)
    code_x = _waves(x, dim - half, PLACE_PERIODS)[None].expand(rows, -1, -1)
    return torch.cat([code_y, code_x], dim=-1).flatten(0, 1)


def _waves(position: Tensor, dim: int, periods: tuple[float, float]) -> Tensor:
    return sincos(position, dim, min_period=periods[0], max_period=periods[1])
