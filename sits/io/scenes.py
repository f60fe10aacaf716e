"""Series whose dates lie in raster files: reading, masking and fusing the scenes of a day."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time

import numpy as np
from numpy.typing import NDArray
from rasterio.warp import transform

from geomix.errors import InputError
from sits.dates import solar_day
from sits.grid import Grid, Window
from sits.io.masks import MaskFile, hidden_by
from sits.io.raster import FilePool, RasterFile
from sits.series import Mask, Values

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scene:
    """One acquisition over one footprint: a file of many bands, or a file a band."""

    moment: datetime
    name: str
    files: tuple[RasterFile, ...]
    grid: Grid
    """The grid of the first file as it lies on disk."""
    offset: str = "none"
    """The offset of its numbers and its reason, in words."""
    masks: tuple[MaskFile, ...] = ()
    """What hides the ground, on the grid of the series."""

    @property
    def bands(self) -> tuple[str, ...]:
        """The bands of all its files."""
        return tuple(band for file in self.files for band in file.bands)

    def read(self, bands: Sequence[str], window: Window, pool: FilePool) -> tuple[Values, Mask, set[str]]:
        """Reflectance [C, h, w], where all bands have data [h, w], and the undeclared numbers met."""
        values = np.zeros((len(bands), window.height, window.width), dtype=np.float32)
        valid = np.ones((window.height, window.width), dtype=bool)
        # Zero in every band is the fill of Sentinel-2 tiles, even where no one declares it.
        empty = np.ones_like(valid)
        met: set[str] = set()
        for file in self.files:
            wanted = [band for band in bands if band in file.bands]
            if not wanted:
                continue
            for band, numbers in zip(wanted, file.read(wanted, window, pool), strict=True):
                radiometry = file.bands[band].radiometry
                values[bands.index(band)], known = radiometry.decode(numbers)
                valid &= known
                empty &= zeros(numbers, radiometry.nodata, len(bands))
                met |= undeclared_met(numbers, radiometry.nodata, radiometry.missing_numbers(numbers.dtype))
        if empty.any() and bands:
            met.add("0 in all bands")
            valid &= ~empty
        return values, valid, met


def zeros(numbers: NDArray[np.generic], nodata: float | None, bands: int) -> Mask:
    """Where numbers without a declared nodata are 0; a single band that has a sign may well be 0."""
    if nodata is not None or not (bands > 1 or np.issubdtype(numbers.dtype, np.unsignedinteger)):
        return np.zeros(numbers.shape, dtype=bool)
    return np.asarray(numbers == 0)


def undeclared_met(numbers: NDArray[np.generic], nodata: float | None, missing: Sequence[float]) -> set[str]:
    """The numbers for nothing that are met without being declared, for a warning."""
    if nodata is not None:
        return set()
    return {f"{value:g}" for value in missing if (numbers == np.array(value, dtype=numbers.dtype)).any()}


@dataclass
class SceneSource:
    """Reads the scenes of each date and fuses those of one day: the first that has data wins."""

    steps: tuple[tuple[Scene, ...], ...]
    grid: Grid
    name: str = "series"
    dilate: int = 0
    """Pixels by which the masked areas grow."""
    pool: FilePool = field(default_factory=FilePool)
    _told: set[str] = field(default_factory=set)

    def read(self, steps: Sequence[int], bands: Sequence[str], window: Window) -> tuple[Values, Mask]:
        """Reflectance [T, C, h, w] and where there are data [T, h, w]."""
        values = np.zeros((len(steps), len(bands), window.height, window.width), dtype=np.float32)
        valid = np.zeros((len(steps), window.height, window.width), dtype=bool)
        for place, step in enumerate(steps):
            for scene in self.steps[step]:
                part, known, met = scene.read(bands, window, self.pool)
                self._tell(scene, met)
                known &= ~self.hidden(scene, window)
                new = known & ~valid[place]
                values[place] = np.where(new, part, values[place])
                valid[place] |= known
                if valid[place].all():
                    break
        return values, valid

    def hidden(self, scene: Scene, window: Window) -> Mask:
        """Where masks hide the ground in a scene, [h, w]."""
        if not scene.masks:
            return np.zeros((window.height, window.width), dtype=bool)
        return hidden_by(scene.masks, self.grid, window, self.pool, self.dilate)

    def masked(self, step: int, window: Window) -> Mask:
        """Where masks hide the ground in all scenes of a date, [h, w]."""
        found: Mask = np.all([self.hidden(scene, window) for scene in self.steps[step]], axis=0)
        return found

    def _tell(self, scene: Scene, met: set[str]) -> None:
        for value in sorted(met - self._told):
            self._told.add(value)
            log.warning(
                "%s: no nodata value is declared; %s is taken for missing (say otherwise with --nodata)",
                scene.name,
                value,
            )


def group_days(
    moments: Sequence[datetime], names: Sequence[str], grid: Grid
) -> list[tuple[date, tuple[int, ...]]]:
    """Put what was taken on one day together: by the sun where all give a time, else by the calendar.

    Args:
        moments: when each scene was taken, UTC.
        names: their names, which decide where times are the same.
        grid: where they lie.

    Returns:
        For each day the date of its first scene and the places of its scenes, in order of time; days rise.
    """
    groups: dict[date, list[int]] = {}
    days = _days(moments, grid)
    for place in sorted(range(len(moments)), key=lambda place: (moments[place], names[place])):
        groups.setdefault(days[place], []).append(place)
    ordered = sorted(groups.items())
    dates = [moments[group[0]].date() for _, group in ordered]
    if len(set(dates)) < len(dates):  # far east, where the day by the sun begins the evening before
        dates = [day for day, _ in ordered]
    return [(day, tuple(group)) for day, (_, group) in zip(dates, ordered, strict=True)]


def joined(reasons: Sequence[str]) -> str:
    """The offsets of the scenes of a day in words, each once."""
    return "; ".join(dict.fromkeys(reasons))


def _days(moments: Sequence[datetime], grid: Grid) -> list[date]:
    if any(moment.time() == time() for moment in moments) or grid.crs is None:
        return [moment.date() for moment in moments]
    west, south, east, north = grid.bounds
    longitude = transform(grid.crs, "EPSG:4326", [(west + east) / 2], [(south + north) / 2])[0][0]
    return [solar_day(moment, longitude) for moment in moments]


def one_grid(scenes: Sequence[Scene], name: str) -> Grid:
    """The grid that all files share.

    Raises:
        InputError: if a file differs, naming how and the way out, or if there is no coordinate system.
    """
    first = scenes[0]
    for scene in scenes[1:]:
        difference = first.grid.difference(scene.grid)
        if difference:
            raise InputError(
                f"{scene.name}: lies on another grid than {first.name}: {difference}; "
                "bring all to one grid with --resample bilinear"
            )
    if first.grid.crs is None:
        raise InputError(f"{name}: has no coordinate system; name it with --crs EPSG:...")
    return first.grid
