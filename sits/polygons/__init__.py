"""Maps and polygons: what a map says of each parcel, and the outlines of its classes."""

from sits.polygons.outline import polygonize_file
from sits.polygons.zonal import zonal, zonal_file

__all__ = ["polygonize_file", "zonal", "zonal_file"]
