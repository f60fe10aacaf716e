"""Maps out: Cloud-Optimised GeoTIFF with names and colours, styles, quicklook and STAC item."""

from sits.outputs.cog import Layer, Sink, new_cog
from sits.outputs.legend import NODATA, Legend, read_legend
from sits.outputs.pam import pam_path, pam_text
from sits.outputs.qml import qml_path, qml_text
from sits.outputs.quicklook import write_quicklook
from sits.outputs.series import write_series

__all__ = [
    "NODATA",
    "Layer",
    "Legend",
    "Sink",
    "new_cog",
    "pam_path",
    "pam_text",
    "qml_path",
    "qml_text",
    "read_legend",
    "write_quicklook",
    "write_series",
]
