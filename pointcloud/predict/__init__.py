"""Whole clouds in, the same clouds with classes out: every point, in its order, none cut away."""

from pointcloud.predict.clouds import segment as segment
from pointcloud.predict.clouds import segment_file as segment_file
