"""Images cut into tiles, filled up, and patches completed: what happens before there are tokens."""

import torch
from torch import Tensor, nn


def fill_pixels(pixels: Tensor, known: Tensor) -> Tensor:
    """Give the invalid pixels of a patch the mean of its valid ones, [..., p, p, C]; 0 where there is none.

    A constant, such as 0, would tell the model of a dark or bright field that is not there.
    """
    weight = known.unsqueeze(-1).to(pixels.dtype)
    total = (pixels * weight).sum((-3, -2), keepdim=True)
    mean = total / weight.sum((-3, -2), keepdim=True).clamp(min=1)
    return torch.where(known.unsqueeze(-1), pixels, mean)


def pad(values: Tensor, valid: Tensor, unit: int, origin: tuple[int, int] = (0, 0)) -> tuple[Tensor, Tensor]:
    """Add invalid pixels on all sides until both begin and end at multiples of `unit`.

    Args:
        values: images, [..., H, W].
        valid: which pixels were seen, [..., H, W].
        unit: side of a patch or tile, pixels.
        origin: row and column of the first pixel.
    """
    up, left = origin[0] % unit, origin[1] % unit
    down, right = -(values.shape[-2] + up) % unit, -(values.shape[-1] + left) % unit
    sides = (left, right, up, down)
    if not any(sides):
        return values, valid
    return nn.functional.pad(values, sides), nn.functional.pad(valid, sides, value=False)


def bring_to(count: int, values: Tensor, days: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bring series to `count` dates: append zero images of day 0, or keep the first in the order of `days`.

    Args:
        count: number of dates.
        values: [B, T, C, H, W].
        days: [B, T].
        valid: [B, T, H, W].
    """
    more = count - values.shape[1]
    if more < 0:
        kept = days.argsort(dim=1, stable=True)[:, :count]
        row = torch.arange(len(days), device=days.device)[:, None]
        return values[row, kept], days[row, kept], valid[row, kept]
    return (
        torch.cat([values, values.new_zeros(len(values), more, *values.shape[2:])], 1),
        torch.cat([days, days.new_zeros(len(days), more)], 1),
        torch.cat([valid, valid.new_ones(len(valid), more, *valid.shape[2:])], 1),
    )


def to_tiles(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Cut [B, ..., H, W] into [B * rows * columns, ..., tile, tile]."""
    rows, columns = grid
    *lead, height, width = image.shape
    tiles = image.reshape(*lead, rows, height // rows, columns, width // columns)
    return tiles.movedim(-4, 1).movedim(-2, 2).flatten(0, 2)


def from_tiles(tiles: Tensor, grid: tuple[int, int]) -> Tensor:
    """Undo `to_tiles` for [B * rows * columns, K, tile, tile]."""
    rows, columns = grid
    count, classes, height, width = tiles.shape
    image = tiles.reshape(count // (rows * columns), rows, columns, classes, height, width)
    image = image.permute(0, 3, 1, 4, 2, 5)
    return image.reshape(len(image), classes, rows * height, columns * width)
