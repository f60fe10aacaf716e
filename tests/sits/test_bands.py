import pytest

from geomix.errors import InputError
from sits.bands import BandLabel, canonical, identify, name_bands, require_bands


@pytest.mark.parametrize(
    ("text", "band"),
    [
        ("B02", "B2"),
        ("b2", "B2"),
        ("band 8a", "B8A"),
        ("S2-L2A-B02", "B2"),
        ("T31TCJ_20200101T105401_B8A_20m", "B8A"),
        ("B11", "B11"),
        ("blue", "B2"),
        ("nir08", "B8A"),
        ("swir22", "B12"),
        ("B13", None),
        ("rededge", None),
        ("lyr1", None),
        ("S1-SIGMA0-VH", None),
        ("NDVI", None),
    ],
)
def test_a_band_is_known_by_its_names(text, band):
    assert canonical(text) == band


@pytest.mark.parametrize(
    ("wavelength", "band"),
    [(0.49, "B2"), (842, "B8"), (865, "B8A"), (1.61, "B11"), (2201, "B12"), (600, None)],
)
def test_a_band_is_known_by_its_wavelength(wavelength, band):
    assert identify(BandLabel("layer", wavelength=wavelength)) == band


def test_positions_alone_are_refused():
    with pytest.raises(InputError, match=r"2 bands have no name.*--bands B2,B3"):
        name_bands([BandLabel("lyr.1"), BandLabel("lyr.2")], None, "a.tif")


def test_given_names_count_by_position():
    labels = [BandLabel("lyr.1"), BandLabel("lyr.2")]
    assert name_bands(labels, ["B04", "cloud"], "a.tif") == ("B4", "cloud")
    with pytest.raises(InputError, match="has 2 bands, but 1 names"):
        name_bands(labels, ["B4"], "a.tif")


def test_a_band_that_comes_twice_is_refused():
    with pytest.raises(InputError, match="B2 comes 2 times"):
        name_bands([BandLabel("B2"), BandLabel("blue")], None, "a.tif")


def test_a_missing_band_is_named_with_what_is_there():
    with pytest.raises(InputError, match=r"lacks band B8A, which the model needs; found B2, B3"):
        require_bands(["B2", "B8A"], ["B2", "B3"], "a.nc")
