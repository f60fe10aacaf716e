"""TSViPoM: dates are mixed at each place, then places are mixed for each class.

    values [B, T, C, H, W] -> patches -> temporal encoder (dates + one token a class)
                           -> class tokens [B, K, h, w, D] -> spatial encoder, one class at a time
                           -> logits [B, K, H, W]

With attention as the mixer this is TSViT. With `causal` the dates are blocks in time order and the class
tokens a last block that only reads, so that a new date needs nothing of the older ones but their state.

Source: Tarasiou et al., ViTs for SITS, CVPR 2023 (TSViT); Picard et al., PoM, arXiv 2604.06129 (TSViPoM).
"""

from types import EllipsisType
from typing import cast

import torch
from torch import Tensor, nn

from geomix import Encoder, Segments
from geomix.encoder import Block
from geomix.errors import InputError, UnsupportedError
from geomix.mixers import State
from sits.model.codes import DayTable, code_of_days, code_of_places
from sits.model.config import ModelConfig, Stage
from sits.model.states import blocks_of_days, is_summable, joined, read_through, rows_of
from sits.model.tiling import bring_to, fill_pixels, from_tiles, pad, to_tiles

AT_ONCE = {"cpu": 8_192, "cuda": 1_048_576}
"""Tokens that are mixed together where no gradients are kept: what fits the caches, or fills a GPU."""


