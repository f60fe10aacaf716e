"""Published PTv3 weights: their names, and the scores of a slow second writing of the published code."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from geomix.checkpoint import ClassInfo, load_model, save_model
from geomix.errors import CheckpointError
from pointcloud.cloud import Cloud
from pointcloud.data.inputs import features
from pointcloud.model import PPoMv3
from pointcloud.model.published import import_checkpoint, our_name

ORDERS = ("z", "z-trans", "hilbert", "hilbert-trans")
CHANNELS, DECODER = (16, 32, 32), (16, 32)
DEPTHS, DECODER_DEPTHS = (1, 2, 1), (2, 1)
CLASSES = tuple(ClassInfo(id=i, name=str(i), color="#000000") for i in range(3))
INPUTS = {"voxel": 0.1, "features": ["color"]}


def published_weights() -> dict[str, Tensor]:
    """Random weights under the published names, of a small PTv3 of 3 features and 3 classes."""
    torch.manual_seed(0)
    weights: dict[str, Tensor] = {}

    def linear(name: str, out: int, into: int, bias: bool = True) -> None:
        weights[f"{name}.weight"] = torch.randn(out, into) * into**-0.5
        if bias:
            weights[f"{name}.bias"] = torch.randn(out) * 0.1

    def norm(name: str, width: int, is_batch: bool = False) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = torch.rand(width) + 0.5, torch.randn(width) * 0.1
        if is_batch:
            weights[f"{name}.running_mean"] = torch.randn(width) * 0.1
            weights[f"{name}.running_var"] = torch.rand(width) + 0.5
            weights[f"{name}.num_batches_tracked"] = torch.tensor(7)

    def block(name: str, width: int) -> None:
        weights[f"{name}.cpe.0.weight"] = torch.randn(width, 3, 3, 3, width) * (4 * width) ** -0.5
        weights[f"{name}.cpe.0.bias"] = torch.randn(width) * 0.1
        linear(f"{name}.cpe.1", width, width)
        for part in ("cpe.2", "norm1.0", "norm2.0"):
            norm(f"{name}.{part}", width)
        linear(f"{name}.attn.qkv", 3 * width, width)
        linear(f"{name}.attn.proj", width, width)
        linear(f"{name}.mlp.0.fc1", 4 * width, width)
        linear(f"{name}.mlp.0.fc2", width, 4 * width)

    root = "module.backbone."
    weights[f"{root}embedding.stem.conv.weight"] = torch.randn(CHANNELS[0], 5, 5, 5, 3) * 0.1
    norm(f"{root}embedding.stem.norm", CHANNELS[0], is_batch=True)
    for stage, width in enumerate(CHANNELS):
        if stage:
            linear(f"{root}enc.enc{stage}.down.proj", width, CHANNELS[stage - 1])
            norm(f"{root}enc.enc{stage}.down.norm.0", width, is_batch=True)
        for i in range(DEPTHS[stage]):
            block(f"{root}enc.enc{stage}.block{i}", width)
    for stage in (1, 0):
        below = (*DECODER, CHANNELS[-1])[stage + 1]
        for part, into in (("proj", below), ("proj_skip", CHANNELS[stage])):
            linear(f"{root}dec.dec{stage}.up.{part}.0", DECODER[stage], into)
            norm(f"{root}dec.dec{stage}.up.{part}.1", DECODER[stage], is_batch=True)
        for i in range(DECODER_DEPTHS[stage]):
            block(f"{root}dec.dec{stage}.block{i}", DECODER[stage])
    linear("module.seg_head", 3, DECODER[0])
    return weights


def code(voxel: list[int], curve: str, bits: int) -> int:
    """The place of a voxel on a curve: Morton's, or Hilbert's by Skilling's algorithm (AIP 707, 2004)."""
    x = [voxel[axis] for axis in ((1, 0, 2) if curve.endswith("trans") else (0, 1, 2))]
    if curve.startswith("hilbert"):
        for bit in reversed(range(1, bits)):
            low = (1 << bit) - 1
            for axis in range(3):
                if x[axis] >> bit & 1:
                    x[0] ^= low
                else:
                    swapped = (x[0] ^ x[axis]) & low
                    x[0], x[axis] = x[0] ^ swapped, x[axis] ^ swapped
        x[1] ^= x[0]
        x[2] ^= x[1]
        turned = 0
        for bit in range(1, bits):
            turned ^= (1 << bit) - 1 if x[2] >> bit & 1 else 0
        x = [one ^ turned for one in x]
    key = 0
    for bit in reversed(range(bits)):
        for one in x:
            key = key << 1 | (one >> bit & 1)
    return key


