"""PPoMv3, readable top to bottom: the encoder-decoder of PTv3 with any mixer in its blocks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from geomix.config import parse_config
from geomix.errors import InputError, MemoryBudgetError
from geomix.learn.trees import TreesConfig
from geomix.memory import format_memory
from pointcloud.model.config import ModelConfig
from pointcloud.model.forest import Forest
from pointcloud.model.layers import Block, Down, TokenNorm, Up, in_slices
from pointcloud.model.memory import estimate
from pointcloud.model.scene import Stage, coarser, first_stage
from pointcloud.sparse import SubmanifoldConv

_SLICES = (1 << 18, 1 << 16, 1 << 14, 1 << 12)


def run_blocks(
    blocks: nn.ModuleList,
    x: Tensor,
    stage: Stage,
    orders: list[str],
    skip: Tensor | None,
    slice_tokens: int | None,
) -> Tensor:
    """Send voxels through the blocks of a stage, which go through the curves in turn."""
    for i, block in enumerate(blocks):
        x = block(x, stage, orders[i % len(orders)], skip, slice_tokens)
    return x


class EncoderStage(nn.Module):
    """Pooling from the finer stage, except at the finest, then blocks."""

    def __init__(self, config: ModelConfig, stage: int, drops: list[float]) -> None:
        super().__init__()
        channels = config.encoder_channels[stage]
        self.down = Down(config.encoder_channels[stage - 1], channels) if stage else None
        self.blocks = nn.ModuleList(
            Block(channels, *config.encoder_mixer(stage, i), config.mlp_ratio, drops[i])
            for i in range(config.encoder_depths[stage])
        )


class DecoderStage(nn.Module):
    """Unpooling from the coarser stage, then blocks."""

    def __init__(self, config: ModelConfig, stage: int, drops: list[float]) -> None:
        super().__init__()
        widths = (*config.decoder_channels, config.encoder_channels[-1])
        channels = config.decoder_channels[stage]
        self.up = Up(widths[stage + 1], config.encoder_channels[stage], channels)
        self.blocks = nn.ModuleList(
            Block(
                channels, *config.decoder_mixer(stage, i), config.mlp_ratio, drops[i],
                code_from_skip=config.published and i == 0,
            )
            for i in range(config.decoder_depths[stage])
        )  # fmt: skip


class PPoMv3(nn.Module):
    """Voxels with features in, one score a class and voxel out.

    Args:
        config: sizes, and the mixer and window of every block.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        stages = len(config.encoder_depths)
        width = config.encoder_channels[0]
        self.stem = SubmanifoldConv(config.in_channels, width, config.stem_kernel, bias=False)
        self.stem_norm = TokenNorm(width)
        drops = _drops(config.encoder_depths, config.drop_path)
        self.encoder = nn.ModuleList(EncoderStage(config, s, drops[s]) for s in range(stages))
        drops = [rates[::-1] for rates in _drops(config.decoder_depths, config.drop_path)]
        self.decoder = nn.ModuleList(DecoderStage(config, s, drops[s]) for s in range(stages - 1))
        self.head = nn.Linear((*config.decoder_channels, config.encoder_channels[-1])[0], config.classes)

    def forward(
        self, grid_coord: Tensor, feat: Tensor, cu_seqlens: Tensor | None = None, *, memory: int | None = None
    ) -> Tensor:
        """Score the voxels of one or more clouds; clouds of a batch do not see each other.

        Args:
            grid_coord: distinct voxels of each cloud, integer, from 0, [M, 3].
            feat: features, [M, F].
            cu_seqlens: where each cloud starts and the last one ends, [clouds + 1]; None for one cloud.
            memory: bytes that may be used. Where the scene needs more, token-wise work streams in slices:
                every block first observes all voxels and then reads, so nothing is cut. Inference only.

        Returns:
            Scores before softmax, [M, classes], in the order of the input.

        Raises:
            InputError: if shapes disagree or a voxel occurs twice in a cloud.
            MemoryBudgetError: if even the smallest slices need more than `memory`.
        """
        cu_seqlens = self._check(grid_coord, feat, cu_seqlens)
        if len(feat) == 0:
            return feat.new_zeros(0, self.config.classes)
        slice_tokens = None if memory is None else self.slice_for(len(feat), memory)
        if slice_tokens is not None and torch.is_grad_enabled():
            raise InputError("a memory budget is for inference: call the model inside torch.no_grad()")
        stage, order = first_stage(grid_coord.long(), cu_seqlens, self._curves(), self.config.published)
        scores = in_slices(self.head, self._features(feat[order], stage, slice_tokens), slice_tokens)
        return torch.empty_like(scores).index_copy(0, order, scores)

    def _features(self, feat: Tensor, stage: Stage, slice_tokens: int | None) -> Tensor:
        x = self.stem(feat, stage.table(self.config.stem_kernel))
        if self.config.stem_kernel != 3:
            stage.forget_table(self.config.stem_kernel)
        x = in_slices(lambda part: nn.functional.gelu(self.stem_norm(part)), x, slice_tokens)
        orders = self._orders()
        skips = []
        for encoder in self.encoder_stages:
            if encoder.down is not None:
                fine = stage
                stage, pooling = coarser(fine)
                skips.append((x, fine, pooling, orders))
                x, orders = encoder.down(x, pooling, slice_tokens), self._orders()
            x = run_blocks(encoder.blocks, x, stage, orders, None, slice_tokens)
        for decoder in reversed(self.decoder_stages):
            skip, stage, pooling, orders = skips.pop()
            x, skip = decoder.up(x, skip, pooling, slice_tokens)
            x = run_blocks(decoder.blocks, x, stage, orders, skip, slice_tokens)
        return x

    @property
    def encoder_stages(self) -> list[EncoderStage]:
        """The stages of the encoder, finest first."""
        return [stage for stage in self.encoder if isinstance(stage, EncoderStage)]

    @property
    def decoder_stages(self) -> list[DecoderStage]:
        """The stages of the decoder, finest first."""
        return [stage for stage in self.decoder if isinstance(stage, DecoderStage)]

    def _orders(self) -> list[str]:
        """The curves of a stage: as listed in prediction, so that it repeats; drawn anew in training."""
        orders = list(self.config.orders)
        if not (self.training and self.config.shuffle_orders):
            return orders
        return [orders[i] for i in torch.randperm(len(orders)).tolist()]

    def _curves(self) -> tuple[str, ...]:
        windowed = any(isinstance(m, Block) and m.patch_size is not None for m in self.modules())
        return self.config.orders if windowed else ()

    def _check(self, grid_coord: Tensor, feat: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        if feat.ndim != 2 or feat.shape[1] != self.config.in_channels or grid_coord.shape != (len(feat), 3):
            raise InputError(
                f"this model takes voxels [M, 3] with features [M, {self.config.in_channels}], "
                f"got {[*grid_coord.shape]} and {[*feat.shape]}"
            )
        if cu_seqlens is None:
            return torch.tensor([0, len(feat)], device=feat.device)
        if len(cu_seqlens) < 1 or int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != len(feat):
            got = cu_seqlens.tolist()[:9]
            raise InputError(f"cu_seqlens must run from 0 to the {len(feat)} voxels, got {got}")
        return cu_seqlens.long().to(feat.device)

    def memory_estimate(self, voxels: int, slice_tokens: int | None = None) -> int:
        """Bytes that a prediction of `voxels` voxels needs beside the weights; an upper estimate.

        Args:
            voxels: number of voxels of all clouds together.
            slice_tokens: tokens worked on at a time; None for all at once.
        """
        return estimate(self.config, voxels, slice_tokens)

    def slice_for(self, voxels: int, memory: int) -> int | None:
        """The largest slice of tokens that keeps a prediction within `memory` bytes; None: all at once.

        Raises:
            MemoryBudgetError: if even the smallest slice needs more.
        """
        for slice_tokens in (None, *_SLICES):
            if self.memory_estimate(voxels, slice_tokens) <= memory:
                return slice_tokens
        least = self.memory_estimate(voxels, _SLICES[-1])
        raise MemoryBudgetError(
            f"{voxels:,} voxels need {format_memory(least)} even in the smallest slices, "
            f"but {format_memory(memory)} may be used; raise --memory or use a model with larger voxels"
        )


def _drops(depths: tuple[int, ...], highest: float) -> list[list[float]]:
    """Drop rates a stage, rising evenly from 0 to `highest`."""
    blocks = sum(depths)
    rates = [highest * i / max(blocks - 1, 1) for i in range(blocks)]
    starts = [sum(depths[:stage]) for stage in range(len(depths))]
    return [rates[start : start + depth] for start, depth in zip(starts, depths, strict=True)]


def build_model(config: Mapping[str, Any]) -> PPoMv3 | Forest:
    """Build a network, or the empty arrays of a forest, from the `model` part of a configuration or card.

    Raises:
        ConfigError: if a key is unknown or a value does not fit.
    """
    if "trees" in config:
        return Forest(parse_config(TreesConfig, config, "model"))
    return PPoMv3(parse_config(ModelConfig, config, "model"))


def parameters_by_stage(model: PPoMv3) -> list[tuple[str, int]]:
    """Name and number of parameters of each part, top to bottom."""
    parts: list[tuple[str, nn.Module]] = [("stem", nn.ModuleList([model.stem, model.stem_norm]))]
    parts += [(f"encoder {level}", stage) for level, stage in enumerate(model.encoder_stages)]
    parts += [(f"decoder {level}", stage) for level, stage in reversed([*enumerate(model.decoder_stages)])]
    parts.append(("head", model.head))
    return [(name, sum(p.numel() for p in part.parameters())) for name, part in parts]
