"""Submanifold convolution against torch's dense convolution, a dictionary, and spconv."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from geomix.errors import InputError, MissingPackageError
from pointcloud import sparse
from pointcloud.sparse import SubmanifoldConv, build_table, submanifold_conv, use_spconv


def scene(count: int = 90, clouds: int = 2, extent: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Distinct voxels [N, 3] of several clouds in random order, and the cloud of each."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randperm(clouds * extent**3, generator=generator)[:count]
    grid = torch.stack([cells // extent**2 % extent, cells // extent % extent, cells % extent], dim=1)
    return grid, cells // extent**3


def dense_conv(feat: Tensor, weight: Tensor, grid: Tensor, batch: Tensor, extent: int = 6) -> Tensor:
    """The slow truth: a dense volume, torch's conv3d, and the occupied voxels of the result."""
    volume = feat.new_zeros(int(batch.max()) + 1, extent, extent, extent, feat.shape[1])
    volume = volume.index_put((batch, *grid.unbind(1)), feat)
    out = functional.conv3d(
        volume.permute(0, 4, 1, 2, 3), weight.permute(0, 4, 1, 2, 3), padding=weight.shape[1] // 2
    )
    return out.permute(0, 2, 3, 4, 1)[(batch, *grid.unbind(1))]


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("chunk", [7, 1 << 18])
def test_output_and_gradients_equal_a_dense_convolution(
    kernel_size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "_PAIRS_AT_ONCE", chunk)
    grid, batch = scene()
    feat = torch.randn(len(grid), 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, kernel_size, kernel_size, kernel_size, 3, dtype=torch.float64, requires_grad=True)
    probe = torch.randn(len(grid), 4, dtype=torch.float64)
    out = submanifold_conv(feat, weight, build_table(grid, batch, kernel_size))
    truth = dense_conv(feat, weight, grid, batch)
    torch.testing.assert_close(out, truth, rtol=0, atol=1e-12)
    ours = torch.autograd.grad((out * probe).sum(), (feat, weight))
    theirs = torch.autograd.grad((truth * probe).sum(), (feat, weight))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_gradients_pass_gradcheck() -> None:
    grid, batch = scene(12, extent=3)
    table = build_table(grid, batch, 3)
    feat = torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 3, 3, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: submanifold_conv(x, w, table), (feat, weight))


@pytest.mark.parametrize("kernel_size", [3, 5])
def test_pairs_equal_a_dictionary(kernel_size: int) -> None:
    grid, batch = scene(60)
    cells = {(int(b), *map(int, g)) for b, g in zip(batch, grid, strict=True)}
    radius = kernel_size // 2
    steps = [(x, y, z) for x in range(-radius, radius + 1) for y in range(-radius, radius + 1)
             for z in range(-radius, radius + 1)]  # fmt: skip
    expected = sum((b, x + dx, y + dy, z + dz) in cells for b, x, y, z in cells for dx, dy, dz in steps)
    assert build_table(grid, batch, kernel_size).pairs == expected


def test_clouds_do_not_see_each_other() -> None:
    grid = torch.tensor([[0, 0, 0], [5, 5, 5], [0, 0, 0], [5, 5, 5], [4, 5, 5]])
    batch = torch.tensor([0, 0, 1, 1, 1])
    assert build_table(grid, batch, 5).pairs == 5 + 2


def test_the_place_of_the_grid_does_not_matter() -> None:
    grid, batch = scene()
    moved = build_table(grid + torch.tensor([1 << 20, 7, 1 << 19]), batch, 3)
    assert moved.pairs == build_table(grid, batch, 3).pairs