class Reference:
    """The published forward pass with its shuffling off, one voxel or window at a time, for one cloud."""

    def __init__(self, weights: dict[str, Tensor], patch: int) -> None:
        names = (name.removeprefix("module.").removeprefix("backbone.") for name in weights)
        self.w = {name: v.double() for name, v in zip(names, weights.values(), strict=True)}
        self.patch = patch

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        w = self.w
        mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        return functional.batch_norm(x, mean, variance, w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-3)

    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def conv(self, x: Tensor, grid: Tensor, name: str) -> Tensor:
        weight = self.w[f"{name}.weight"]
        radius = weight.shape[1] // 2
        place = {tuple(voxel): i for i, voxel in enumerate(grid.tolist())}
        rows = []
        for i, (cx, cy, cz) in enumerate(grid.tolist()):
            total = x.new_zeros(len(weight))
            for step in torch.cartesian_prod(*[torch.arange(-radius, radius + 1)] * 3).tolist():
                j = place.get((cx + step[0], cy + step[1], cz + step[2]))
                if j is not None:
                    total = total + weight[:, step[0] + radius, step[1] + radius, step[2] + radius] @ x[j]
            rows.append(total)
            assert i == len(rows) - 1
        return torch.stack(rows) + self.w.get(f"{name}.bias", 0)

    def attention(self, x: Tensor, order: Tensor, name: str) -> Tensor:
        heads = x.shape[1] // 16
        sorted_x = self.linear(x, f"{name}.qkv")[order]
        out = torch.empty_like(x)
        for start in range(0, len(x), self.patch):
            stop = min(start + self.patch, len(x))
            # Only a cloud longer than a window is filled up: with the voxels just before the last window.
            first = max(stop - self.patch, 0)
            q = sorted_x[start:stop].view(stop - start, 3, heads, 16)[:, 0].transpose(0, 1)
            k, v = sorted_x[first:stop].view(stop - first, 3, heads, 16)[:, 1:].permute(1, 2, 0, 3)
            mixed = ((q * 16**-0.5) @ k.transpose(1, 2)).softmax(-1) @ v
            out[order[start:stop]] = mixed.transpose(0, 1).flatten(1)
        return self.linear(out, f"{name}.proj")

    def block(self, x: Tensor, seen: Tensor, grid: Tensor, order: Tensor, name: str) -> Tensor:
        code = self.linear(self.conv(seen, grid, f"{name}.cpe.0"), f"{name}.cpe.1")
        x = x + self.layer_norm(code, f"{name}.cpe.2")
        x = x + self.attention(self.layer_norm(x, f"{name}.norm1.0"), order, f"{name}.attn")
        hidden = functional.gelu(self.linear(self.layer_norm(x, f"{name}.norm2.0"), f"{name}.mlp.0.fc1"))
        return x + self.linear(hidden, f"{name}.mlp.0.fc2")

    def __call__(self, grid: Tensor, feat: Tensor) -> Tensor:
        depth = int(grid.max()).bit_length()
        codes = [torch.tensor([code(one, curve, depth) for one in grid.tolist()]) for curve in ORDERS]
        x = functional.gelu(
            self.batch_norm(self.conv(feat, grid, "embedding.stem.conv"), "embedding.stem.norm")
        )
        skips: list[Any] = []
        for stage in range(3):
            if stage:
                skips.append((x, grid, codes, parent := torch.unique(codes[0] >> 3, return_inverse=True)[1]))
                x = self.linear(x, f"enc.enc{stage}.down.proj")
                count = int(parent.max()) + 1
                heads = [int((parent == one).nonzero()[0]) for one in range(count)]
                x = torch.stack([x[parent == one].amax(0) for one in range(count)])
                x = functional.gelu(self.batch_norm(x, f"enc.enc{stage}.down.norm.0"))
                grid, codes = grid[heads] >> 1, [(code >> 3)[heads] for code in codes]
            for i in range(DEPTHS[stage]):
                x = self.block(x, x, grid, codes[i % 4].argsort(), f"enc.enc{stage}.block{i}")
        for stage in (1, 0):
            skip, grid, codes, parent = skips.pop()
            name = f"dec.dec{stage}"
            up = functional.gelu(self.batch_norm(self.linear(x, f"{name}.up.proj.0"), f"{name}.up.proj.1"))
            skip = self.linear(skip, f"{name}.up.proj_skip.0")
            skip = functional.gelu(self.batch_norm(skip, f"{name}.up.proj_skip.1"))
            x = skip + up[parent]
            for i in range(DECODER_DEPTHS[stage]):
                # The sparse tensor of the published code still holds the skip connection alone here.
                x = self.block(x, x if i else skip, grid, codes[i % 4].argsort(), f"{name}.block{i}")
        return self.linear(x, "seg_head")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    file = tmp_path / "model_best.pth"
    torch.save({"epoch": 3, "state_dict": published_weights()}, file)
    return file


