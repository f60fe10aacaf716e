"""The architecture of a time-series model, as configurations and cards write it down."""

from typing import Any, Literal

from pydantic import Field, model_validator

from geomix.config import Config

MixerSpec = dict[str, Any]


class Stage(Config):
    """One encoder."""

    depth: int = Field(4, ge=0)
    """Number of blocks; 0 leaves the encoder out (spatial only)."""
    mixer: MixerSpec | list[MixerSpec] = Field({"name": "pom"})
    """The token mixer, or one an entry for each block."""
    mlp_ratio: float = Field(4.0, gt=0)
    """Width of the hidden layer of the MLPs over `dim`."""


class ModelConfig(Config):
    """Architecture of TSViPoM and TSViT."""

    bands: int = Field(gt=0)
    """Number of bands of an image."""
    classes: int = Field(gt=1)
    dim: int = Field(128, gt=0)
    """Channels of a token."""
    patch: int = Field(2, gt=0)
    """Side of the square of pixels that makes a token, pixels."""
    temporal: Stage = Stage()
    spatial: Stage = Stage()
    causal: bool = False
    """Dates read earlier dates only: the state can be kept and a new date added."""
    day_code: Literal["sincos", "table"] = "sincos"
    """How a date is told to the model: waves of any day, or a learned table of 366 rows (published TSViT)."""
    place_code: Literal["sincos", "table", "none"] = "none"
    """How a place is told to the spatial encoder: not at all, by a table of the places of one tile, or by
    waves that count from the corner of the raster, so that a part of a scene gives another map."""
    tile: int | None = Field(None, gt=0)
    """Side of the tiles into which every image is cut, pixels; a table of places needs it. None: not cut."""
    window: int | None = Field(None, gt=0)
    """Side of the spatial context of each patch, patches (odd); None: the whole tile or image."""
    window_metres: float | None = Field(None, gt=0)
    """The same in metres; the nearest odd number of patches at `pixel_metres` is taken."""
    pixel_metres: float = Field(10.0, gt=0)
    """Side of a pixel of the images that the model is trained on, metres."""
    fill_dates: int | None = Field(None, gt=0)
    """Every series is brought to this many dates, as for the published TSViT: a shorter one is filled with
    zero images of day 0 that count as seen; of a longer one the first in the order of `days` stay. None:
    every series keeps its dates."""
    pixel_order: Literal["patch", "published"] = "patch"
    """Where the outputs of the head go: to the pixels of their own patch, or, as in the published TSViT, to
    the pixels of the tile row by row, patch after patch."""
    dropout: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.place_code == "table" and (self.tile is None or self.tile % self.patch):
            raise ValueError(f"place_code table needs a tile of whole patches, got tile {self.tile}")
        if self.window is not None and self.window_metres is not None:
            raise ValueError("give window or window_metres, not both")
        if self.window is not None and self.window % 2 == 0:
            raise ValueError(f"window must be odd, so that it has a middle, got {self.window}")
        if self.fill_dates is not None and self.causal:
            raise ValueError("fill_dates repeats what was published, where nothing is causal")
        if self.pixel_order == "published" and self.tile is None:
            raise ValueError("pixel_order published needs a tile, over which the head's outputs run")
        if self.temporal.depth < 1:
            raise ValueError("the temporal encoder needs at least one block")
        return self

    @property
    def unit(self) -> int:
        """Side of the squares of pixels that are laid on multiples of it on the map: tiles or patches."""
        return self.tile or self.patch

    @property
    def halo(self) -> int | None:
        """Pixels of context that a window needs on each side; None where the whole scene is the context."""
        if not self.spatial.depth or self.tile is not None:
            return 0
        return None if self.context is None else self.spatial.depth * (self.context // 2) * self.patch

    @property
    def reach(self) -> int | None:
        """How far from a pixel another can lie and still count, pixels; None where the whole scene counts.

        Pixels further than this from the edge of a scene do not know that it ends there.
        """
        return None if self.halo is None else self.halo + self.unit - 1

    @property
    def context(self) -> int | None:
        """Side of the spatial context, patches; None for all there is."""
        if self.window_metres is None:
            return self.window
        return 2 * round((self.window_metres / (self.patch * self.pixel_metres) - 1) / 2) + 1
