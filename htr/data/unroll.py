"""A page as one wide image: its lines side by side in reading order, with gaps, and a table of their places.

Every line owns a slot. Text is cut at the slots, so lines can neither merge nor vanish, and a token's place
in its slot says where on the line it lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.errors import InputError

STRIDE = 4
"""The width of a token, px."""
GAP = 16
"""White columns between two lines, px. Eight would do: every layer sees zeros there, as at a line's end."""


@dataclass(frozen=True, eq=False)
class Slots:
    """Where the lines lie in a stack of unrolled images, in reading order.

    Raises:
        InputError: if slots are out of order, overlap, leave no gap or do not begin at a multiple of 4 px.
    """

    row: Tensor
    """The image of each line, ascending, int64 [L]."""
    start: Tensor
    """Its first pixel column, a multiple of 4, int64 [L]."""
    width: Tensor
    """Its width, px, int64 [L]."""

    def __post_init__(self) -> None:
        if (self.start % STRIDE != 0).any():
            raise InputError(f"slots must begin at a multiple of {STRIDE} px, got {self.start.tolist()}")
        same = self.row.diff() == 0
        ends = self.start + self.width
        if (self.row.diff() < 0).any() or (same & (self.start[1:] < ends[:-1] + 2 * STRIDE)).any():
            raise InputError(
                f"slots must follow one another with gaps of {2 * STRIDE} px or more, got rows "
                f"{self.row.tolist()}, starts {self.start.tolist()}, widths {self.width.tolist()}"
            )

    @classmethod
    def one_a_row(cls, widths: Tensor) -> "Slots":
        """The slots of a batch: one line at the left of each image."""
        rows = torch.arange(len(widths), device=widths.device)
        return cls(rows, torch.zeros_like(widths), widths)

    def __len__(self) -> int:
        return self.row.numel()

    def to(self, device: torch.device | str) -> "Slots":
        """The same table on a device."""
        return Slots(self.row.to(device), self.start.to(device), self.width.to(device))

    @property
    def tokens(self) -> Tensor:
        """How many tokens each line has, int64 [L]."""
        return -(-self.width // STRIDE)

    @property
    def line(self) -> Tensor:
        """The number of each line on its page, from 0, int64 [L]."""
        index = torch.arange(len(self), device=self.row.device)
        return index - torch.searchsorted(self.row, self.row)

    def fills(self, rows: int, width: int) -> bool:
        """Whether each of `rows` images is one line from its first to its last column."""
        return len(self) == rows and bool((self.width == width).all()) and bool((self.start == 0).all())

    def columns(self, rows: int, width: int) -> Tensor:
        """Which pixel columns lie on a line, bool [rows, width]."""
        edges = torch.zeros(rows, width + 1, dtype=torch.int64, device=self.row.device)
        edges.index_put_((self.row, self.start), torch.ones_like(self.row), accumulate=True)
        edges.index_put_((self.row, self.start + self.width), -torch.ones_like(self.row), accumulate=True)
        return edges.cumsum(1)[:, :width] > 0

    def offsets(self, by_row: bool = False) -> Tensor:
        """Where the tokens of each line, or of each page, begin among all, int64 [L + 1] or [pages + 1]."""
        counts = self.tokens
        if by_row:
            rows = int(self.row[-1]) + 1 if len(self) else 0
            counts = torch.zeros(rows, dtype=torch.int64, device=self.row.device).index_add_(
                0, self.row, counts
            )
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def owner(self) -> Tensor:
        """The slot of each token, int64 [N]."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.row.device), self.tokens)

    def column(self) -> Tensor:
        """The place of each token on its line, from 0, int64 [N]."""
        owner = self.owner()
        return torch.arange(len(owner), device=owner.device) - self.offsets()[owner]


def unroll(pages: Sequence[Sequence[Tensor]], gap: int = GAP) -> tuple[Tensor, Slots]:
    """Lay the lines of each page side by side.

    Args:
        pages: for each page its line images in reading order, float [height, w] with paper 0.
        gap: the least number of white columns between two lines, px.

    Returns:
        One image a page, float32 [pages, height, widest], and the slots of all lines.

    Raises:
        InputError: if there is no line at all, or the heights differ.
    """
    heights = {image.shape[0] for page in pages for image in page}
    if len(heights) != 1:
        raise InputError(f"a page needs lines of one height, got heights {sorted(heights)}")
    row, start, width, ends = [], [], [], []
    for number, page in enumerate(pages):
        at = 0
        for image in page:
            row.append(number)
            start.append(at)
            width.append(image.shape[1])
            at = -(-(at + image.shape[1] + gap) // STRIDE) * STRIDE
        ends.append(start[-1] + width[-1] if page else 0)
    canvas = torch.zeros(len(pages), heights.pop(), max(ends))
    lines = [image for page in pages for image in page]
    for image, number, left in zip(lines, row, start, strict=True):
        canvas[number, :, left : left + image.shape[1]] = image
    return canvas, Slots(torch.tensor(row), torch.tensor(start), torch.tensor(width))
