"""Which variables or which places of a dimension of an xarray object are the bands."""

import logging
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from geomix.errors import InputError
from sits.bands import BandLabel, call_bands, identify, name_bands, strangers

log = logging.getLogger(__name__)

_BAND_DIMS = ("band", "bands", "wavelength", "wavelengths", "channel", "channels", "variable", "spectral")
_LEFT_OUT = "%s: bands with a name that is not known are left out: %s (say what they are with --bands)"
Found = dict[str, tuple[Hashable, int | None]]


def find_bands(
    data: xr.Dataset,
    dims: tuple[Hashable, Hashable, Hashable],
    given: Sequence[str] | None,
    name: str,
    known: Sequence[str] = (),
) -> tuple[Hashable | None, Found]:
    """Find the bands: the places of a band dimension, or variables of their own.

    Args:
        data: the object.
        dims: the names of time, y and x.
        given: names of the bands by position from the user.
        name: what messages call it.
        known: further names of bands.

    Returns:
        dim: the band dimension; None where the bands are variables.
        found: the variable and the place of each band.

    Raises:
        InputError: if there are none, or several variables have a band dimension.
    """
    stacked = [
        variable
        for variable, array in data.data_vars.items()
        if set(dims) < set(array.dims) and len(array.dims) == 4
    ]
    if len(stacked) > 1:
        raise InputError(
            f"{name}: variables {', '.join(map(str, stacked))} all have a band dimension; pass the one to use"
        )
    if stacked:
        return _along_dimension(data, stacked[0], dims, given, name, known)
    flat = [variable for variable, array in data.data_vars.items() if set(array.dims) == set(dims)]
    if not flat:
        raise InputError(f"{name}: has no variable over {', '.join(map(str, dims))}")
    labels = [_label(str(variable), data[variable].attrs) for variable in flat]
    if given is None and not any(call_bands(labels, known)):
        raise InputError(
            f"{name}: none of its variables is a band that is known: {', '.join(map(str, flat))}; "
            "rename them to B2, B3, ... or give --bands in their order"
        )
    names = name_bands(labels, given, name, known)
    passed = [str(variable) for variable, band in zip(flat, names, strict=True) if band is None]
    if passed:
        log.info("%s: variables that are no bands: %s", name, ", ".join(passed))
    return None, {
        band: (variable, None) for variable, band in zip(flat, names, strict=True) if band is not None
    }


def layers_in(
    data: xr.Dataset, dims: tuple[Hashable, Hashable, Hashable], band_dim: Hashable | None
) -> Iterator[tuple[str, Hashable, int | None]]:
    """What the variables and the places of the band dimension are called, with where each lies."""
    for variable, array in data.data_vars.items():
        if set(array.dims) == set(dims):
            yield str(variable), variable, None
        elif band_dim in array.dims and band_dim in data.coords:
            for place, value in enumerate(data[band_dim].values):
                yield str(value), variable, place


def _along_dimension(
    data: xr.Dataset,
    variable: Hashable,
    dims: tuple[Hashable, Hashable, Hashable],
    given: Sequence[str] | None,
    name: str,
    known: Sequence[str],
) -> tuple[Hashable, Found]:
    array = data[variable]
    dim = next(dim for dim in array.dims if dim not in dims)
    if str(dim).lower() not in _BAND_DIMS:
        log.info("%s: dimension %r of %r is taken for the bands", name, dim, variable)
    count = array.sizes[dim]
    values: list[Any] = list(data[dim].values) if dim in data.coords else [""] * count
    common = _beside(data, dim, ("common_name", "eo:common_name"))
    waves = _beside(data, dim, ("center_wavelength", "eo:center_wavelength", "wavelength"))
    labels = []
    for place in range(count):
        value = values[place]
        number = isinstance(value, (int, float, np.integer, np.floating))
        # A plain count 1, 2, 3, ... says nothing; wavelengths do.
        wave = float(value) if number and not _counts(values) else waves[place] if waves else None
        text = "" if number else str(value)
        labels.append(BandLabel(text, str(common[place]) if common else "", wave))
    names = name_bands(labels, given, name, known)
    unknown = strangers(labels, names)
    if unknown:
        log.warning(_LEFT_OUT, name, ", ".join(unknown))
    return dim, {band: (variable, place) for place, band in enumerate(names) if band is not None}


def _beside(data: xr.Dataset, dim: Hashable, keys: Sequence[str]) -> list[Any] | None:
    """The values of a coordinate that lies along the band dimension, by one of these names."""
    for key in keys:
        if key in data.coords and key != dim and data[key].dims == (dim,):
            return list(data[key].values)
    return None


def _counts(values: Sequence[Any]) -> bool:
    first = float(values[0])
    return first in (0.0, 1.0) and [float(value) for value in values] == [
        first + step for step in range(len(values))
    ]


def _label(variable: str, attrs: Any) -> BandLabel:
    wave = attrs.get("wavelength", attrs.get("center_wavelength"))
    text = variable
    if identify(BandLabel(variable)) is None and attrs.get("long_name"):
        text = str(attrs["long_name"])
    return BandLabel(text, str(attrs.get("common_name", "")), None if wave is None else float(wave))
