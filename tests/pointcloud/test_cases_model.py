"""What users of point-cloud networks struggle with: the cases of serialization, model, data and training.

The cases of files and predictions are in test_cases_files.py; the numbers are one list.
"""

import ast
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geomix.checkpoint import Card, load_model, save_model
from geomix.errors import InputError, MemoryBudgetError, NonFiniteError
from pointcloud import sparse
from pointcloud.cloud import Cloud
from pointcloud.data import IGNORE, Inputs, LabelMap, features, prepare
from pointcloud.model import build_model
from pointcloud.predict.probabilities import probabilities
from pointcloud.serialization import BITS, encode, hilbert_encode
from pointcloud.synthetic import town
from pointcloud.task.losses import segmentation_loss
from pointcloud.voxels import voxelize
from tests.helpers import ROOT

INPUTS = {"voxel": 0.5, "features": ["offset", "height", "intensity", "returns"]}
MODEL: dict[str, Any] = {
    "in_channels": 10,
    "classes": 5,
    "stem_kernel": 3,
    "encoder_depths": [1, 1],
    "encoder_channels": [8, 16],
    "decoder_depths": [1],
    "decoder_channels": [8],
    "mixer": [{"name": "pom", "patch_size": None}, {"name": "attention", "heads": 2}],
    "patch_size": 64,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build_model(MODEL).eval()


@pytest.fixture
def scan() -> Cloud:
    return town(3, size=12, density=3)


def test_case_02_no_compiled_package_is_needed(model, scan: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every import of spconv stands inside a function, and the CPU never asks for it."""
    for file in (ROOT / "pointcloud").rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [a.name for a in getattr(node, "names", [])] + [getattr(node, "module", None) or ""]
            assert not any(
                str(name).split(".")[0] in ("spconv", "torch_scatter", "flash_attn") for name in names
            )
    for name in ("spconv", "torch_scatter", "flash_attn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert torch.isfinite(probabilities(model, scan, Inputs(**INPUTS))).all()


def test_case_03_attention_needs_no_flash_package(scan: Cloud) -> None:
    model = build_model({**MODEL, "mixer": {"name": "attention", "heads": 2}}).eval()
    assert "flash_attn" not in sys.modules
    assert torch.isfinite(probabilities(model, scan, Inputs(**INPUTS))).all()


def test_case_04_the_cpu_is_right_with_bias_and_threads() -> None:
    """The CPU path of spconv refuses a bias and is wrong with two threads; ours takes both."""
    grid = torch.unique(torch.randint(0, 12, (1500, 3)), dim=0)
    table = sparse.build_table(grid, torch.zeros(len(grid), dtype=torch.long), 3)
    layer = sparse.SubmanifoldConv(8, 8, 3, bias=True)
    feat = torch.randn(len(grid), 8)
    assert not sparse.use_spconv(feat, table, "auto")
    volume = torch.zeros(1, 8, 12, 12, 12)
    volume[0, :, grid[:, 0], grid[:, 1], grid[:, 2]] = feat.t()
    dense = torch.nn.functional.conv3d(volume, layer.weight.permute(0, 4, 1, 2, 3), layer.bias, padding=1)
    truth = dense[0, :, grid[:, 0], grid[:, 1], grid[:, 2]].t()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.testing.assert_close(layer(feat, table), truth, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(threads)


def test_case_05_clouds_deeper_than_16_bits_have_codes_and_larger_ones_a_remedy() -> None:
    deep = torch.tensor([[1 << 20, 3, 70_000], [0, 0, 0]])
    assert len({*hilbert_encode(deep).tolist()}) == 2
    coord = np.array([[0.0, 0.0, 0.0], [60_000.0, 0.0, 0.0]])
    with pytest.raises(InputError, match=r"extent of .* voxels of 0.01 m.* at least 0.0287 m") as error:
        voxelize(coord, 0.01)
    size = float(str(error.value).split("at least ")[1].split()[0])
    assert len(voxelize(coord, size).grid_coord) == 2


@pytest.mark.parametrize("order", ["z", "hilbert"])
def test_case_06_any_memory_layout_is_served(order: str) -> None:
    grid = torch.randint(0, 1 << BITS, (3, 40)).t()
    assert not grid.is_contiguous()
    assert torch.equal(encode(grid, order), encode(grid.contiguous(), order))


def test_case_07_memory_is_known_before_and_whole_scenes_stream(model) -> None:
    grid = torch.unique(torch.randint(0, 60, (6000, 3)) * torch.tensor([1, 1, 0]), dim=0)
    grid = torch.cat([grid, grid + torch.tensor([60, 0, 0]), grid + torch.tensor([0, 60, 0])])
    feat = torch.randn(len(grid), 10)
    at_once, sliced = model.memory_estimate(len(grid)), model.memory_estimate(len(grid), 4096)
    assert sliced < at_once
    with torch.inference_mode():
        torch.testing.assert_close(model(grid, feat, memory=sliced), model(grid, feat), rtol=0, atol=1e-5)
        with pytest.raises(MemoryBudgetError, match="may be used; raise --memory"):
            model(grid, feat, memory=sliced // 10)


def test_case_08_indices_do_not_wrap_at_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arithmetic: keys of a wide grid pass 2^31 many times over, and pairs are counted in 64 bits."""
    far = 1 << 20
    grid = torch.tensor([[0, 0, 0], [far, far, far], [far, far, far + 1]])
    table = sparse.build_table(grid, torch.zeros(3, dtype=torch.long), 3)
    assert table.pairs == 3 + 2
    assert all(pairs.dtype == torch.int64 for pairs in (*table.before, *table.after))
    monkeypatch.setattr(sparse, "find_spec", lambda _: object())
    on_cuda = type("OnCuda", (), {"is_cuda": True, "dtype": torch.float32})()
    for tokens, fits in ((math.floor(2**31 / 27), True), (math.ceil(2**31 / 27), False)):
        found = sparse.use_spconv(on_cuda, type("Table", (), {"tokens": tokens, "kernel_size": 3})(), "auto")
        assert found == fits


def test_case_09_coordinates_far_from_the_origin_lose_nothing(model, scan: Cloud) -> None:
    inputs = Inputs(**INPUTS)
    far = Cloud.from_arrays(scan.coord + np.array([6e6, 0.0, 0.0]), **scan.fields)
    assert torch.equal(probabilities(model, scan, inputs), probabilities(model, far, inputs))
    in_float32 = Cloud.from_arrays(far.coord.astype(np.float32), **scan.fields)
    assert not torch.equal(prepare(in_float32, inputs).inverse, prepare(scan, inputs).inverse)


def test_case_15_missing_channels_fail_or_are_filled_as_documented(scan: Cloud) -> None:
    needs = {"voxel": 0.5, "features": ["height", "color"]}
    with pytest.raises(InputError, match="needs color; the cloud has .*intensity"):
        features(scan, needs)
    filled = features(scan, {**needs, "optional": ["color"]})
    assert (filled[:, 3:] == 0).all()


def test_case_16_every_point_has_the_result_of_its_voxel_in_its_order(model, scan: Cloud) -> None:
    twice = scan.take(np.r_[np.arange(len(scan)), np.arange(50)])
    found = probabilities(model, twice, Inputs(**INPUTS))
    assert len(found) == len(scan) + 50
    assert torch.equal(found[-50:], found[:50])
    permutation = np.random.default_rng(0).permutation(len(scan))
    mixed = probabilities(model, scan.take(permutation), Inputs(**INPUTS))
    straight = probabilities(model, scan, Inputs(**INPUTS))
    torch.testing.assert_close(mixed, straight[permutation], rtol=0, atol=1e-5)


def test_case_17_ids_and_numbers_are_one_map() -> None:
    labels = LabelMap((10, 11, 40), merged={252: 10}, ignored=frozenset({0}))
    assert labels.numbers(np.array([40, 252, 0, 11])).tolist() == [2, 0, IGNORE, 1]
    assert labels.to_ids(np.array([2, 0, IGNORE, 1])).tolist() == [40, 10, 0, 11]


def test_case_18_ignored_points_are_masked_and_foreign_labels_refused() -> None:
    scores = torch.randn(6, 3, requires_grad=True)
    segmentation_loss(scores, torch.tensor([0, 1, 2, IGNORE, IGNORE, 0])).backward()
    assert (scores.grad[3:5] == 0).all()
    with pytest.raises(InputError, match=r"got 3 \(2 times\)"):
        segmentation_loss(scores, torch.tensor([0, 1, 2, 3, 3, 0]))


def test_case_19_training_stops_at_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    from geomix.config import load_config
    from geomix.learn.experiment import train
    from pointcloud.task.experiment import PointcloudConfig, PointcloudExperiment

    tiny = load_config("tiny", "pointcloud", PointcloudConfig)
    assert tiny.train.precision in ("fp32", "bf16")
    fast = tiny.train.model_copy(update={"learning_rate": 1e25, "epochs": 1, "epoch_steps": 4, "clip": None})
    data = tiny.data.model_copy(update={"clouds": 3, "size": 10.0, "density": 1.0})
    broken = tiny.model_copy(update={"train": fast, "data": data})
    with pytest.raises(NonFiniteError, match=r"at batch \d+ of epoch 0 \(town 0; town 0\)"):
        train(PointcloudExperiment(broken), tmp_path, device="cpu")


def test_case_24_results_repeat_and_do_not_depend_on_batch_mates(model, scan: Cloud) -> None:
    sample = prepare(scan, INPUTS)
    count = len(sample.grid_coord)
    with torch.inference_mode():
        alone = model(sample.grid_coord, sample.feat)
        torch.manual_seed(7)
        assert torch.equal(model(sample.grid_coord, sample.feat), alone)
        # A batch mate of three voxels must not shorten anybody's windows.
        mate = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0]])
        packed = model(
            torch.cat([mate, sample.grid_coord]),
            torch.cat([torch.randn(3, 10), sample.feat]),
            torch.tensor([0, 3, 3 + count]),
        )
    torch.testing.assert_close(packed[3:], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_case_25_tiny_clouds_have_a_result(model, scan: Cloud, count: int) -> None:
    tiny = scan.take(np.arange(count))
    assert probabilities(model, tiny, Inputs(**INPUTS)).shape == (count, 5)
    sample = prepare(tiny, INPUTS)
    trained = model.train()(sample.grid_coord, sample.feat)
    assert torch.isfinite(trained).all()


def test_case_26_the_preprocessing_travels_with_the_weights(model, scan: Cloud, tmp_path: Path) -> None:
    card = Card(domain="pointcloud", name="x", model=model.config.model_dump(mode="json"), inputs=INPUTS)
    save_model(model, card, tmp_path / "x.safetensors")
    loaded = load_model(tmp_path / "x.safetensors")
    sample, expected = prepare(scan, loaded.card.inputs), prepare(scan, Inputs(**INPUTS))
    assert torch.equal(sample.feat, expected.feat)
    with torch.inference_mode():
        assert torch.equal(loaded(sample.grid_coord, sample.feat), model(sample.grid_coord, sample.feat))
