"""A made-up countryside: parcels, crops that grow, clouds and irregular dates.

It proves that everything is connected and that time matters; it says nothing about accuracy on real land.
"""

from sits.synthetic.phenology import BANDS, CLASSES
from sits.synthetic.scene import Scene, make_scene
from sits.synthetic.write import write_geotiffs, write_pastis

__all__ = ["BANDS", "CLASSES", "Scene", "make_scene", "write_geotiffs", "write_pastis"]
