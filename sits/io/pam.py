"""The side file through which GDAL and QGIS know the names of classes: PAM, `map.tif.aux.xml`."""

from pathlib import Path

from lxml import etree

from sits.io.legend import Legend

_COLUMNS = (("Value", 0, 5), ("Class", 2, 2), ("Red", 0, 6), ("Green", 0, 7), ("Blue", 0, 8))
"""Name, type (0 integer, 2 text) and usage (GDALRATFieldUsage) of the columns of the attribute table."""


def pam_path(raster: Path) -> Path:
    """The side file of a raster."""
    return raster.with_name(raster.name + ".aux.xml")


def pam_text(legend: Legend) -> bytes:
    """Category names and an attribute table with colours.

    Source: https://gdal.org/en/stable/drivers/raster/pam.html
    """
    root = etree.Element("PAMDataset")
    band = etree.SubElement(root, "PAMRasterBand", band="1")
    names = {entry.id: entry.name for entry in legend.classes}
    categories = etree.SubElement(band, "CategoryNames")
    for code in range(max(names) + 1):
        # The list counts codes from 0, so that a code without a class takes an empty place.
        etree.SubElement(categories, "Category").text = names.get(code, "")
    table = etree.SubElement(band, "GDALRasterAttributeTable", tableType="thematic")
    for index, (name, kind, usage) in enumerate(_COLUMNS):
        column = etree.SubElement(table, "FieldDefn", index=str(index))
        for tag, value in (("Name", name), ("Type", kind), ("Usage", usage)):
            etree.SubElement(column, tag).text = str(value)
    for index, entry in enumerate(legend.by_code):
        row = etree.SubElement(table, "Row", index=str(index))
        for value in (entry.id, entry.name, *entry.rgb):
            etree.SubElement(row, "F").text = str(value)
    return bytes(etree.tostring(root, pretty_print=True, encoding="UTF-8"))
