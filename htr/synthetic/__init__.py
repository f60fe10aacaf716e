"""Lines and pages written by a font, for tests, the demo and a first look. They prove the plumbing only.

The font is Caveat (SIL Open Font License 1.1, see `data/caveat-OFL.txt`).
"""

from htr.synthetic.draw import draw_line, draw_page, synthetic_samples
from htr.synthetic.words import sentence

__all__ = ["draw_line", "draw_page", "sentence", "synthetic_samples"]
