"""PPoMv3: its size, its invariances, its windows, and streaming against all at once."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from geomix.config import load_config
from geomix.errors import ConfigError, InputError, MemoryBudgetError
from pointcloud.model import PPoMv3, build_model, network, parameters_by_stage
from pointcloud.model.layers import DropPath, TokenNorm
from pointcloud.model.scene import coarser, even_windows, first_stage
from pointcloud.task.experiment import PointcloudConfig

POM = {"name": "pom"}
ATTENTION = {"name": "attention", "heads": 2}
SMALL: dict[str, Any] = {
    "in_channels": 4,
    "classes": 5,
    "stem_kernel": 3,
    "encoder_depths": [1, 2, 1],
    "encoder_channels": [8, 12, 16],
    "decoder_depths": [1, 1],
    "decoder_channels": [8, 12],
}
MIXERS = {
    "pom whole": {"mixer": POM, "patch_size": None},
    "pom windows": {"mixer": POM, "patch_size": 50},
    "attention windows": {"mixer": ATTENTION, "patch_size": 50},
    "rotary pom whole": {"mixer": {**POM, "rotary": True}, "patch_size": None},
    "hybrid": {"mixer": [{**POM, "patch_size": None}, ATTENTION], "patch_size": 40},
}
every_mixer = pytest.mark.parametrize("mixers", MIXERS.values(), ids=MIXERS)


def small(mixers: Mapping[str, Any], **changes: Any) -> PPoMv3:
    torch.manual_seed(0)
    return build_model({**SMALL, **mixers, **changes}).eval()


def cloud(count: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Distinct voxels [N, 3] of a slab in random order, and features [N, 4]."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randperm(16 * 16 * 4, generator=generator)[:count]
    grid = torch.stack([cells // 64, cells // 4 % 16, cells % 4], dim=1)
    return grid, torch.randn(count, 4, generator=generator)


def parameters(model: PPoMv3) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("in_channels", "classes", "expected"), [(6, 20, 46_167_572), (4, 19, 46_159_507)], ids=str
)
def test_ptv3_has_the_published_number_of_parameters(in_channels: int, classes: int, expected: int) -> None:
    with torch.device("meta"):
        model = build_model({"in_channels": in_channels, "classes": classes, "mixer": {"name": "attention"}})
    assert parameters(model) == expected
    assert sum(count for _, count in parameters_by_stage(model)) == expected


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("scannet_ptv3", 46.2),
        ("scannet_ppomv3", 47.9),
        ("scannet_hybrid", 46.8),
        ("semantickitti_ppomv3", 47.9),
        ("semantickitti_hybrid", 46.8),
    ],
)
def test_placements_give_the_sizes_of_the_paper(name: str, millions: float) -> None:
    config = load_config(name, "pointcloud", PointcloudConfig)
    with torch.device("meta"):
        model = PPoMv3(config.model)
    assert round(parameters(model) / 1e6, 1) == millions


@every_mixer
def test_a_permutation_of_voxels_permutes_the_scores(mixers: Mapping[str, Any]) -> None:
    model = small(mixers)
    grid, feat = cloud()
    permutation = torch.randperm(len(grid))
    with torch.no_grad():
        scores = model(grid, feat)
        permuted = model(grid[permutation], feat[permutation])
    torch.testing.assert_close(permuted, scores[permutation], rtol=0, atol=1e-5)
    assert scores.std() > 0.01


@every_mixer
def test_batch_mates_change_nothing(mixers: Mapping[str, Any]) -> None:
    model = small(mixers)
    (grid, feat), (other_grid, other_feat) = cloud(), cloud(37, seed=1)
    with torch.no_grad():
        alone = model(grid, feat)
        packed = model(
            torch.cat([other_grid, grid, other_grid + 5]),
            torch.cat([other_feat, feat, other_feat]),
            torch.tensor([0, 37, 37, 337, 374]),
        )
    torch.testing.assert_close(packed[37:337], alone, rtol=0, atol=1e-5)


@every_mixer
def test_two_runs_give_the_same_bits(mixers: Mapping[str, Any]) -> None:
    model = small(mixers)
    grid, feat = cloud()
    with torch.no_grad():
        first = model(grid, feat)
        torch.manual_seed(99)
        assert torch.equal(model(grid, feat), first)


@every_mixer
@pytest.mark.parametrize("published", [False, True])
def test_slices_give_what_all_at_once_gives(
    mixers: Mapping[str, Any], published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_SLICES", (64,))
    model = small(mixers, published=published)
    (grid, feat), (other_grid, other_feat) = cloud(), cloud(90, seed=1)
    batch = torch.cat([grid, other_grid]), torch.cat([feat, other_feat]), torch.tensor([0, 300, 390])
    with torch.no_grad():
        whole = model(*batch)
        sliced = model(*batch, memory=model.memory_estimate(390, 64))
    assert model.slice_for(390, model.memory_estimate(390, 64)) == 64
    torch.testing.assert_close(sliced, whole, rtol=0, atol=1e-5)


@every_mixer
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("is_training", [False, True])
def test_tiny_clouds_have_a_result(mixers: Mapping[str, Any], count: int, is_training: bool) -> None:
    model = small(mixers).train(is_training)
    grid, feat = cloud(count)
    scores = model(grid, feat)
    assert scores.shape == (count, 5)
    assert torch.isfinite(scores).all()
    scores.sum().backward() if count else None


@every_mixer
def test_every_parameter_learns(mixers: Mapping[str, Any]) -> None:
    model = small(mixers, drop_path=0.0).train()
    grid, feat = cloud()
    model(grid, feat).square().mean().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # The position code ends in a LayerNorm: a bias before it that is the same for all channels is lost.
    assert not still


def test_windows_see_their_own_voxels_alone() -> None:
    model = small(
        MIXERS["pom windows"],
        encoder_depths=[1],
        encoder_channels=[8],
        decoder_depths=[],
        decoder_channels=[],
    )
    line = torch.stack([torch.arange(100), torch.zeros(100).long(), torch.zeros(100).long()], dim=1)
    feat = torch.randn(100, 4)
    changed = feat.clone()
    changed[90:] += 1
    with torch.no_grad():
        before, after = model(line, feat), model(line, changed)
    # Windows of 50: convolutions reach 2 voxels, the mixer the whole second window.
    assert torch.equal(before[:48], after[:48])
    assert (before[50:80] != after[50:80]).any()


def test_the_whole_cloud_is_one_sequence() -> None:
    model = small(
        MIXERS["pom whole"], encoder_depths=[1], encoder_channels=[8], decoder_depths=[], decoder_channels=[]
    )
    line = torch.stack([torch.arange(100), torch.zeros(100).long(), torch.zeros(100).long()], dim=1)
    feat = torch.randn(100, 4)
    changed = feat.clone()
    changed[90:] += 1
    with torch.no_grad():
        assert (model(line, feat)[:50] != model(line, changed)[:50]).any(dim=1).all()


@pytest.mark.parametrize("count", [1, 49, 50, 51, 100, 101, 149])
def test_windows_are_even_and_complete(count: int) -> None:
    cu = even_windows(torch.tensor([0, count, count, count + 7]), 50)
    sizes = cu.diff()
    assert cu[0] == 0
    assert cu[-1] == count + 7
    assert len(sizes) == -(-count // 50) + 1
    first = sizes[:-1]
    assert first.max() <= 50
    assert first.max() - first.min() <= 1


def test_pooling_equals_a_dictionary() -> None:
    (grid, _), (other, _) = cloud(), cloud(80, seed=3)
    stage, _ = first_stage(torch.cat([grid, other]), torch.tensor([0, 300, 380]), ("hilbert",))
    coarse, pooling = coarser(stage)
    parents = [(int(b), *map(int, g // 2)) for b, g in zip(stage.batch, stage.grid_coord, strict=True)]
    found = [(int(b), *map(int, g)) for b, g in zip(coarse.batch, coarse.grid_coord, strict=True)]
    assert len(found) == len(set(parents)) == int(pooling.cluster[-1]) + 1
    assert [found[i] for i in pooling.cluster] == parents
    assert pooling.sizes.tolist() == [parents.count(one) for one in found]
    assert coarse.cu_seqlens.tolist() == [0, *[sum(b <= c for b, *_ in found) for c in (0, 1)]]
    from pointcloud.serialization import hilbert_encode

    assert torch.equal(coarse.codes["hilbert"], hilbert_encode(coarse.grid_coord, 20))


def test_published_windows_borrow_the_points_before_them() -> None:
    count, patch = 10, 4
    grid = torch.stack([torch.arange(count), torch.zeros(count).long(), torch.zeros(count).long()], dim=1)
    stage, _ = first_stage(grid, torch.tensor([0, 3, count]), ("z",), published=True)
    context = stage.context("z", patch)
    # A cloud of 3 in one short window; 7 in two full ones, the second filled with points 2 to 3 of the first.
    assert context.segments.cu_seqlens.tolist() == [0, 3, 7, 11]
    assert context.gather is not None
    assert context.scatter is not None
    # As the published code: the last window holds the last `patch` points, its own points first.
    assert sorted(context.gather.tolist()[7:]) == [6, 7, 8, 9]
    assert context.gather[context.scatter].tolist() == list(range(count))
    assert (context.scatter < 11).all()


def test_drop_path_drops_whole_clouds() -> None:
    grid, _ = cloud()
    stage, _ = first_stage(torch.cat([grid] * 4), torch.tensor([0, 300, 600, 900, 1200]), ())
    torch.manual_seed(1)
    dropped = DropPath(0.5).train()(torch.ones(1200, 3), stage)
    for part in dropped.split(300):
        assert len(part.unique()) == 1
        assert part[0, 0] in (0.0, 2.0)
    assert len(dropped.unique()) == 2


def test_training_draws_curves_and_prediction_does_not() -> None:
    model = small(MIXERS["pom windows"])
    assert model._orders() == ["z", "z-trans", "hilbert", "hilbert-trans"]
    model.train()
    assert len({tuple(model._orders()) for _ in range(20)}) > 1


def test_one_token_takes_the_running_statistics() -> None:
    norm = TokenNorm(3).train()
    assert torch.isfinite(norm(torch.randn(1, 3))).all()
    assert norm.num_batches_tracked == 0


def test_a_budget_too_small_says_what_is_needed() -> None:
    model = small(MIXERS["pom whole"])
    grid, feat = cloud()
    with torch.no_grad(), pytest.raises(MemoryBudgetError, match=r"300 voxels need .* raise --memory"):
        model(grid, feat, memory=1000)


def test_memory_estimates_grow_with_voxels_and_slices() -> None:
    model = small(MIXERS["pom whole"])
    assert model.memory_estimate(10**6) > 5 * model.memory_estimate(10**5)
    assert (
        model.memory_estimate(10**6, 4096)
        < model.memory_estimate(10**6, 65536)
        < model.memory_estimate(10**6)
    )
    assert model.slice_for(100, 10**12) is None


def test_shapes_that_disagree_are_refused() -> None:
    model = small(MIXERS["pom whole"])
    grid, feat = cloud()
    with pytest.raises(InputError, match=r"features \[M, 4\]"):
        model(grid, feat[:, :3])
    with pytest.raises(InputError, match="from 0 to the 300 voxels"):
        model(grid, feat, torch.tensor([0, 299]))
    with pytest.raises(InputError, match="twice"):
        model(torch.cat([grid, grid]), torch.cat([feat, feat]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"orders": ["peano"]}, "peano"),
        ({"encoder_channels": [8]}, "encoder_channels needs 3 entries"),
        ({"stem_kernel": 4}, "odd"),
        ({"mixr": {}}, "did you mean 'mixer'"),
        ({"mixer": {"name": "pom", "patch_size": 0}}, "patch_size"),
        ({"mixer": []}, "one or more"),
    ],
    ids=str,
)
def test_configurations_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model({**SMALL, **change})
