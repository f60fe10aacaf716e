"""Lines and pages written by a font, for tests, the demo and a first look, or beside real lines in training.

The font that comes with it is Caveat (SIL Open Font License 1.1, see `data/caveat-OFL.txt`).
"""

from htr.synthetic.draw import FONT, draw_line, draw_page, synthetic_samples
from htr.synthetic.fonts import find_fonts, font_lines
from htr.synthetic.words import sentence

__all__ = ["FONT", "draw_line", "draw_page", "find_fonts", "font_lines", "sentence", "synthetic_samples"]
