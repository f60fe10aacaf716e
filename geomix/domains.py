"""The table of the domains. The core reaches them only through it, by name and at call time."""

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from geomix.config import hint
from geomix.errors import ConfigError, MissingPackageError

DOMAINS = {
    "sits": "Satellite image time series to georeferenced class maps.",
    "pointcloud": "Point clouds of any format to the same clouds with classes.",
    "htr": "Scanned handwritten pages to text, PAGE XML and ALTO.",
}


def room(domain: str, name: str) -> ModuleType:
    """Import one room of a domain, such as `model` or `bench`.

    Raises:
        ConfigError: if there is no such domain.
        MissingPackageError: if another installed package took the import name of the domain.
    """
    if domain not in DOMAINS:
        raise ConfigError(f"unknown domain {domain!r}{hint(domain, DOMAINS)}")
    if domain_folder(domain) is None:
        raise intruder(domain)
    try:
        return import_module(f"{domain}.{name}")
    except ImportError as error:
        if _other_owners(domain):
            raise intruder(domain) from error
        raise


def domain_folder(domain: str) -> Path | None:
    """The folder of the package of a domain; None if another package took its import name."""
    spec = find_spec(domain)
    home = Path(__file__).parent.parent
    if spec is None or spec.origin is None or Path(spec.origin).parent.parent != home:
        return None
    return home / domain


def installed_domains() -> Iterator[tuple[str, Path]]:
    """Each domain whose package is geomix's own, with its folder."""
    for domain in DOMAINS:
        folder = domain_folder(domain)
        if folder is not None:
            yield domain, folder


def _other_owners(domain: str) -> list[str]:
    return sorted(set(packages_distributions().get(domain, [])) - {"geomix"})


def intruder(domain: str) -> MissingPackageError:
    """The error that names the installed package that hides a domain, and the way out."""
    owners = ", ".join(_other_owners(domain)) or "a folder of that name on the import path"
    return MissingPackageError(
        f"the import name {domain!r} is taken by {owners}, which hides geomix's files; "
        f"install geomix in an environment of its own"
    )