def scene(count: int) -> tuple[Tensor, Tensor]:
    cells = torch.randperm(12 * 12 * 3, generator=torch.Generator().manual_seed(1))[:count]
    grid = torch.stack([cells // 36, cells // 3 % 12, cells % 3], dim=1)
    return grid, torch.randn(count, 3, dtype=torch.float64)


def imported(checkpoint: Path, **options: Any) -> PPoMv3:
    """The network in float64: its weights are numbers that fp32 holds."""
    given = {"patch_size": 32, "head_dim": 16, "inputs": INPUTS, "classes": CLASSES} | options
    return import_checkpoint(checkpoint, **given)[0].double()


@pytest.mark.parametrize("count", [20, 90])
def test_the_same_weights_give_the_published_scores(checkpoint: Path, count: int) -> None:
    grid, feat = scene(count)
    with torch.no_grad():
        expected = Reference(published_weights(), patch=32)(grid, feat)
        torch.testing.assert_close(imported(checkpoint)(grid, feat), expected, rtol=1e-12, atol=1e-12)
        ours = imported(checkpoint, published=False)
        assert (ours(grid, feat) - expected).abs().max() > 1e-3


def test_what_the_weights_do_not_tell_is_given_or_a_warning(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    imported(checkpoint)
    assert not caplog.text
    import_checkpoint(checkpoint, inputs=INPUTS, classes=CLASSES)
    assert "1024 voxels and 16 channels are taken" in caplog.text


@pytest.mark.parametrize("color", ["unit", "signed"])
def test_colours_of_early_weights_go_from_minus_one_to_one(color: Literal["unit", "signed"]) -> None:
    """Pointcept up to 1.5.2 gave color / 127.5 - 1, later versions color / 255."""
    cloud = Cloud(np.zeros((3, 3)), {"color": np.array([[0, 51, 255]] * 3) / 255})
    found = features(cloud, {"voxel": 0.1, "features": ["color"], "color": color})
    expected = [0, 0.2, 1] if color == "unit" else [-1, 51 / 127.5 - 1, 1]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-7)


def test_an_imported_model_is_saved_and_loaded(checkpoint: Path, tmp_path: Path) -> None:
    model, card = import_checkpoint(checkpoint, patch_size=1024, head_dim=16, inputs=INPUTS, classes=CLASSES)
    save_model(model, card, tmp_path / "ptv3.safetensors")
    loaded = load_model(tmp_path / "ptv3.safetensors", domain="pointcloud")
    grid, feat = scene(50)
    with torch.no_grad():
        assert torch.equal(loaded(grid, feat.float()), model(grid, feat.float()))


def test_kernels_of_spconv_1_are_turned_round(checkpoint: Path) -> None:
    model, _ = import_checkpoint(checkpoint, inputs=INPUTS, classes=CLASSES)
    old = {n: v.permute(1, 2, 3, 4, 0) if v.ndim == 5 else v for n, v in published_weights().items()}
    torch.save(old, checkpoint)
    again, _ = import_checkpoint(checkpoint, inputs=INPUTS, classes=CLASSES)
    assert torch.equal(model.stem.weight, again.stem.weight)


def test_names_of_every_kind_are_mapped() -> None:
    assert our_name("module.backbone.enc.enc3.block5.cpe.0.bias") == "encoder.3.blocks.5.code.conv.bias"
    assert our_name("backbone.dec.dec0.up.proj_skip.1.running_var") == "decoder.0.up.norm_skip.running_var"


def test_unknown_data_sets_need_inputs_and_classes(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="3 features and has 3 classes"):
        import_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.zeros(1)}, "no PTv3"),
        ([1, 2], "no state dict"),
        ({"state_dict": {"x": 1}}, "no state dict"),
    ],
    ids=str,
)
def test_other_files_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match=message):
        import_checkpoint(tmp_path / "other.pth")