def test_a_grid_of_the_full_63_bits_keeps_its_neighbours() -> None:
    top = (1 << 21) - 1
    grid = torch.tensor([[0, 0, 0], [top, top, top], [top - 1, top, top], [0, top, 0], [top, 0, 0]])
    table = build_table(grid, torch.zeros(5, dtype=torch.long), 5)
    assert table.pairs == 5 + 2
    both = build_table(torch.cat([grid, grid]), torch.arange(10) // 5, 5)
    assert both.pairs == 2 * (5 + 2)


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_clouds(count: int) -> None:
    layer = SubmanifoldConv(2, 3, 3)
    feat = torch.randn(count, 2, requires_grad=True)
    table = build_table(torch.zeros(count, 3, dtype=torch.long), torch.zeros(count, dtype=torch.long), 3)
    out = layer(feat, table)
    out.sum().backward()
    assert out.shape == (count, 3)
    assert layer.weight.grad is not None
    assert torch.isfinite(layer.weight.grad).all()


def test_threads_do_not_change_the_result() -> None:
    grid, batch = scene(3000, extent=16)
    table = build_table(grid, batch, 3)
    feat, weight = torch.randn(3000, 16), torch.randn(16, 3, 3, 3, 16)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = submanifold_conv(feat, weight, table)
        torch.set_num_threads(2)
        runs = [submanifold_conv(feat, weight, table) for _ in range(5)]
    finally:
        torch.set_num_threads(threads)
    for run in runs:
        torch.testing.assert_close(run, alone, rtol=0, atol=1e-4)
        assert torch.equal(run, runs[0])


def test_autocast_sums_in_float32() -> None:
    grid, batch = scene()
    table = build_table(grid, batch, 3)
    feat, weight = torch.randn(len(grid), 3), torch.randn(4, 3, 3, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(
            submanifold_conv(feat, weight, table), submanifold_conv(feat, weight, table, "native")
        )
        assert submanifold_conv(feat.bfloat16(), weight, table).dtype == torch.float32


def test_a_voxel_twice_is_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        build_table(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, dtype=torch.long), 3)


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="odd"):
        build_table(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.long), 2)


def test_shapes_that_disagree_are_refused() -> None:
    grid, batch = scene()
    with pytest.raises(InputError, match="kernel of edge 3"):
        submanifold_conv(torch.randn(len(grid), 3), torch.randn(4, 5, 5, 5, 3), build_table(grid, batch, 3))


def test_spconv_is_left_alone_where_its_32_bits_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "find_spec", lambda _: object())
    on_cuda = type("OnCuda", (), {"is_cuda": True, "dtype": torch.float32})()
    small, large = (
        type("Table", (), {"tokens": n, "kernel_size": 3})() for n in (2**31 // 27, 2**31 // 27 + 1)
    )
    assert use_spconv(on_cuda, small, "auto")
    assert not use_spconv(on_cuda, large, "auto")


@pytest.mark.skipif(find_spec("spconv") is not None, reason="spconv is installed")
def test_spconv_asked_for_but_missing_names_the_way_out() -> None:
    grid, batch = scene()
    with pytest.raises(MissingPackageError, match=r"geomix\[cuda\]"):
        submanifold_conv(
            torch.randn(len(grid), 3), torch.randn(4, 3, 3, 3, 3), build_table(grid, batch, 3), "spconv"
        )


@pytest.mark.skipif(find_spec("spconv") is None, reason="spconv is not installed (pip install spconv)")
@pytest.mark.parametrize("kernel_size", [3, 5])
@pytest.mark.filterwarnings("ignore")
def test_spconv_computes_the_same(kernel_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that CUDA would make, on spconv's CPU build with one thread, where it is right."""
    torch.set_num_threads(1)
    # spconv's backward asks CUDA for its stream also on the CPU.
    monkeypatch.setattr("spconv.pytorch.ops.get_current_stream", lambda: 0)
    grid, batch = scene(300, extent=8)
    table = build_table(grid, batch, kernel_size)
    results = []
    for backend in ("native", "spconv"):
        torch.manual_seed(0)
        feat = torch.randn(300, 4, requires_grad=True)
        weight = torch.randn(8, kernel_size, kernel_size, kernel_size, 4, requires_grad=True)
        out = submanifold_conv(feat, weight, table, backend)  # type: ignore[arg-type]
        out.square().sum().backward()
        results.append((out, feat.grad, weight.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
