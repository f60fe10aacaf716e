"""Where pixels lie: the grid of a raster, and windows of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

from affine import Affine
from rasterio.crs import CRS

from geomix.errors import InputError

# Writers round a transform differently; a thousandth of a pixel over the whole grid is still the same grid.
_SAME_PLACE = 1e-3

# Corners lie on whole or half pixels of the map, or a hair beside: this far off, none lies between two.
_OFF = 0.29


@dataclass(frozen=True)
class Window:
    """A rectangle of whole pixels."""

    row: int
    col: int
    height: int
    width: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Rows and columns, to index `[..., y, x]`."""
        return slice(self.row, self.row + self.height), slice(self.col, self.col + self.width)

    def pad(self, halo: int, shape_yx: tuple[int, int]) -> "Window":
        """The window with `halo` more pixels on each side, as far as the grid of that shape reaches."""
        top, left = max(self.row - halo, 0), max(self.col - halo, 0)
        bottom = min(self.row + self.height + halo, shape_yx[0])
        right = min(self.col + self.width + halo, shape_yx[1])
        return Window(top, left, bottom - top, right - left)

    def within(self, outer: "Window") -> tuple[slice, slice]:
        """The slices of this window in an array that holds `outer`."""
        row, col = self.row - outer.row, self.col - outer.col
        return slice(row, row + self.height), slice(col, col + self.width)


@dataclass(frozen=True)
class Grid:
    """Coordinate system, transform and shape of a raster; kept bit for bit from input to output.

    Pixels need not be square, nor rows run southwards, nor axes lie along the map's.
    """

    crs: CRS | None
    transform: Affine
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def whole(self) -> Window:
        """The window that covers the grid."""
        return Window(0, 0, self.height, self.width)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north of all corners, in the units of the coordinate system."""
        corners = [place(self.transform, x, y) for x in (0, self.width) for y in (0, self.height)]
        xs, ys = zip(*corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def part(self, window: Window) -> "Grid":
        """The grid of a window."""
        a, b, _, d, e, _ = tuple(self.transform)[:6]
        west, north = place(self.transform, window.col, window.row)
        return Grid(self.crs, Affine(a, b, west, d, e, north), window.height, window.width)

    def phase(self, unit: int) -> tuple[int, int]:
        """Rows and columns from the last multiple of `unit` pixels on the map to the first pixel.

        Multiples are counted from the origin of the coordinate system, so a grid that is cut out of another
        has them in the same places.
        """
        col, row = place(~self.transform, 0.0, 0.0)
        return floor(_OFF - row) % unit, floor(_OFF - col) % unit

    def blocks(self, size: int, phase: tuple[int, int] = (0, 0)) -> Iterator[Window]:
        """Windows of `size` pixels that cover the grid row by row; those at its edges may be smaller.

        Args:
            size: side of a window, pixels.
            phase: rows and columns by which the first windows begin before the grid.
        """
        if size < 1:
            raise InputError(f"the size of a block must be at least 1 pixel, got {size}")
        for row, height in _cuts(self.height, size, phase[0]):
            for col, width in _cuts(self.width, size, phase[1]):
                yield Window(row, col, height, width)

    def block_count(self, size: int, phase: tuple[int, int] = (0, 0)) -> int:
        """How many windows `blocks` gives."""
        return ceil((self.height + phase[0]) / size) * ceil((self.width + phase[1]) / size)

    def difference(self, other: "Grid") -> str | None:
        """What tells two grids apart, in words; None where they are the same to a thousandth of a pixel."""
        if not same_crs(self.crs, other.crs):
            return f"coordinate system {crs_name(other.crs)} instead of {crs_name(self.crs)}"
        if self.shape != other.shape:
            return f"{other.height} x {other.width} pixels instead of {self.height} x {self.width}"
        for corner in ((0, 0), (self.width, 0), (0, self.height)):
            col, row = place(~self.transform, *place(other.transform, *corner))
            if max(abs(col - corner[0]), abs(row - corner[1])) > _SAME_PLACE:
                return f"transform {tuple(other.transform)[:6]} instead of {tuple(self.transform)[:6]}"
        return None


def _cuts(length: int, size: int, phase: int) -> Iterator[tuple[int, int]]:
    """Start and length of the pieces of one axis."""
    for start in range(-phase, length, size):
        first = max(start, 0)
        yield first, min(start + size, length) - first


def place(transform: Affine, x: float, y: float) -> tuple[float, float]:
    """Where a transform puts a point.

    Written out, because affine 2 knows only `*` for it and affine 3 wants `@`.
    """
    a, b, c, d, e, f = tuple(transform)[:6]
    return a * x + b * y + c, d * x + e * y + f


def same_crs(first: CRS | None, second: CRS | None) -> bool:
    """Whether two coordinate systems are one, however each is written."""
    if first is None or second is None or first == second:
        return first is second or first == second
    code = first.to_epsg()
    return code is not None and code == second.to_epsg()


def crs_name(crs: CRS | None) -> str:
    """A short name of a coordinate system for messages."""
    if crs is None:
        return "none"
    code = crs.to_epsg()
    return f"EPSG:{code}" if code is not None else str(crs.to_string())[:60]
