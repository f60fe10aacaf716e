"""What segments say, and what they refuse."""

import pytest
import torch

from geomix import Segments
from geomix.errors import SegmentsError
from geomix.ops.cpu.plan import cut_chunks


def seen(segments: Segments) -> torch.Tensor:
    """Which token sees which, bool [T, T], from the definition alone."""
    sequence, block = segments.sequence_of_token, segments.block_of_token
    sees = (sequence[:, None] == sequence) & (block[:, None] >= block)
    return sees if segments.valid is None else sees & segments.valid


def test_blocks_count_positions_from_the_start_of_each_sequence() -> None:
    assert Segments.dense(1, 13, block_size=5).cu_blocks.tolist() == [0, 5, 10, 13]
    assert Segments.packed([0, 7, 9], block_size=5).cu_blocks.tolist() == [0, 5, 7, 9]


def test_a_block_of_one_position_is_causal() -> None:
    assert Segments.dense(2, 3, block_size=1).is_causal
    assert Segments.packed([0, 3], causal=True).cu_blocks.tolist() == [0, 1, 2, 3]


def test_full_context_sees_its_own_sequence_alone() -> None:
    expected = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool()
    assert torch.equal(seen(Segments.packed([0, 2, 2, 5])), expected)


def test_causal_context_is_a_triangle() -> None:
    assert torch.equal(seen(Segments.dense(1, 4, causal=True)), torch.ones(4, 4).tril().bool())


def test_counts_leave_out_what_is_not_valid() -> None:
    valid = torch.tensor([[True, False, True], [False, False, False]])
    assert Segments.from_mask(valid).count.tolist() == [2, 0]
    assert Segments.from_mask(valid, causal=True).visible_count.tolist() == [1, 1, 2, 0, 0, 0]


@pytest.mark.parametrize(
    "segments", [Segments.packed([0, 300, 300, 301, 700]), Segments.dense(3, 200, block_size=70)]
)
@pytest.mark.parametrize("size", [1, 64, 1000])
def test_chunks_cover_every_token_and_never_cross_a_block(segments: Segments, size: int) -> None:
    chunks = cut_chunks(segments, size)
    assert chunks.cu[0] == 0 and chunks.cu[-1] == segments.total
    assert int(chunks.cu.diff().min()) >= 1 and int(chunks.cu.diff().max()) <= size
    for start, stop in zip(chunks.cu[:-1].tolist(), chunks.cu[1:].tolist(), strict=True):
        assert len(set(segments.block_of_token[start:stop].tolist())) == 1


def test_a_million_sequences_need_no_loop() -> None:
    segments = Segments.packed(torch.arange(1_000_001) * 3, block_size=2)
    assert segments.num_blocks == 2_000_000
    assert segments.visible_count[:4].tolist() == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Segments.packed([1, 3]), "must start at 0, got \\[1, 3\\]"),
        (lambda: Segments.packed([0, 3, 2]), "must not decrease"),
        (lambda: Segments.packed(torch.tensor([0.0, 2.0])), "list of integers"),
        (lambda: Segments.packed([0, 3, 6], [0, 2, 6]), "every entry of cu_seqlens"),
        (lambda: Segments.packed([0, 3], [0, 3, 5]), "every entry of cu_seqlens"),
        (lambda: Segments.packed([0, 3], [0, 1, 3], causal=True), "exclude each other"),
        (lambda: Segments.dense(1, 4, causal=True, block_size=2), "exclude each other"),
        (lambda: Segments.dense(1, 4, block_size=0), "1 or more, got 0"),
        (lambda: Segments.dense(-1, 4), "0 or more, got batch -1"),
        (lambda: Segments.from_mask(torch.ones(2, 3)), "bool \\[B, N\\]"),
        (lambda: Segments.grid(1, (4, 4), 2), "one odd number"),
        (lambda: Segments.grid(1, (4, 4), (3, 3, 3)), "one odd number"),
        (lambda: Segments.grid(1, (4, 4), valid=torch.ones(1, 15, dtype=torch.bool)), "bool \\[1, 16\\]"),
        (
            lambda: Segments.dense(2, 3).check(torch.zeros(2, 4, 8)),
            "describe tokens \\[2, 3, C\\], got \\[2, 4, 8\\]",
        ),
    ],
)
def test_contradictions_are_named(make, message: str) -> None:
    with pytest.raises(SegmentsError, match=message):
        make()


def test_moving_keeps_the_copy() -> None:
    segments = Segments.dense(2, 3)
    assert segments.to(torch.device("cpu")) is segments
    assert segments.to(torch.device("meta")) is segments.to(torch.device("meta"))
