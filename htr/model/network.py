"""HTR-VPoM: a convolutional stem, blocks of a token mixer, and one class a token for CTC.

A line is scaled to one height and keeps its width; a token covers 4 px of it. Lines stand alone, in a padded
batch or side by side on an unrolled page, and give the same logits in all three.

Source: Picard et al., PoM, arXiv 2604.06129 (HTR-VPoM); Li et al., HTR-VT, arXiv 2409.08573 (its base).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from geomix.config import Config, parse_config
from geomix.encoder import Block
from geomix.errors import InputError
from geomix.position import sincos, sincos_2d
from geomix.segments import Segments
from htr.data.unroll import STRIDE, Slots
from htr.model.stem import CompactStem, Masks, ResNetStem

Four = tuple[int, int, int, int]


class StemConfig(Config):
    """What turns pixels into tokens."""

    kind: Literal["compact", "resnet"] = "compact"
    """`compact` is shaped for a CPU; `resnet` is the stem of HTR-VT and needs a height of 64."""
    channels: Four = (24, 48, 96, 160)
    """Channels of the four scales of `compact`."""
    blocks: Four = (0, 1, 1, 1)
    """Residual blocks at the four scales of `compact`."""


class ModelConfig(Config):
    """The shape of a line recogniser."""

    classes: int = Field(90, ge=2)
    """Characters and the blank; 90 as on LAM until the training lines or a card say otherwise."""
    height: int = Field(48, multiple_of=16, ge=16)
    """Height of a line image, px."""
    stem: StemConfig = StemConfig()
    dim: int = Field(192, ge=8)
    """Width of a token."""
    depth: int = Field(4, ge=1)
    """Blocks."""
    mixer: dict[str, Any] | list[dict[str, Any]] = Field({"name": "pom", "gate_heads": 32})
    """The mixer of all blocks, or one a block."""
    mlp_ratio: float = Field(3.0, gt=0)
    """Width of the hidden layer of a block, over that of a token."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of activations dropped in training."""
    norm_eps: float = Field(1e-5, gt=0)
    """What the norms of the blocks add to the variance; HTR-VT has 1e-6."""
    local: int = Field(0, ge=0)
    """Width in tokens of a depth-wise convolution beside each mixer; 0 for none, as in the paper."""
    context: Literal["line", "page"] = "line"
    """What a token can see: its line, or all lines of an unrolled page."""
    norms: Literal["own", "published"] = "own"
    """`published` adds HTR-VT's norms over all pixels and all logits of an image, for its checkpoints only:
    through them the padding and the neighbours of a line change its result."""

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if isinstance(self.mixer, list) and len(self.mixer) != self.depth:
            raise ValueError(f"mixer lists {len(self.mixer)} blocks, but depth is {self.depth}")
        if self.local and self.local % 2 == 0:
            raise ValueError(f"local must be odd, got {self.local}")
        if self.stem.kind == "resnet" and self.height != 64:
            raise ValueError(f"the resnet stem brings a height of 64 to one row, got {self.height}")
        return self


class LocalConv(nn.Module):
    """A depth-wise convolution along each line, added to its input: neighbours, which PoM does not see."""

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)

    def forward(self, x: Tensor, slots: Slots) -> Tensor:
        """Add the neighbours to each token of x: [B, T, C], a line a row, or [N, C], lines by slots."""
        y = self.norm(x)
        if x.ndim == 3:
            near: Tensor = self.conv(y.transpose(1, 2))
            return x + near.transpose(1, 2)
        # One row with as many zeros between two lines as the kernel reaches: the edge of a line alone.
        reach = self.conv.kernel_size[0] // 2
        place = torch.arange(len(x), device=x.device) + reach * slots.owner()
        spread = y.new_zeros(len(x) + reach * len(slots), y.shape[1]).index_copy(0, place, y)
        near = self.conv(spread.t().unsqueeze(0))
        return x + near.squeeze(0).t()[place]


