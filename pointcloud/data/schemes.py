"""Class schemes that collections of tiles use, by name; a table of the user says any other."""

from collections.abc import Mapping
from pathlib import Path

from geomix.checkpoint import ClassInfo
from geomix.config import hint
from geomix.errors import InputError
from geomix.learn.classes import ClassMap, read_classes

_COMMON = {
    2: ("ground", "#b08a5a"),
    3: ("low vegetation", "#c8e678"),
    4: ("medium vegetation", "#6ab93c"),
    5: ("high vegetation", "#1e6e28"),
    6: ("building", "#d2413c"),
    9: ("water", "#3c82d2"),
    17: ("bridge deck", "#8c78c8"),
}
_ASPRS = _COMMON | {
    10: ("rail", "#5a4632"),
    11: ("road surface", "#787878"),
    13: ("wire guard", "#f0c83c"),
    14: ("wire conductor", "#f0a01e"),
    15: ("transmission tower", "#dc7814"),
    16: ("wire connector", "#be5a0a"),
    19: ("overhead structure", "#aa6eaa"),
    21: ("snow", "#e6f0fa"),
}
_IGN = _COMMON | {64: ("lasting above ground", "#c86ea0")}
_AHN = {
    1: ("vegetation and other", "#6ab93c"),
    2: _COMMON[2],
    6: _COMMON[6],
    9: _COMMON[9],
    14: ("high tension", "#f0a01e"),
    26: ("bridge and structure", "#8c78c8"),
}


def _scheme(classes: Mapping[int, tuple[str, str]], left_out: tuple[int, ...]) -> ClassMap:
    found = tuple(ClassInfo(id=code, name=name, color=color) for code, (name, color) in classes.items())
    return ClassMap(found, {str(code): code for code in classes} | {str(code): None for code in left_out})


# Ids without a class: never classified, unclassified, noise, overlap, artefacts and synthetic points.
SCHEMES = {
    "asprs": _scheme(_ASPRS, (0, 1, 7, 8, 12, 18, 20, 22)),
    "ign": _scheme(_IGN, (0, 1, 7, 18, 65, 66, 67)),
    "ahn": _scheme(_AHN, (0, 7, 8, 12, 18)),
}
"""`asprs`: LAS 1.4, table 17; `ign`: LiDAR HD; `ahn`: AHN3 and later, whose class 1 holds all vegetation."""


def class_map(classes: str | Path | None) -> ClassMap:
    """The classes of labelled tiles.

    Args:
        classes: name of a scheme, or a table with the columns from, to, name, color; None for `asprs`.

    Raises:
        InputError: if it is neither a scheme nor a file.
    """
    name = "asprs" if classes is None else str(classes)
    if name in SCHEMES:
        return SCHEMES[name]
    if not Path(name).suffix:
        raise InputError(
            f"there is no class scheme {name!r}{hint(name, SCHEMES)}; the schemes are {', '.join(SCHEMES)}, "
            "or give a table map.csv with the columns from, to, name, color"
        )
    return read_classes(Path(name))
