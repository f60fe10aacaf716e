"""Public names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and the `__dir__` of a package, so that importing it does not wait for torch.

    Args:
        package: its name.
        homes: public name -> module that defines it.
    """

    def getattr_of_package(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return getattr_of_package, dir_of_package
