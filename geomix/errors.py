"""The errors that a caller can catch.

Every error of geomix is a `GeomixError` and also a built-in error of its kind. A message says what is wrong,
where, what was found and the way out. The command line prints it as one line and exits with 1.
"""


class GeomixError(Exception):
    """The root of all errors that geomix raises on purpose."""


class InputError(GeomixError, ValueError):
    """The data or an argument contradict themselves or do not fit the model."""


class SegmentsError(GeomixError, ValueError):
    """The description of a token layout contradicts itself or does not fit the tokens."""


class MissingFileError(GeomixError, FileNotFoundError):
    """A file or folder to be read does not exist."""


class OutputExistsError(GeomixError, FileExistsError):
    """The output exists already and may not be overwritten."""


class FormatError(GeomixError, ValueError):
    """A file is truncated, damaged or in an unknown format."""


class ConfigError(GeomixError, ValueError):
    """A configuration holds an unknown key or a value out of range."""


class CheckpointError(GeomixError, ValueError):
    """A model file is not one that geomix can load."""


class UnsupportedError(GeomixError, NotImplementedError):
    """The request is valid, but this part of geomix does not support it."""


class MissingPackageError(GeomixError, ImportError):
    """A required optional package is not installed, or another package took its import name."""


class MemoryBudgetError(GeomixError, MemoryError):
    """The work does not fit into its memory budget."""


class NonFiniteError(GeomixError, ArithmeticError):
    """A loss or a result is NaN or infinite."""


class ProcessError(GeomixError, RuntimeError):
    """Another process of the same training has ended or does not answer."""


_LONGEST = 300


def one_line(error: BaseException | str) -> str:
    """The message of an error as one line that a terminal can show: no control characters, 300 at most."""
    text = " ".join(str(error).split())
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 4]} ..."
