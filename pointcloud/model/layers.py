"""The layers of PPoMv3, each in the form for training and in slices for scenes larger than memory."""

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor, nn

from geomix import Segments
from geomix.mixers import State, build_mixer
from pointcloud.model.config import MixerSpec
from pointcloud.model.scene import Context, Pooling, Stage
from pointcloud.sparse import SubmanifoldConv


def in_slices(function: Callable[[Tensor], Tensor], x: Tensor, size: int | None) -> Tensor:
    """Apply a token-wise function to `size` tokens at a time, so that its temporaries stay small."""
    if size is None or len(x) <= size:
        return function(x)
    first = function(x[:size])
    out = first.new_empty(len(x), *first.shape[1:])
    out[:size] = first
    for start in range(size, len(x), size):
        out[start : start + size] = function(x[start : start + size])
    return out


class TokenNorm(nn.BatchNorm1d):
    """Batch normalisation over tokens as in PTv3; a single token has no variance to learn from."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3, momentum=0.01)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and len(input) < 2:
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class DropPath(nn.Module):
    """Leave a residual branch out for whole clouds while training."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor, stage: Stage) -> Tensor:
        if not self.training or self.share == 0:
            return x
        clouds = len(stage.cu_seqlens) - 1
        keep = torch.rand(clouds, device=x.device) >= self.share
        return x * (keep.to(x.dtype) / (1 - self.share))[stage.batch][:, None]


class PositionCode(nn.Module):
    """xCPE: a 3x3x3 convolution, a projection and a norm, added to the voxels before they mix."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = SubmanifoldConv(channels, channels, 3)
        self.proj = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, stage: Stage, slice_tokens: int | None = None) -> Tensor:
        near = self.conv(x, stage.table(3))
        return in_slices(lambda part: self.norm(self.proj(part)), near, slice_tokens)


class Block(nn.Module):
    """Position code, mixer over a window or the whole cloud, and MLP, each added to its input.

    Args:
        channels: channels of the voxels.
        mixer: what builds the mixer.
        patch_size: voxels of a window; None: the whole cloud.
        mlp_ratio: hidden channels of the MLP for each of its channels.
        drop_path: share of branches left out while training.
        code_from_skip: convolve the skip connection alone, as the published decoder does.
    """

    def __init__(
        self, channels: int, mixer: MixerSpec, patch_size: int | None, mlp_ratio: float, drop_path: float,
        code_from_skip: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patch_size = patch_size
        self.code_from_skip = code_from_skip
        hidden = int(channels * mlp_ratio)
        self.code = PositionCode(channels)
        self.norm1 = nn.LayerNorm(channels)
        self.mixer = build_mixer(mixer, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(nn.Linear(channels, hidden), nn.GELU(), nn.Linear(hidden, channels))
        self.drop = DropPath(drop_path)

    def forward(
        self, x: Tensor, stage: Stage, order: str, skip: Tensor | None = None, slice_tokens: int | None = None
    ) -> Tensor:
        """Mix the voxels of a stage.

        Args:
            x: voxels, [M, C].
            stage: their geometry.
            order: the curve along which windows lie.
            skip: what the position code convolves in place of `x`, where `code_from_skip` is set.
            slice_tokens: tokens worked on at a time; None for all at once. Inference only.
        """
        seen = skip if self.code_from_skip and skip is not None else x
        x = x + self.code(seen, stage, slice_tokens)
        context = stage.context(order, self.patch_size)
        if slice_tokens is not None and len(x) > slice_tokens:
            x += self._mix_in_slices(x, context, slice_tokens)
            for start in range(0, len(x), slice_tokens):
                part = x[start : start + slice_tokens]
                part += self.mlp(self.norm2(part))
            return x
        mixed: Tensor = x + self.drop(self._mix(self.norm1(x), context), stage)
        out: Tensor = mixed + self.drop(self.mlp(self.norm2(mixed)), stage)
        return out

    def _mix(self, x: Tensor, context: Context) -> Tensor:
        if context.gather is None or context.scatter is None:
            as_they_lie: Tensor = self.mixer(x, context.segments)
            return as_they_lie
        mixed: Tensor = self.mixer(x.index_select(0, context.gather), context.segments)
        return mixed.index_select(0, context.scatter)

    def _mix_in_slices(self, x: Tensor, context: Context, size: int) -> Tensor:
        if self.patch_size is None:
            if self.mixer.can_observe:
                return self._observe_and_read(x, context.segments, size)
            # Other mixers need all tokens at once, and the memory for them.
            return self._mix(self.norm1(x), context)
        # Whole windows at a time: no window sees another.
        cu = context.segments.cu_seqlens
        out = x.new_empty(int(cu[-1]), x.shape[1])
        for first, last in _groups(cu, size):
            start, stop = int(cu[first]), int(cu[last])
            here = x[start:stop] if context.gather is None else x[context.gather[start:stop]]
            windows = Segments.packed(cu[first : last + 1] - start)
            out[start:stop] = self.mixer(self.norm1(here), windows)
        return out if context.scatter is None else out[context.scatter]

    def _observe_and_read(self, x: Tensor, segments: Segments, size: int) -> Tensor:
        """First pass: the state of every cloud, slice by slice. Second pass: every token reads it."""
        cu = segments.cu_seqlens
        slices = [(start, min(start + size, len(x))) for start in range(0, len(x), size)]
        parts = [Segments.packed((cu - start).clamp(0, stop - start)) for start, stop in slices]
        seen = (
            self.mixer.observe(self.norm1(x[start:stop]), part)
            for (start, stop), part in zip(slices, parts, strict=True)
        )
        state = reduce(State.merge, seen)
        out = torch.empty_like(x)
        for (start, stop), part in zip(slices, parts, strict=True):
            out[start:stop] = self.mixer.read(self.norm1(x[start:stop]), state, part)
        return out


def _groups(cu: Tensor, size: int) -> list[tuple[int, int]]:
    """Runs of windows of about `size` tokens together: (first window, one past the last)."""
    groups, first = [], 0
    ends = cu.tolist()
    for window in range(1, len(ends)):
        if ends[window] - ends[first] >= size or window == len(ends) - 1:
            groups.append((first, window))
            first = window
    return groups


class Down(nn.Module):
    """Project, take the maximum over the voxels of each coarse voxel, normalise."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(channels_in, channels_out)
        self.norm = TokenNorm(channels_out)

    def forward(self, x: Tensor, pooling: Pooling, slice_tokens: int | None = None) -> Tensor:
        projected = in_slices(self.proj, x, slice_tokens)
        pooled = torch.segment_reduce(projected, "max", lengths=pooling.sizes, axis=0)
        return nn.functional.gelu(self.norm(pooled))


class Up(nn.Module):
    """Bring coarse voxels back to their fine ones and add the skip connection."""

    def __init__(self, channels_in: int, channels_skip: int, channels_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(channels_in, channels_out)
        self.norm = TokenNorm(channels_out)
        self.proj_skip = nn.Linear(channels_skip, channels_out)
        self.norm_skip = TokenNorm(channels_out)

    def forward(
        self, x: Tensor, skip: Tensor, pooling: Pooling, slice_tokens: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The sum, and the skip connection alone."""
        coarse = nn.functional.gelu(self.norm(self.proj(x)))
        fine = in_slices(self._from_skip, skip, slice_tokens)
        return fine + coarse.index_select(0, pooling.cluster), fine

    def _from_skip(self, skip: Tensor) -> Tensor:
        return nn.functional.gelu(self.norm_skip(self.proj_skip(skip)))
