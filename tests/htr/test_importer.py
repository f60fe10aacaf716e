import pytest
import torch
from torch import nn
from torch.nn import functional as F

from geomix.checkpoint import load_model
from geomix.errors import CheckpointError, MissingFileError
from htr.charset import Charset
from htr.model.published import import_htr_vt, load_htr_vt

DIM, CLASSES = 24, 7
CHARSET = Charset("abcdef")


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        straight = self.downsample(x) if hasattr(self, "downsample") else x
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + straight)


class Published(nn.Module):
    """HTR-VT by its description: the slow truth that names the tensors as the published files do."""

    def __init__(self):
        super().__init__()
        quarter, half = DIM // 4, DIM // 2
        stem = nn.Module()
        stem.conv1, stem.bn1 = nn.Conv2d(1, quarter, 3, (2, 1), 1, bias=False), nn.BatchNorm2d(quarter)
        stem.layer1 = nn.Sequential(Basic(quarter, quarter, (2, 1)), Basic(quarter, quarter, 1))
        stem.layer2 = nn.Sequential(Basic(quarter, half, 2), Basic(half, half, 1))
        stem.layer3 = nn.Sequential(Basic(half, DIM, 2), Basic(DIM, DIM, 1))
        self.patch_embed = stem
        self.mask_token = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos_embed = nn.Parameter(self.position(16, 8)[None], requires_grad=False)
        self.blocks = nn.ModuleList()
        for _ in range(2):
            block = nn.Module()
            block.norm1, block.norm2 = nn.LayerNorm(DIM, eps=1e-6), nn.LayerNorm(DIM, eps=1e-6)
            block.attn, block.mlp = nn.Module(), nn.Module()
            block.attn.qkv, block.attn.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
            block.mlp.fc1, block.mlp.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
            self.blocks.append(block)
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    @staticmethod
    def position(rows, columns, dtype=torch.float32):
        def code(place):
            angle = place[:, None].to(dtype) / 10_000 ** (torch.arange(DIM // 4, dtype=dtype) / (DIM // 4))
            return torch.cat([angle.sin(), angle.cos()], 1)

        row, column = torch.arange(rows * columns) // columns, torch.arange(rows * columns) % columns
        return torch.cat([code(column), code(row)], 1)

    def forward(self, images):  # ink 0 on paper 1, [B, 1, 64, 512]
        x = F.layer_norm(images, images.shape[1:])
        stem = self.patch_embed
        x = F.max_pool2d(F.relu(stem.bn1(stem.conv1(x))), 3, (2, 1), 1)
        x = F.max_pool2d(stem.layer3(stem.layer2(stem.layer1(x))), 3, (2, 1), 1)
        x = x.flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            q, k, v = block.attn.qkv(block.norm1(x)).unflatten(2, (3, 6, DIM // 6)).unbind(2)
            weights = (torch.einsum("bqhd,bkhd->bhqk", q, k) * (DIM // 6) ** -0.5).softmax(-1)
            x = x + block.attn.proj(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
            x = x + block.mlp.fc2(F.gelu(block.mlp.fc1(block.norm2(x))))
        x = self.head(self.norm(x))
        return F.layer_norm(x, x.shape[1:])


@pytest.fixture
def published():
    torch.manual_seed(0)
    model = Published()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("wrap", ["bare", "model", "state_dict_ema", "module."])
def test_a_checkpoint_becomes_a_model_file(published, tmp_path, wrap):
    state = published.state_dict()
    content = {"bare": state, "module.": {f"module.{key}": value for key, value in state.items()}}.get(
        wrap, {wrap: state, "iteration": 3}
    )
    torch.save(content, tmp_path / "best.pth")
    import_htr_vt(tmp_path / "best.pth", tmp_path / "vt.safetensors", CHARSET)
    model = load_model(tmp_path / "vt.safetensors")
    assert model.card.charset == CHARSET.characters
    assert model.state_dict().keys() == load_htr_vt(tmp_path / "best.pth").state_dict().keys()


def test_an_imported_checkpoint_gives_the_published_logits(published, tmp_path):
    torch.save(published.state_dict(), tmp_path / "best.pth")
    images = torch.rand(2, 64, 512, dtype=torch.float64)
    # The table is computed in fp32 when it is checked: here it is the exact one in float64.
    published.double().pos_embed.data = Published.position(16, 8, torch.float64)[None]
    ours = load_htr_vt(tmp_path / "best.pth", 6).double().eval()
    with torch.no_grad():
        theirs = published(images[:, None])
        torch.testing.assert_close(ours(1 - images, torch.tensor([512, 512])), theirs, rtol=1e-12, atol=1e-12)


def test_another_number_of_heads_is_another_network_and_a_guess_is_a_warning(published, tmp_path, caplog):
    torch.save(published.state_dict(), tmp_path / "best.pth")
    images, widths = torch.rand(1, 64, 512), torch.tensor([512])
    with torch.no_grad():
        four = load_htr_vt(tmp_path / "best.pth", 4).eval()(images, widths)
        assert not caplog.text
        guess = load_htr_vt(tmp_path / "best.pth").eval()(images, widths)
    assert "6, as published, are taken" in caplog.text
    assert (four - guess).abs().max() > 1e-4


def test_what_is_not_an_htr_vt_is_refused(published, tmp_path):
    state = published.state_dict()
    file, output = tmp_path / "x.pth", tmp_path / "x.safetensors"

    def refuse(content, error, message, charset=CHARSET):
        torch.save(content, file)
        with pytest.raises(error, match=message):
            import_htr_vt(file, output, charset)
        assert not output.exists()

    refuse(state, CheckpointError, "7 classes, so 6 characters", Charset("abc"))
    refuse(state | {"decoder.weight": torch.zeros(1)}, CheckpointError, "decoder.weight")
    refuse(state | {"pos_embed": torch.zeros(1, 128, DIM)}, CheckpointError, "position table")
    refuse(state | {"pos_embed": torch.zeros(3)}, CheckpointError, "position table has shape")
    refuse(state | {"norm.bias": torch.zeros(3)}, CheckpointError, r"'norm.bias' has shape \[3\], not \[24\]")
    refuse({k: v for k, v in state.items() if k != "norm.bias"}, CheckpointError, "fills 'norm.bias'")
    refuse({"weights": [1, 2]}, CheckpointError, "no state dict")
    refuse({"x": torch.zeros(1)}, CheckpointError, "no head")
    file.write_bytes(b"\x80\x04nonsense")
    with pytest.raises(CheckpointError, match="no PyTorch file"):
        import_htr_vt(file, output, CHARSET)
    with pytest.raises(MissingFileError):
        import_htr_vt(tmp_path / "absent.pth", output, CHARSET)


class Bad:
    def __reduce__(self):
        return print, ("this code must not run",)


def test_case_33_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"model": Bad()}, tmp_path / "evil.pth")
    with pytest.raises(CheckpointError, match="tensors alone"):
        import_htr_vt(tmp_path / "evil.pth", tmp_path / "x.safetensors", CHARSET)
    assert capsys.readouterr().out == ""