def test_nothing_but_tensors_is_unpickled(tmp_path: Path) -> None:
    torch.save({"state_dict": Path("/")}, tmp_path / "hostile.pth")
    with pytest.raises(CheckpointError, match="tensors alone"):
        import_checkpoint(tmp_path / "hostile.pth")
    (tmp_path / "text.pth").write_text("not a checkpoint")
    with pytest.raises(CheckpointError, match="tensors alone"):
        import_checkpoint(tmp_path / "text.pth")


ROOT = "module.backbone."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({ROOT + "enc.enc0.block0.norm1.0.norm.1.weight": torch.zeros(16)}, "not a plain PTv3.*PDNorm"),
        ({ROOT + "enc.enc0.block0.norm1.0.modulation.1.bias": torch.zeros(16)}, "not a plain PTv3.*PDNorm"),
        ({ROOT + "enc.enc0.block0.attn.rpe.rpe_table": torch.zeros(9, 1)}, "rpe_table', which has no place"),
        (
            {ROOT + "enc.enc0.block0.attn.qkv.weight": torch.zeros(3)},
            r"weight' has shape \[3\], not \[48",
        ),
        ({ROOT + "enc.enc0.block0.attn.qkv.bias": None}, "fills 'encoder.0.blocks.0.mixer.qkv.bias'"),
        ({"module.seg_head.weight": None}, "seg_head is missing"),
        ({ROOT + "embedding.stem.conv.weight": torch.zeros(3)}, "not a PTv3 that geomix knows"),
    ],
    ids=["norm of a set", "modulation", "relative positions", "shape", "missing", "head", "stem"],
)
def test_every_tensor_of_a_file_is_used_or_refused_by_name(
    checkpoint: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    weights = published_weights() | changes
    torch.save({name: value for name, value in weights.items() if value is not None}, checkpoint)
    with pytest.raises(CheckpointError, match=message):
        imported(checkpoint)


def test_a_network_for_classification_is_refused(checkpoint: Path) -> None:
    torch.save({n: v for n, v in published_weights().items() if ".dec." not in n}, checkpoint)
    with pytest.raises(CheckpointError, match="no decoder \\(cls_mode\\)"):
        imported(checkpoint)
