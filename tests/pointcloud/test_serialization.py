"""Curves against vectors made by three independent implementations, and their properties."""

import itertools

import pytest
import torch
from torch import Tensor

from geomix.errors import InputError
from pointcloud.serialization import (
    BITS,
    ORDERS,
    encode,
    hilbert_decode,
    hilbert_encode,
    morton_decode,
    morton_encode,
    serialize,
)

# (bits, point, Morton, Hilbert): equal in Pointcept, numpy-hilbert-curve 1.0.1 and hilbertcurve 2.0.5.
VECTORS = [
    (3, (1, 0, 0), 4, 1),
    (3, (0, 1, 0), 2, 7),
    (3, (0, 0, 1), 1, 3),
    (3, (1, 1, 1), 7, 5),
    (3, (7, 7, 7), 511, 365),
    (3, (1, 2, 3), 29, 48),
    (8, (5, 9, 1), 1287, 999),
    (8, (1, 2, 3), 29, 22),
    (16, (5, 9, 1), 1287, 1989),
    (16, (1, 2, 3), 29, 36),
    (21, (123456, 654321, 2097151), 1607784751215522379, 2119265701226572654),
    (21, (2097151,) * 3, 9223372036854775807, 6588122883467697005),
    (21, (1000000, 2000000, 3), 3293345191134494729, 4076223221827333567),
]


def cube(bits: int) -> Tensor:
    return torch.tensor(list(itertools.product(range(1 << bits), repeat=3)))


@pytest.mark.parametrize(("bits", "point", "morton", "hilbert"), VECTORS)
def test_codes_equal_the_published_vectors(
    bits: int, point: tuple[int, int, int], morton: int, hilbert: int
) -> None:
    grid = torch.tensor([point])
    assert morton_encode(grid).item() == morton
    assert hilbert_encode(grid, bits).item() == hilbert


def test_hilbert_of_one_bit_is_the_gray_walk_round_the_cube() -> None:
    walk = hilbert_decode(torch.arange(8), bits=1)
    assert ["".join(map(str, corner)) for corner in walk.tolist()] == [
        "000", "001", "011", "010", "110", "111", "101", "100",
    ]  # fmt: skip


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_hilbert_visits_every_voxel_in_unit_steps(bits: int) -> None:
    walk = hilbert_decode(torch.arange(8**bits), bits)
    assert len({tuple(voxel) for voxel in walk.tolist()}) == 8**bits
    assert (walk.diff(dim=0).abs().sum(1) == 1).all()
    assert walk[0].tolist() == [0, 0, 0]
    assert walk[-1].tolist() == [2**bits - 1, 0, 0]


@pytest.mark.parametrize("bits", [1, 2, 5, 16, 20, 21])
def test_decoding_gives_the_voxel_back(bits: int) -> None:
    grid = torch.randint(0, 1 << bits, (500, 3))
    assert torch.equal(morton_decode(morton_encode(grid)), grid)
    assert torch.equal(hilbert_decode(hilbert_encode(grid, bits), bits), grid)


@pytest.mark.parametrize("bits", [2, 3, 5, 8, 16, 20, 21])
def test_parents_are_codes_shifted_by_three(bits: int) -> None:
    grid = cube(bits) if bits <= 3 else torch.randint(0, 1 << bits, (4096, 3))
    assert torch.equal(hilbert_encode(grid, bits) >> 3, hilbert_encode(grid >> 1, bits - 1))
    assert torch.equal(morton_encode(grid) >> 3, morton_encode(grid >> 1))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_any_number_of_voxels_has_codes(order: str, count: int) -> None:
    code = encode(torch.zeros(count, 3, dtype=torch.long), order)
    assert code.shape == (count,)
    assert code.dtype == torch.int64
    assert (code == 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_memory_layout_and_integer_type_do_not_matter(order: str) -> None:
    grid = torch.randint(0, 1 << BITS, (64, 3))
    expected = encode(grid, order)
    assert torch.equal(encode(grid.t().contiguous().t(), order), expected)
    assert torch.equal(encode(torch.cat([grid, grid], 1)[:, :3], order), expected)
    assert torch.equal(encode(grid.int(), order), expected)


def test_trans_orders_swap_x_and_y() -> None:
    grid = torch.randint(0, 1 << BITS, (64, 3))
    swapped = grid[:, [1, 0, 2]]
    assert torch.equal(encode(grid, "z-trans"), encode(swapped, "z"))
    assert torch.equal(encode(grid, "hilbert-trans"), encode(swapped, "hilbert"))


@pytest.mark.parametrize("order", ORDERS)
def test_clouds_of_a_batch_stay_apart_and_in_order_at_full_depth(order: str) -> None:
    grid = torch.randint(0, 1 << BITS, (200, 3))
    batch = torch.arange(200) % 3
    permutation = serialize(grid, batch, order)
    assert torch.equal(batch[permutation], batch.sort().values)
    for cloud in range(3):
        members = (batch == cloud).nonzero()[:, 0]
        alone = members[serialize(grid[members], batch[members] * 0, order)]
        assert torch.equal(permutation[batch[permutation] == cloud], alone)


@pytest.mark.parametrize("encoder", [morton_encode, hilbert_encode])
@pytest.mark.parametrize("bad", [-1, 1 << BITS])
def test_coordinates_out_of_range_are_refused(encoder: object, bad: int) -> None:
    grid = torch.zeros(4, 3, dtype=torch.long)
    grid[2, 1] = bad
    with pytest.raises(InputError, match="extent of"):
        encoder(grid)  # type: ignore[operator]


def test_an_unknown_order_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="hilbert-trans"):
        encode(torch.zeros(1, 3, dtype=torch.long), "peano")
