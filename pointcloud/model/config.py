"""What a PPoMv3 is made of, and which mixer each block gets."""

from typing import Any, Self

from pydantic import Field, model_validator

from geomix.config import Config
from geomix.errors import ConfigError
from pointcloud.serialization import ORDERS

MixerSpec = dict[str, Any]
Mixers = MixerSpec | list[MixerSpec]


class ModelConfig(Config):
    """The encoder and decoder of PTv3 with the mixer of every block set by configuration."""

    in_channels: int = Field(ge=1)
    """Features a voxel."""
    classes: int = Field(ge=1)
    """Number of outputs a voxel."""
    stem_kernel: int = Field(default=5, ge=1)
    """Edge of the first convolution in voxels, odd."""
    encoder_depths: tuple[int, ...] = (2, 2, 2, 6, 2)
    """Blocks of each stage, finest first; each stage halves the grid."""
    encoder_channels: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Channels of each stage."""
    decoder_depths: tuple[int, ...] = (2, 2, 2, 2)
    """Blocks of each decoder stage, finest first; one stage less than the encoder."""
    decoder_channels: tuple[int, ...] = (64, 64, 128, 256)
    """Channels of each decoder stage, finest first."""
    head_dim: int = Field(default=16, ge=1)
    """Channels of an attention head."""
    mlp_ratio: float = Field(default=4.0, gt=0)
    """Hidden channels of an MLP for each of its channels."""
    mixer: Mixers = Field(default_factory=lambda: {"name": "pom"})
    """The mixer of every block, or a list that the blocks of a stage go through in turn. A mixer may carry
    its own `patch_size`; `gate_heads: channels` gives a PoM one gate for each channel of its stage."""
    encoder_mixers: tuple[Mixers, ...] | None = None
    """One `mixer` entry an encoder stage, in place of `mixer`."""
    decoder_mixers: tuple[Mixers, ...] | None = None
    """One `mixer` entry a decoder stage, finest first, in place of `mixer`."""
    patch_size: int | None = Field(default=1024, ge=1)
    """Voxels of a window on the curve; null: the whole scan is one sequence."""
    orders: tuple[str, ...] = ORDERS
    """The curves that the blocks of a stage go through in turn."""
    shuffle_orders: bool = True
    """Draw the curves anew at every stage while training; prediction always uses them as listed."""
    drop_path: float = Field(default=0.3, ge=0, lt=1)
    """Share of residual branches left out for a whole cloud while training, rising from 0 with depth."""
    published: bool = False
    """Compute exactly what the published PTv3 code computes with its shuffling off: the last window borrows
    the points before it, the depth of the curve follows the extent, and the first convolution of a decoder
    stage sees the skip connection alone. For imported weights."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        stages = len(self.encoder_depths)
        lengths = {
            "encoder_channels": (len(self.encoder_channels), stages),
            "decoder_depths": (len(self.decoder_depths), stages - 1),
            "decoder_channels": (len(self.decoder_channels), stages - 1),
            "encoder_mixers": (len(self.encoder_mixers or ()), stages if self.encoder_mixers else 0),
            "decoder_mixers": (len(self.decoder_mixers or ()), stages - 1 if self.decoder_mixers else 0),
        }
        for name, (got, wanted) in lengths.items():
            if got != wanted:
                raise ValueError(f"{name} needs {wanted} entries for {stages} encoder stages, got {got}")
        unknown = [order for order in self.orders if order not in ORDERS]
        if unknown or not self.orders:
            got_orders = ", ".join(unknown) or "none"
            raise ValueError(f"orders are one or more of {', '.join(ORDERS)}, got {got_orders}")
        if self.stem_kernel % 2 == 0:
            raise ValueError(f"stem_kernel must be odd, got {self.stem_kernel}")
        if min(self.encoder_depths + self.decoder_depths, default=0) < 0:
            raise ValueError("a stage has 0 or more blocks")
        return self

    def encoder_mixer(self, stage: int, block: int) -> tuple[MixerSpec, int | None]:
        """Mixer and window of a block of the encoder."""
        chosen = self.mixer if self.encoder_mixers is None else self.encoder_mixers[stage]
        return self._mixer(chosen, block, self.encoder_channels[stage])

    def decoder_mixer(self, stage: int, block: int) -> tuple[MixerSpec, int | None]:
        """Mixer and window of a block of the decoder."""
        chosen = self.mixer if self.decoder_mixers is None else self.decoder_mixers[stage]
        return self._mixer(chosen, block, self.decoder_channels[stage])

    def _mixer(self, chosen: Mixers, block: int, channels: int) -> tuple[MixerSpec, int | None]:
        listed = chosen if isinstance(chosen, list) else [chosen]
        if not listed:
            raise ConfigError("a list of mixers needs one or more entries")
        spec = dict(listed[block % len(listed)])
        patch_size: int | None = spec.pop("patch_size", self.patch_size)
        if patch_size is not None and patch_size < 1:
            raise ConfigError(f"patch_size is 1 or more voxels, or null for the whole scan, got {patch_size}")
        if spec.get("name") == "attention":
            spec = {"heads": max(channels // self.head_dim, 1), "qkv_bias": True, **spec}
        if spec.get("gate_heads") == "channels":
            spec["gate_heads"] = channels
        return spec, patch_size
