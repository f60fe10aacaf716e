"""Satellite image time series become georeferenced class maps."""
