"""Convolutional stems: a line image becomes a row of tokens, each 4 px wide and as high as the line.

A mask holds everything outside the lines at zero after every layer, which is what the zero padding of a
convolution would give at the end of a line that stands alone. So neither padding nor a neighbour on the same
page can change a line's tokens.
"""

from collections.abc import Sequence

from torch import Tensor, nn


class Masks:
    """Which columns of an image lie on a line, at each horizontal scale of the stem."""

    def __init__(self, columns: Tensor | None) -> None:
        """Take the mask of the pixel columns, bool [B, W], or None where every column is on a line."""
        self._columns = columns

    def apply(self, x: Tensor, scale: int) -> Tensor:
        """Set the columns of x [B, C, H, ceil(W / scale)] that lie on no line to zero."""
        if self._columns is None:
            return x
        # Column j at scale s reads from pixel j * s on: it is on the line if that pixel is.
        return x * self._columns[:, None, None, ::scale].to(x.dtype)


class ConvNorm(nn.Module):
    """A 3 x 3 convolution and batch norm. `forward` takes and gives [B, C, H, W]."""

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int] = (1, 1), kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return y


class Residual(nn.Module):
    """Two convolutions beside a straight connection; the first of them may change size and channels."""

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, stride)
        self.second = ConvNorm(outputs, outputs)
        same = inputs == outputs and stride == (1, 1)
        self.shortcut = (
            None
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor, masks: Masks, scale: int) -> Tensor:
        """Give x [B, C, H, W] at horizontal `scale` behind this block; masked again at its end."""
        straight = x if self.shortcut is None else self.shortcut(x)
        y = masks.apply(self.first(x).relu(), scale)
        return masks.apply((self.second(y) + straight).relu(), scale)


class CompactStem(nn.Module):
    """The stem for a CPU: four halvings of the height, two of the width, few channels where pixels are many.

    The rows that are left give each channel its highest value, so that weights serve any height: a model may
    learn on low images first, which is several times cheaper, and on higher ones later.

    Args:
        channels: of the four scales.
        blocks: how many residual blocks follow each halving.
        dim: channels of a token.
    """

    def __init__(self, channels: Sequence[int], blocks: Sequence[int], dim: int) -> None:
        super().__init__()
        strides = ((2, 2), (2, 2), (2, 1), (2, 1))
        inputs = (1, *channels[:-1])
        self.scales = (2, 4, 4, 4)
        self.down = nn.ModuleList(
            ConvNorm(before, after, stride)
            for before, after, stride in zip(inputs, channels, strides, strict=True)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(Residual(width, width) for _ in range(count))
            for width, count in zip(channels, blocks, strict=True)
        )
        self.out = nn.Linear(channels[-1], dim)

    def forward(self, images: Tensor, masks: Masks) -> Tensor:
        """Give the tokens [B, ceil(W / 4), dim] of images [B, H, W], paper 0."""
        x = masks.apply(images.unsqueeze(1), 1)
        for down, blocks, scale in zip(self.down, self.blocks, self.scales, strict=True):
            x = masks.apply(down(x).relu(), scale)
            for block in blocks:  # type: ignore[attr-defined]
                x = block(x, masks, scale)
        y: Tensor = self.out(x.amax(2).transpose(1, 2))
        return y


class ResNetStem(nn.Module):
    """The stem of HTR-VT: the first three stages of a ResNet-18, with the height brought to one row.

    Args:
        dim: channels of a token; the three stages have a quarter, a half and all of them.

    Source: Li et al., HTR-VT, arXiv 2409.08573.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        quarter, half = dim // 4, dim // 2
        self.enter = ConvNorm(1, quarter, (2, 1))
        self.pool = nn.MaxPool2d(3, (2, 1), 1)
        stages = ((quarter, quarter, (2, 1), 1), (quarter, half, (2, 2), 2), (half, dim, (2, 2), 4))
        self.scales = tuple(scale for *_, scale in stages)
        self.stages = nn.ModuleList(
            nn.ModuleList((Residual(before, after, stride), Residual(after, after)))
            for before, after, stride, _ in stages
        )

    def forward(self, images: Tensor, masks: Masks) -> Tensor:
        """Give the tokens [B, ceil(W / 4), dim] of images [B, 64, W], paper 0."""
        x = masks.apply(images.unsqueeze(1), 1)
        x = masks.apply(self.enter(x).relu(), 1)
        x = masks.apply(self.pool(x), 1)
        for stage, scale in zip(self.stages, self.scales, strict=True):
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, masks, scale)
        x = masks.apply(self.pool(x), 4)
        return x.mean(2).transpose(1, 2)
