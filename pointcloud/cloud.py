"""The value that crosses all floors of this domain: points with named fields and a memory of their file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomix.errors import InputError


@dataclass(frozen=True, eq=False)
class Source:
    """The file that a cloud was read from, and what its writer needs to write the same file again."""

    path: Path
    format: str
    """The key of the format in `pointcloud.io.FORMATS`."""
    payload: Any = None
    """Whatever the reader of that format keeps for its writer; nobody else looks inside."""
    coord: NDArray[np.float64] | None = None
    """The coordinates as they were read, metres, [N, 3]."""
    numbers: NDArray[np.float64] | None = None
    """The coordinates as the file writes them, [N, 3], where they are not metres."""
    kind: str = ""
    """The format in words where its key says too little, such as `LAZ 1.4, point format 8`."""
    noise: tuple[int, int] | None = None
    """Class ids that the format reserves for low and for high noise."""
    faces: Callable[[], NDArray[np.int64] | None] | None = None
    """Gives the triangles of the mesh whose vertices the points are, [F, 3], in formats that have meshes."""


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points in the order of their file.

    Field names are the same whatever the file calls them:
    `intensity`, `nir` float32 in 0..1; `color` float32 [N, 3] in 0..1; `normal` float32 [N, 3];
    `return_number`, `number_of_returns`; `classification`, the class ids of the file or of a prediction;
    `confidence`, `entropy`; `instance`; `ring`; `scan`, the number of the scan inside an E57 file;
    `invalid`, true where the scanner marked a point as no measurement. Any other field keeps its own name.
    A field that holds no measurement, such as a colour that is black everywhere, is absent.
    """

    coord: NDArray[np.float64]
    """Metres, float64 [N, 3]; degrees and metres of height where `unit` says so."""
    fields: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    crs: str | None = None
    """Coordinate reference system as WKT, where the file names one."""
    unit: str = "metre"
    """`metre`, or `degree` for longitude and latitude; feet are metres by the time they arrive here."""
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.coord.ndim != 2 or self.coord.shape[1] != 3 or self.coord.dtype != np.float64:
            raise InputError(
                f"coord must be float64 [N, 3], got {self.coord.dtype} {list(self.coord.shape)}; "
                "Cloud.from_arrays converts"
            )
        for name, values in self.fields.items():
            if values.shape[:1] != (len(self.coord),):
                raise InputError(
                    f"field {name!r} must have one row for each of the {len(self.coord)} points, "
                    f"got {list(values.shape)}"
                )

    @classmethod
    def from_arrays(cls, coord: ArrayLike, **fields: ArrayLike) -> Self:
        """Build a cloud from anything numpy takes: coordinates in metres [N, 3] and one array a field."""
        coordinates = np.asarray(coord, dtype=np.float64)
        if coordinates.size == 0:
            coordinates = coordinates.reshape(0, 3)
        return cls(coordinates, {name: np.asarray(values) for name, values in fields.items()})

    def __len__(self) -> int:
        return len(self.coord)

    @property
    def name(self) -> str:
        """The file name for messages, or `cloud` where there is no file."""
        return str(self.source.path) if self.source else "cloud"

    @property
    def file_coord(self) -> NDArray[np.float64]:
        """Coordinates in the unit of the file, as they are written again, [N, 3]."""
        source = self.source
        is_as_read = source is not None and source.numbers is not None and source.coord is self.coord
        return source.numbers if source and source.numbers is not None and is_as_read else self.coord

    def with_fields(self, **fields: NDArray[Any]) -> Self:
        """The same cloud with these fields added or replaced."""
        return replace(self, fields={**self.fields, **fields})

    def take(self, points: NDArray[Any]) -> Self:
        """The cloud of some points, by a mask [N] or by their numbers; it cannot be written as its file."""
        source = self.source and Source(self.source.path, self.source.format)
        fields = {name: values[points] for name, values in self.fields.items()}
        return replace(self, coord=self.coord[points], fields=fields, source=source)

    def measured(self) -> NDArray[np.bool_]:
        """Which points are measurements, bool [N].

        Not measured are NaN and infinite coordinates, points that the scanner marked `invalid`, and the
        exact zeros that sensors write where nothing came back: two or more points at (0, 0, 0), which in a
        sensor's own frame is inside the sensor. LAS keeps its zeros: there a missing return has no record.
        """
        measured = np.asarray(np.isfinite(self.coord).all(axis=1))
        if "invalid" in self.fields:
            measured &= ~self.fields["invalid"].astype(bool)
        if self.source is None or self.source.format != "las":
            zero = (self.coord == 0).all(axis=1)
            if np.count_nonzero(zero) >= 2:
                measured &= ~zero
        return measured
