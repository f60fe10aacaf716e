"""Scanned handwritten pages become text."""
