"""The mixer in slices of tokens that fit the cache, in plain torch, on any device."""

from geomix.ops.cpu import compiled
from geomix.ops.cpu.op import mix, observe

__all__ = ["compiled", "mix", "observe"]
