"""Files in and out: page images, PAGE XML, ALTO, text and JSON."""
