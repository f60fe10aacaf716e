"""A look at samples of a series for what goes wrong in silence: offsets that differ, dates that are empty."""

import logging
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from numpy.typing import NDArray

from sits.grid import Window
from sits.io.options import ReadOptions
from sits.series import TimeSeries

log = logging.getLogger(__name__)

_SIDE = 64
_ENOUGH = 32
"""Pixels of a date without which nothing is said about it."""
_BANDS = 3
"""Bands without which nothing is said about offsets: one index moves with the season, many bands hardly."""
_BASELINE_4 = date(2022, 1, 25)
"""The first day of processing baseline 04.00."""
_DARK = 0.09
"""Reflectance that something lies below in some band of any scene: water, shadow, forest."""
_WIDE = ("B2", "B4", "B8", "B8A", "B12")
"""Bands that lie far apart, so that something is dark in one of them."""


@dataclass(frozen=True)
class _Sample:
    """Some pixels of each date."""

    values: NDArray[np.float32]
    """[T, C, pixels]."""
    valid: NDArray[np.bool_]
    """[T, pixels]."""


def checked(series: TimeSeries, options: ReadOptions) -> TimeSeries:
    """Warn of dates whose numbers look unlike the others', and leave out those that show one number only.

    Three small windows are read. Nothing is corrected: the user decides.
    """
    sample = _sample(series)
    _warn_of_offsets(series, sample)
    return series if options.nodata is not None else _without_constant(series, sample)


def _sample(series: TimeSeries) -> _Sample:
    bands = [band for band in _WIDE if band in series.bands] or list(series.bands[:4])
    height, width = series.grid.shape
    values, valid = [], []
    for quarter in (1, 2, 3):
        row = max(0, min(height * quarter // 4 - _SIDE // 2, height - _SIDE))
        col = max(0, min(width * quarter // 4 - _SIDE // 2, width - _SIDE))
        window = Window(row, col, min(_SIDE, height), min(_SIDE, width))
        part, known = series.select(bands).read(window)
        values.append(part.reshape(*part.shape[:2], -1))
        valid.append(known.reshape(len(known), -1))
    return _Sample(np.concatenate(values, axis=2), np.concatenate(valid, axis=1))


def _warn_of_offsets(series: TimeSeries, sample: _Sample) -> None:
    """Compare the darkest pixels: an offset of 1000 that is left in a date lifts all its bands by 0.1."""
    if sample.values.shape[1] < _BANDS:
        return
    dark = np.full((len(series.dates), sample.values.shape[1]), np.nan)
    clipped = np.zeros(len(series.dates))
    for step, known in enumerate(sample.valid):
        if known.sum() >= _ENOUGH:
            seen = sample.values[step][:, known]
            dark[step] = np.percentile(seen, 1, axis=1)
            clipped[step] = (seen == 0).mean(axis=1).max()
    looked_at = ~np.isnan(dark[:, 0])
    _warn_of_unstated(series, dark)
    for step, one in enumerate(series.acquisitions):
        others = looked_at.copy()
        others[step] = False
        if not looked_at[step] or not others.any():
            continue
        usual = np.median(dark[others], axis=0)
        # Clouds lift the bands too, but hardly by the same in most of them.
        if abs(float(np.median(dark[step] - usual)) - 0.1) < 0.02:
            log.warning(
                "%s: the darkest pixels of %s reflect %.3f, those of the other dates %.3f: it may still "
                "carry the offset of 1000 (offset now: %s; say otherwise with --offset)",
                series.name,
                one.date,
                dark[step].min(),
                usual.min(),
                one.offset,
            )
        elif clipped[step] > 0.2 and one.offset.startswith("-"):
            log.warning(
                "%s: %.0f %% of %s fall to 0 with the offset %s: it may have been taken off before "
                "(say otherwise with --offset)",
                series.name,
                100 * clipped[step],
                one.date,
                one.offset,
            )


def _warn_of_unstated(series: TimeSeries, dark: NDArray[np.float64]) -> None:
    """Bright darkest pixels where products carry an offset and nothing says so, dark [T, C]."""
    new = [
        step
        for step, one in enumerate(series.acquisitions)
        if one.date >= _BASELINE_4 and "nothing states" in one.offset and not np.isnan(dark[step, 0])
    ]
    if new and float(np.median(dark[new].min(axis=1))) > _DARK:
        log.warning(
            "%s: Sentinel-2 products from %s on carry an offset of 1000; nothing states whether it is still "
            "in %d dates, whose darkest pixels reflect %.3f (if it is, say --offset -1000)",
            series.name,
            _BASELINE_4,
            len(new),
            float(np.median(dark[new].min(axis=1))),
        )


def _without_constant(series: TimeSeries, sample: _Sample) -> TimeSeries:
    keep = []
    for step, known in enumerate(sample.valid):
        seen = sample.values[step][:, known]
        constant = len(seen) > 1 and known.sum() >= _ENOUGH and bool((seen == seen.flat[0]).all())
        if constant:
            log.warning(
                "%s: %s shows %.4g in every band and pixel looked at; it is left out as empty "
                "(keep it by naming the number for no data: --nodata)",
                series.name,
                series.dates[step],
                float(seen.flat[0]),
            )
        else:
            keep.append(step)
    if not keep or len(keep) == len(series.dates):
        return series
    steps = series.steps or tuple(range(len(series.dates)))
    return replace(
        series,
        acquisitions=tuple(series.acquisitions[step] for step in keep),
        steps=tuple(steps[step] for step in keep),
    )
