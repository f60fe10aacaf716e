"""How tokens are laid out for the kernels: no slot crosses a block, no token is lost, few rows are wasted."""

import pytest
import torch

from geomix import Segments
from geomix.ops.kernels.plan import LONG, SLOTS, TILE, Plan, build_plan, most, plan_for

RAGGED = [0, 0, 3, 20, 20, 99, 99 + LONG, 900, 2300]
LAYOUTS = {
    "full": Segments.packed(RAGGED),
    "causal": Segments.packed(RAGGED, causal=True),
    "blocks": Segments.packed(RAGGED, block_size=50),
    "ragged blocks": Segments.packed([0, 600, 1000], [0, 0, 17, 600, 600, 600, 999, 1000]),
    "dense": Segments.dense(5, 79),
    "dense long": Segments.dense(2, LONG + 1),
    "dense causal": Segments.dense(3, 79, causal=True),
    "masked": Segments.from_mask(torch.rand(4, 100, generator=torch.Generator().manual_seed(0)) < 0.5),
    "masked causal": Segments.from_mask(torch.arange(100).expand(2, 100) % 3 > 0, causal=True),
}


def tokens_of(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of all slots, and the slot of each."""
    first, length = plan.slots[0], plan.slots[1]
    slot = torch.repeat_interleave(torch.arange(len(first)), length)
    place = torch.arange(len(slot)) - (length.cumsum(0) - length)[slot]
    return first[slot] + place, slot


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("bounded", [False, True])
def test_every_token_lies_in_one_slot_of_its_own_unit(name: str, bounded: bool) -> None:
    segments = LAYOUTS[name]
    plan = build_plan(segments, *most(segments)) if bounded else plan_for(segments)
    token, slot = tokens_of(plan)
    assert token.sort().values.tolist() == list(range(segments.total))
    assert plan.slots.shape[1] % SLOTS == 0
    _, _, chunk, row, sequence, seen = plan.slots[:, slot]
    assert sequence.equal(segments.sequence_of_token[token])
    if segments.is_causal:
        assert row.equal(chunk)
        valid = torch.ones(segments.total) if segments.valid is None else segments.valid.float()
        before = torch.nn.functional.pad(valid.cumsum(0), (1, 0))
        start = segments.cu_seqlens[segments.sequence_of_token[token]]
        assert seen.equal((before[plan.slots[0, slot]] - before[start]).long())
    else:
        assert row.equal(segments.block_of_token[token])
        assert seen.equal(segments.visible_count[segments.block_of_token[token]])
    whole = chunk.view(-1)
    assert bool((whole[token.argsort()].diff() >= 0).all())  # chunks follow the tokens


@pytest.mark.parametrize("name", LAYOUTS)
def test_chunks_hand_their_sums_to_the_rows_that_read_them(name: str) -> None:
    """A scan by hand over one feature a token, 1 each, must give each row what its tokens may see."""
    segments, plan = LAYOUTS[name], plan_for(LAYOUTS[name])
    token, slot = tokens_of(plan)
    counts = torch.bincount(plan.slots[2, slot], minlength=plan.targets.shape[1])
    rows = torch.full((plan.rows,), -1)
    for sequence in range(segments.num_sequences):
        first, stop = plan.cu_chunks[sequence : sequence + 2].tolist()
        if segments.is_causal and first < stop:
            rows[first] = 0
        for chunk in range(first, stop):
            if (target := int(plan.targets[0, chunk])) >= 0:
                rows[target] = counts[first : chunk + 1].sum()
    position = segments.position[token]
    if segments.is_causal:
        before = torch.full_like(rows, segments.total).scatter_reduce(
            0, plan.slots[3, slot], position, "amin"
        )
        assert rows[plan.slots[3, slot]].equal(before[plan.slots[3, slot]])
    else:
        length = (
            segments.cu_blocks[segments.block_of_token[token] + 1]
            - segments.cu_seqlens[segments.sequence_of_token[token]]
        )
        assert rows[plan.slots[3, slot]].equal(length)


def test_how_a_sequence_is_cut_depends_on_its_length_alone() -> None:
    alone = plan_for(Segments.packed([0, 700]))
    packed = plan_for(Segments.packed([0, 5, 705, 706]))
    own = packed.slots[:, packed.slots[4] == 1]
    used = alone.slots[1] > 0
    assert (own[0, own[1] > 0] - 5).equal(alone.slots[0, used])
    assert own[1, own[1] > 0].equal(alone.slots[1, used])


@pytest.mark.parametrize(("batch", "length"), [(3456, 79), (1024, 256), (450, 144)])
def test_many_short_sequences_waste_few_rows(batch: int, length: int) -> None:
    segments = Segments.dense(batch, length)
    rows = plan_for(segments).slots.shape[1] // SLOTS * TILE
    assert segments.total / rows > 0.98


def test_the_plan_is_made_once() -> None:
    segments = Segments.packed([0, 10, 30])
    assert plan_for(segments) is plan_for(segments)