class TSViPoM(nn.Module):
    """Label each pixel of an image time series; see the head of this module."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        dim, side = config.dim, config.patch
        self.embed = nn.Linear(config.bands * side**2, dim)
        self.day_table = DayTable(dim) if config.day_code == "table" else None
        self.class_tokens = nn.Parameter(torch.randn(config.classes, dim))
        self.temporal = _encoder(config.temporal, dim, config.dropout)
        self.spatial = _encoder(config.spatial, dim, config.dropout) if config.spatial.depth else None
        self.place_table: nn.Parameter | None = None
        if config.place_code == "table" and config.tile is not None and config.spatial.depth:
            self.place_table = nn.Parameter(torch.randn((config.tile // side) ** 2, dim))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, side**2))

    @property
    def patch(self) -> int:
        """Side of the squares of pixels that are laid on multiples of it on the map: tiles or patches."""
        return self.config.unit

    @property
    def halo(self) -> int | None:
        """Pixels of context that a window needs on each side; None where the whole scene is the context."""
        return self.config.halo

    def forward(
        self, values: Tensor, days: Tensor, valid: Tensor, *, origin: tuple[int, int] = (0, 0)
    ) -> Tensor:
        """Score each class at each pixel.

        Args:
            values: normalised images, float, [B, T, C, H, W].
            days: when they were taken, as the model's inputs count, integers, [B, T] or [T].
            valid: which pixels were seen, bool, [B, T, H, W]. Invalid ones never count: a patch takes the
                mean of its valid pixels in their place, and a patch without any is no token.
            origin: row and column of the first pixel; patches and tiles are laid on multiples of their side
                from there. The code of places, where the model has one, counts from 0.

        Returns:
            Logits, [B, K, H, W]; finite also where no date is valid.

        Raises:
            InputError: if the shapes do not fit together.
        """
        inside = self._inside(values, origin)
        values, days, valid = self._completed(values, days, valid, origin)
        if self.config.tile is None:
            logits = self._locate(*self._classes(values, days, valid), origin)
        else:
            grid = (values.shape[-2] // self.config.tile, values.shape[-1] // self.config.tile)
            tiles, seen = to_tiles(values, grid), to_tiles(valid, grid)
            days = days.repeat_interleave(grid[0] * grid[1], 0)
            logits = from_tiles(self._locate(*self._classes(tiles, days, seen), (0, 0)), grid)
        return logits[inside]

    def _inside(self, values: Tensor, origin: tuple[int, int]) -> tuple[EllipsisType, slice, slice]:
        """Where the images lie in what `_completed` makes of them."""
        top, left = (start % self.patch for start in origin)
        height, width = values.shape[-2:]
        return ..., slice(top, top + height), slice(left, left + width)

    @property
    def surveys(self) -> bool:
        """Whether the context is a whole scene that can be summed up in parts: `survey`, then `answer`."""
        return self.halo is None and self.spatial is not None and all(map(is_summable, self.spatial.blocks))

    def survey(
        self,
        values: Tensor,
        days: Tensor,
        valid: Tensor,
        known: tuple[State, ...] = (),
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> State:
        """What the next spatial block remembers of a part of a scene; merge the states of all parts.

        Args:
            values: as in `forward`, of one part.
            days: as in `forward`.
            valid: as in `forward`.
            known: the states of the whole scene in the spatial blocks before.
            origin: as in `forward`.

        Returns:
            The state of each class map, [B * K].
        """
        tokens, heard = self._maps(*self._classes(*self._completed(values, days, valid, origin)), origin)
        spatial = cast(Encoder, self.spatial)
        found = []
        for part in self._portions(len(tokens), tokens.shape[1]):
            mixed = read_through(spatial, tokens[part], known, part)
            segments = None if heard is None else Segments.from_mask(heard[part])
            found.append(cast(Block, spatial.blocks[len(known)]).observe(mixed, segments))
        return joined(tuple(found))

    def answer(
        self,
        values: Tensor,
        days: Tensor,
        valid: Tensor,
        known: tuple[State, ...],
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> Tensor:
        """Score a part of a scene from the states of the whole in all spatial blocks, as `forward` would."""
        classes, seen = self._classes(*self._completed(values, days, valid, origin))
        tokens, _ = self._maps(classes, seen, origin)
        spatial = cast(Encoder, self.spatial)
        mixed = [
            spatial.norm(read_through(spatial, tokens[part], known, part))
            for part in self._portions(len(tokens), tokens.shape[1])
        ]
        return self._logits(torch.cat(mixed), seen)[self._inside(values, origin)]

    def observe(
        self,
        values: Tensor,
        days: Tensor,
        valid: Tensor,
        state: tuple[State, ...] | None = None,
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> tuple[State, ...]:
        """Add dates to the state of each place (causal models).

        Args:
            values: normalised images of the new dates, which follow those in the state, [B, T, C, H, W].
            days: as in `forward`, [B, T] or [T].
            valid: as in `forward`, [B, T, H, W].
            state: what earlier calls returned for the same places; None to begin.
            origin: as in `forward`.

        Returns:
            One state a layer: sums and counts of each of the B * h * w places, row by row.

        Raises:
            UnsupportedError: if the model is not causal, or a mixer keeps no state.
        """
        if not self.config.causal:
            raise UnsupportedError("only a causal model keeps a state; train with `causal: true`")
        self._check(values, days, valid)
        values, valid = pad(values, valid, self.config.patch, origin)
        days = days.expand(len(values), -1)
        tokens, seen = self._tokens(values, days, valid)
        days = days.repeat_interleave(tokens.shape[1] * tokens.shape[2], 0)
        tokens, seen = tokens.flatten(0, 2), seen.flatten(0, 2)
        parts = [
            self._add(tokens[part], seen[part], days[part], None if state is None else rows_of(state, part))
            for part in self._portions(len(tokens), tokens.shape[1])
        ]
        return tuple(joined(layers) for layers in zip(*parts, strict=True))

    def _add(
        self, tokens: Tensor, seen: Tensor, days: Tensor, state: tuple[State, ...] | None
    ) -> tuple[State, ...]:
        """The state of some places, [S, T, D] tokens, after their dates; nobody reads in the last block."""
        if bool((days[:, 1:] == days[:, :-1]).any()):
            tokens, segments = tokens[seen], blocks_of_days(seen, days, 0)
        else:
            segments = Segments.from_mask(seen, causal=True)
        after = []
        for index, block in enumerate(self.temporal.blocks):
            known = None if state is None else state[index]
            if block is self._last and is_summable(self._last):
                found = self._last.observe(tokens, segments)
                after.append(found if known is None else known.merge(found))
            else:
                tokens, found = block(tokens, segments, state=known, return_state=True)
                after.append(found)
        return tuple(after)

    def read(
        self,
        state: tuple[State, ...],
        seen: Tensor,
        *,
        origin: tuple[int, int] = (0, 0),
    ) -> Tensor:
        """Score each class from the state of each place; reads the state and leaves it as it is.

        Args:
            state: from `observe`.
            seen: which places hold at least one valid date, bool, [B, h, w] patches.
            origin: as in `forward`.

        Returns:
            Logits of whole patches, [B, K, h * patch, w * patch].
        """
        count = self.config.classes
        parts = []
        for part in self._portions(seen.numel(), count):
            places = len(seen.flatten()[part])
            block = Segments.dense(places, count, block_size=count)
            tokens = self.class_tokens.expand(places, -1, -1)
            parts.append(self.temporal(tokens, block, state=rows_of(state, part)))
        classes = torch.cat(parts)
        return self._locate(classes.view(*seen.shape, *classes.shape[1:]), seen, origin)

    def _portions(self, places: int, tokens_each: int) -> list[slice]:
        """Places that are worked on together; all of them where gradients are kept."""
        step = places if torch.is_grad_enabled() else max(1, self._at_once() // tokens_each)
        return [slice(start, start + step) for start in range(0, max(places, 1), max(step, 1))]

    def _check(self, values: Tensor, days: Tensor, valid: Tensor) -> None:
        if values.ndim != 5 or values.shape[2] != self.config.bands:
            raise InputError(f"values must be [B, T, {self.config.bands}, H, W], got {list(values.shape)}")
        batch, dates, _, height, width = values.shape
        if days.shape not in ((dates,), (batch, dates)):
            raise InputError(f"days must be [{dates}] or [{batch}, {dates}], got {list(days.shape)}")
        if valid.dtype != torch.bool or valid.shape != (batch, dates, height, width):
            expected = f"bool [{batch}, {dates}, {height}, {width}]"
            raise InputError(f"valid must be {expected}, got {valid.dtype} {list(valid.shape)}")

    def working_bytes(self, dates: int, height: int, width: int) -> int:
        """About how many bytes `forward` takes for one series of that size where no gradients are kept."""
        side, dim, classes = self.config.patch, self.config.dim, self.config.classes
        rows, columns = -(-height // side), -(-width // side)
        most = self._at_once()
        at_once = min(rows * columns * (dates + classes), max(most, columns * (dates + classes)))
        spatial = min(classes, max(1, most // (rows * columns))) * rows * columns
        kept = rows * columns * classes
        # Features, both projections, the MLP and what they leave behind: 14 times the features, as measured.
        return 4 * dim * (14 * max(at_once, spatial) + 3 * kept)

    def _completed(
        self, values: Tensor, days: Tensor, valid: Tensor, origin: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Checked, in whole patches and tiles, and filled up where the published model was."""
        self._check(values, days, valid)
        days = days.expand(len(values), -1)
        values, valid = pad(values, valid, self.patch, origin)
        if self.config.fill_dates is not None:
            values, days, valid = bring_to(self.config.fill_dates, values, days, valid)
        return values, days, valid

    def _classes(self, values: Tensor, days: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The class tokens of each place, [B, h, w, K, D], and which places any date shows, [B, h, w]."""
        tall = values.shape[-2]
        step = tall if torch.is_grad_enabled() else self._rows_at_once(values)
        parts = [
            self._summarise(values[..., top : top + step, :], days, valid[..., top : top + step, :])
            for top in range(0, tall, step)
        ]
        if len(parts) == 1:
            return parts[0]
        classes, seen = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        return classes, seen

    def _rows_at_once(self, values: Tensor) -> int:
        """Rows of pixels that are worked on together: places see each other only in `_locate`."""
        side = self.config.patch
        tokens = len(values) * (values.shape[-1] // side) * (values.shape[1] + self.config.classes)
        return max(1, self._at_once() // max(tokens, 1)) * side

    def _at_once(self) -> int:
        return AT_ONCE.get(self.class_tokens.device.type, AT_ONCE["cuda"])

    def _summarise(self, values: Tensor, days: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """`_classes` of some rows."""
        tokens, seen = self._tokens(values, days, valid)
        places = tokens.flatten(0, 2), seen.flatten(0, 2)
        if self.config.causal:
            classes = self._read_after(*places, days, seen.shape[1] * seen.shape[2])
        else:
            classes = self._read_among(*places)
        return classes.view(*seen.shape[:3], *classes.shape[1:]), seen.any(-1)

    def _tokens(self, values: Tensor, days: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Patches with their dates, [B, h, w, T, D], and which of them hold a valid pixel, [B, h, w, T]."""
        side, (batch, dates, bands, height, width) = self.config.patch, values.shape
        rows, columns = height // side, width // side
        pixels = values.view(batch, dates, bands, rows, side, columns, side)
        pixels = pixels.permute(0, 3, 5, 1, 4, 6, 2)  # [B, h, w, T, p, p, C]
        known = valid.view(batch, dates, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
        seen = known.flatten(-2).any(-1)
        if not bool(known.all()):
            pixels = fill_pixels(pixels, known)
        tokens = self.embed(pixels.flatten(-3))
        return tokens + self._code_of(days)[:, None, None].to(tokens.dtype), seen

    def _code_of(self, days: Tensor) -> Tensor:
        if self.day_table is not None:
            code: Tensor = self.day_table(days)
            return code
        return code_of_days(days, self.config.dim)

    def _read_among(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """Dates and class tokens see each other, as published; returns the class tokens, [S, K, D]."""
        places, count = len(tokens), self.config.classes
        tokens = torch.cat([tokens, self.class_tokens.to(tokens.dtype).expand(places, -1, -1)], dim=1)
        if bool(seen.all()):
            segments = Segments.dense(*tokens.shape[:2])
        else:
            segments = Segments.from_mask(torch.cat([seen, seen.new_ones(places, count)], dim=1))
        tokens = self._all_but_last(tokens, segments)
        last = self._last
        if is_summable(last):
            # Only the class tokens are wanted: the dates are summed up, but read nothing any more.
            mixed = last.read(tokens[:, -count:], last.observe(tokens, segments))
        else:
            mixed = last(tokens, segments)[:, -count:]
        summary: Tensor = self.temporal.norm(mixed)
        return summary

    def _read_after(self, tokens: Tensor, seen: Tensor, days: Tensor, places_per_image: int) -> Tensor:
        """Dates see earlier dates and their own day, class tokens see all; returns the latter, [S, K, D]."""
        places, count = len(tokens), self.config.classes
        tokens = torch.cat([tokens, self.class_tokens.to(tokens.dtype).expand(places, -1, -1)], dim=1)
        known = torch.cat([seen, seen.new_ones(places, count)], dim=1)
        segments = blocks_of_days(seen, days.repeat_interleave(places_per_image, 0), count)
        packed = self._all_but_last(tokens[known], segments)
        last, ends = self._last, segments.cu_seqlens[1:, None]
        own = ends + torch.arange(-count, 0, device=ends.device)
        if is_summable(last):
            mixed = last.read(packed[own], last.observe(packed, segments))
        else:
            mixed = last(packed, segments)[own]
        summary: Tensor = self.temporal.norm(mixed)
        return summary

    @property
    def _last(self) -> Block:
        return cast(Block, self.temporal.blocks[-1])

    def _all_but_last(self, tokens: Tensor, segments: Segments) -> Tensor:
        for block in self.temporal.blocks[:-1]:
            tokens = block(tokens, segments)
        return tokens

    def _locate(self, classes: Tensor, seen: Tensor, origin: tuple[int, int]) -> Tensor:
        """Mix the places of each class and score their pixels; [B, h, w, K, D] -> [B, K, H, W]."""
        tokens, heard = self._maps(classes, seen, origin)
        if self.spatial is not None:
            tokens = self._mix_places(tokens, (seen.shape[1], seen.shape[2]), heard)
        return self._logits(tokens, seen)

    def _maps(self, classes: Tensor, seen: Tensor, origin: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
        """A map of tokens for each class, [B * K, h * w, D], and the places that are heard, None for all."""
        batch, rows, columns, count, dim = classes.shape
        tokens = classes.permute(0, 3, 1, 2, 4).reshape(batch * count, rows * columns, dim)
        if self.spatial is None:
            return tokens, None
        # A place that no date shows is told nothing about, so its neighbours must not listen to it.
        heard = None if bool(seen.all()) else seen.flatten(1).repeat_interleave(count, 0)
        return tokens + self._place_code(rows, columns, origin, tokens), heard

    def _logits(self, tokens: Tensor, seen: Tensor) -> Tensor:
        batch, rows, columns = seen.shape
        side = self.config.patch
        scores: Tensor = self.head(tokens)
        if self.config.pixel_order == "published":
            return scores.reshape(batch, -1, rows * side, columns * side)
        scores = scores.view(batch, -1, rows, columns, side, side)
        return scores.transpose(3, 4).reshape(batch, -1, rows * side, columns * side)

    def _mix_places(self, tokens: Tensor, shape_yx: tuple[int, int], heard: Tensor | None) -> Tensor:
        """The spatial encoder over maps of class tokens, [maps, places, D], as many at once as are needed."""
        step = len(tokens) if torch.is_grad_enabled() else max(1, self._at_once() // tokens.shape[1])
        mixed = []
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            known = None if heard is None else heard[start : start + step]
            segments = Segments.grid(len(part), shape_yx, window=self.config.context, valid=known)
            mixed.append(self.spatial(part, segments))  # type: ignore[misc]
        return torch.cat(mixed) if len(mixed) > 1 else mixed[0]

    def _place_code(self, rows: int, columns: int, origin: tuple[int, int], like: Tensor) -> Tensor:
        if self.place_table is not None:
            return self.place_table.to(like.dtype)
        if self.config.place_code == "none":
            return like.new_zeros(())
        first = (origin[0] // self.config.patch, origin[1] // self.config.patch)
        return code_of_places(rows, columns, first, self.config.dim, like.device).to(like.dtype)


def _encoder(stage: Stage, dim: int, dropout: float) -> Encoder:
    return Encoder(dim, stage.depth, stage.mixer, mlp_ratio=stage.mlp_ratio, dropout=dropout)
