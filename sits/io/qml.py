"""The style that QGIS loads by itself when it lies beside a raster: `map.qml`."""

from pathlib import Path

from lxml import etree

from sits.io.legend import Legend


def qml_path(raster: Path) -> Path:
    """The style file of a raster."""
    return raster.with_suffix(".qml")


def qml_text(legend: Legend) -> bytes:
    """A paletted style with the names and colours of the classes."""
    root = etree.Element("qgis", version="3.28", styleCategories="Symbology")
    pipe = etree.SubElement(root, "pipe")
    renderer = etree.SubElement(
        pipe, "rasterrenderer", type="paletted", band="1", opacity="1", alphaBand="-1", nodataColor=""
    )
    palette = etree.SubElement(renderer, "colorPalette")
    for entry in legend.by_code:
        etree.SubElement(
            palette, "paletteEntry", value=str(entry.id), label=entry.name, color=entry.color, alpha="255"
        )
    doctype = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>"
    return bytes(etree.tostring(root, pretty_print=True, encoding="UTF-8", doctype=doctype))
