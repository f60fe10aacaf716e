"""Label whole scans, whole satellite scenes and whole handwritten pages with a token mixer of linear cost.

This package is the core: it knows tokens, not domains. The names below are imported when they are first
used, so that `import geomix` and `geomix --help` do not wait for torch.
"""

from typing import TYPE_CHECKING

from geomix.lazy import lazy

if TYPE_CHECKING:
    from geomix.checkpoint import load_model as load_model
    from geomix.encoder import Encoder as Encoder
    from geomix.mixers import Attention as Attention
    from geomix.mixers import PoM as PoM
    from geomix.segments import Segments as Segments

__version__ = "0.1.0"

_HOMES = {
    "Attention": "geomix.mixers",
    "Encoder": "geomix.encoder",
    "PoM": "geomix.mixers",
    "Segments": "geomix.segments",
    "load_model": "geomix.checkpoint",
}

__all__ = ["Attention", "Encoder", "PoM", "Segments", "__version__", "load_model"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
