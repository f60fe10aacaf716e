"""What can go wrong, as a caller would catch it.

Every error of geomix is a `GeomixError` and also the built-in error of its kind. A message says what is
wrong, where, what was found and the way out; the command line prints it as one line and exits with 1.
"""


class GeomixError(Exception):
    """The root of all errors that geomix raises on purpose."""


class InputError(GeomixError, ValueError):
    """The data or an argument contradicts itself or what the model needs."""


class SegmentsError(GeomixError, ValueError):
    """The description of a token layout contradicts itself or the tokens."""


class MissingFileError(GeomixError, FileNotFoundError):
    """A file or folder that should be read is not there."""


class OutputExistsError(GeomixError, FileExistsError):
    """The output is there already and may not be overwritten."""


class FormatError(GeomixError, ValueError):
    """A file is truncated, damaged or of a format that its reader does not know."""


class ConfigError(GeomixError, ValueError):
    """A configuration holds an unknown key or a value out of range."""


class CheckpointError(GeomixError, ValueError):
    """A model file is not one that geomix can load."""


class UnsupportedError(GeomixError, NotImplementedError):
    """The request makes sense, but this part cannot serve it."""


class MissingPackageError(GeomixError, ImportError):
    """An optional package is needed and not installed, or another package took its place."""


class MemoryBudgetError(GeomixError, MemoryError):
    """The work does not fit into the memory that it may use."""


class NonFiniteError(GeomixError, ArithmeticError):
    """A loss or a result is NaN or infinite."""


class ProcessError(GeomixError, RuntimeError):
    """Another process of the same training ended or does not answer."""


_LONGEST = 300


def one_line(error: BaseException | str) -> str:
    """The message of an error as one line that a terminal can show: no control characters, 300 at most."""
    text = " ".join(str(error).split())
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 4]} ..."