class LineRecogniser(nn.Module):
    """Line images to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.stem: nn.Module = (
            CompactStem(config.stem.channels, config.stem.blocks, dim)
            if config.stem.kind == "compact"
            else ResNetStem(dim)
        )
        mixers = config.mixer if isinstance(config.mixer, list) else [config.mixer] * config.depth
        self.local = nn.ModuleList(
            LocalConv(dim, config.local) if config.local else nn.Identity() for _ in mixers
        )
        self.blocks = nn.ModuleList(
            Block(dim, mixer, mlp_ratio=config.mlp_ratio, dropout=config.dropout, norm_eps=config.norm_eps)
            for mixer in mixers
        )
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        self.head = nn.Linear(dim, config.classes)

    def forward(self, images: Tensor, widths: Tensor) -> Tensor:
        """Read a batch of lines.

        Args:
            images: one line at the left of each row, [B, height, W], paper 0 and ink up to 1.
            widths: the width of each line, px, int64 [B]. What lies behind it is not looked at.

        Returns:
            [B, ceil(W / 4), classes]; rows of tokens behind the end of a line are 0.

        Raises:
            InputError: if the height is not the model's, or a width is not between 1 and W.
        """
        return self.lines(images, Slots.one_a_row(widths), -(-images.shape[2] // STRIDE))

    def lines(self, images: Tensor, slots: Slots, length: int | None = None) -> Tensor:
        """Read lines wherever they lie, and give each a row of its own.

        Args:
            images: [B, height, W], paper 0 and ink up to 1.
            slots: where the lines are.
            length: tokens a row; those of the longest line if not given.

        Returns:
            [lines, length, classes]; rows of tokens behind the end of a line are 0.
        """
        logits = self.read(images, slots)
        size = int(slots.tokens.max()) if length is None else length
        out = logits.new_zeros(len(slots) * size, logits.shape[1])
        filled = out.index_copy(0, slots.owner() * size + slots.column(), logits)
        return filled.view(len(slots), size, -1)

    def read(self, images: Tensor, slots: Slots) -> Tensor:
        """Read lines wherever they lie: one a row, or many on unrolled pages.

        Args:
            images: [B, height, W], paper 0 and ink up to 1.
            slots: where the lines are.

        Returns:
            The logits of the tokens of all lines, one line after another, [N, classes].
        """
        self._check(images, slots)
        if self.config.norms == "published":
            return self._read_published(images, slots)
        rows, width = len(images), images.shape[2]
        if slots.fills(rows, width):
            x = self.stem(images, Masks(None))
            segments = Segments.dense(*x.shape[:2])
            x = x + self._position(slots).view(rows, -1, x.shape[2]).to(x.dtype)
        else:
            columns = slots.columns(rows, width)
            x = self.stem(images, Masks(columns))[columns[:, ::STRIDE]]
            segments = Segments.packed(slots.offsets(by_row=self.config.context == "page"))
            x = x + self._position(slots).to(x.dtype)
        logits: Tensor = self.head(self._mix(x, slots, segments))
        return logits.flatten(0, -2)

    def _mix(self, x: Tensor, slots: Slots, segments: Segments) -> Tensor:
        for local, block in zip(self.local, self.blocks, strict=True):
            x = local(x, slots) if self.config.local else x
            x = block(x, segments)
        y: Tensor = self.norm(x)
        return y

    def _position(self, slots: Slots) -> Tensor:
        """The code of each token's place, [N, dim]: its column, and its line where lines see each other."""
        column = slots.column()
        if self.config.context == "line":
            return sincos(column, self.config.dim)
        return sincos_2d(torch.stack([slots.line[slots.owner()], column], dim=1), self.config.dim)

    def _read_published(self, images: Tensor, slots: Slots) -> Tensor:
        """Read as HTR-VT does: norms over whole images, and its position code of 16 rows of tokens."""
        if not slots.fills(len(images), images.shape[2]):
            columns = slots.columns(*images.shape[::2])
            images = images * columns[:, None].to(images.dtype)
        # Its images have paper 1 and ink 0; the norm takes the offset away and leaves the sign.
        x = self.stem(-functional.layer_norm(images, images.shape[1:], eps=1e-5), Masks(None))
        length = x.shape[1]
        token = torch.arange(length, device=x.device)
        across = max(1, length // 16)
        grid = torch.stack([token % across, token // across], dim=1)
        x = x + published_position(grid.double(), self.config.dim).to(x.dtype)
        whole = Slots.one_a_row(torch.full_like(slots.width[: len(images)], length * STRIDE))
        logits = self.head(self._mix(x, whole, Segments.dense(len(images), length)))
        logits = functional.layer_norm(logits, logits.shape[1:], eps=1e-5)
        place = slots.row[slots.owner()] * length + slots.start[slots.owner()] // STRIDE + slots.column()
        return logits.flatten(0, 1)[place]

    def _check(self, images: Tensor, slots: Slots) -> None:
        if images.ndim != 3 or images.shape[1] != self.config.height:
            raise InputError(
                f"images must be [B, {self.config.height}, W] for this model, got {list(images.shape)}"
            )
        if len(slots) and (
            int(slots.width.min()) < 1 or int((slots.start + slots.width).max()) > images.shape[2]
        ):
            raise InputError(
                f"lines must be 1 to {images.shape[2]} px wide and inside their image, got widths "
                f"{slots.width.tolist()}"
            )


def published_position(grid: Tensor, dim: int) -> Tensor:
    """The code of places (column, row) in HTR-VT: periods up to 10,000, the longest itself left out."""
    channels = dim // 4
    longest = 2 * math.pi * 10_000.0 ** ((channels - 1) / channels)
    return sincos_2d(grid, dim, max_period=longest)


def build_model(config: Mapping[str, Any]) -> LineRecogniser:
    """Build a line recogniser from its configuration, as the card of a model file holds it.

    Raises:
        ConfigError: if a key is unknown or missing, or a value does not fit.
    """
    return LineRecogniser(parse_config(ModelConfig, config, "model of htr"))
