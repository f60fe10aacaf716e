"""Published TSViT checkpoints: the imported model computes what the published formula says."""

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from geomix.checkpoint import load_model, read_card
from geomix.errors import CheckpointError, MissingFileError, OutputExistsError
from sits.model import TSViPoM
from sits.model.published import config_of, convert, import_tsvit

DIM, HEADS, HEAD_DIM, HIDDEN, CLASSES, PATCH, SIDE = 16, 2, 4, 24, 5, 2, 3


def weights(bands=3, classes=CLASSES, prefix=""):
    """Random weights under the published names."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * 0.3

    def linear(name, out, into, bias=True):
        return {f"{name}.weight": draw(out, into)} | ({f"{name}.bias": draw(out)} if bias else {})

    def norm(name):
        return {f"{name}.weight": 1 + draw(DIM), f"{name}.bias": draw(DIM)}

    found = {
        **linear("to_patch_embedding.1", DIM, PATCH**2 * bands),
        **linear("to_temporal_embedding_input", DIM, 366),
        "temporal_token": draw(1, classes, DIM),
        "space_pos_embedding": draw(1, SIDE**2, DIM),
        **norm("mlp_head.0"),
        **linear("mlp_head.1", PATCH**2, DIM),
    }
    for encoder in ("temporal_transformer", "space_transformer"):
        found |= norm(f"{encoder}.norm")
        for layer in range(2):
            name = f"{encoder}.layers.{layer}"
            found |= {
                **norm(f"{name}.0.norm"),
                **linear(f"{name}.0.fn.to_qkv", 3 * HEADS * HEAD_DIM, DIM, bias=False),
                **linear(f"{name}.0.fn.to_out.0", DIM, HEADS * HEAD_DIM),
                **norm(f"{name}.1.norm"),
                **linear(f"{name}.1.fn.net.0", HIDDEN, DIM),
                **linear(f"{name}.1.fn.net.3", DIM, HIDDEN),
            }
    return {prefix + key: value for key, value in found.items()}


def published(w, values, days):
    """The published forward pass, written out: values [B, T, C, H, W], days of the year [B, T]."""

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def norm(name, x):
        return layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"])

    def encode(name, x):
        for layer in range(2):
            part = f"{name}.layers.{layer}"
            q, k, v = linear(f"{part}.0.fn.to_qkv", norm(f"{part}.0.norm", x)).chunk(3, -1)
            heads = []
            for head in range(HEADS):
                at = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
                scores = q[..., at] @ k[..., at].transpose(-1, -2) / math.sqrt(HEAD_DIM)
                heads.append(scores.softmax(-1) @ v[..., at])
            x = x + linear(f"{part}.0.fn.to_out.0", torch.cat(heads, -1))
            hidden = gelu(linear(f"{part}.1.fn.net.0", norm(f"{part}.1.norm", x)))
            x = x + linear(f"{part}.1.fn.net.3", hidden)
        return norm(f"{name}.norm", x)

    batch, dates, _, height, width = values.shape
    rows, columns = height // PATCH, width // PATCH
    hot = torch.nn.functional.one_hot((days.float() / 365.0001 * 365.0001).long(), 366).float()
    time = linear("to_temporal_embedding_input", hot)
    logits = values.new_zeros(batch, CLASSES, height, width)
    for b in range(batch):
        places = []
        for row in range(rows):
            for column in range(columns):
                at = (slice(row * PATCH, (row + 1) * PATCH), slice(column * PATCH, (column + 1) * PATCH))
                patch = values[b][..., at[0], at[1]].permute(0, 2, 3, 1).reshape(dates, -1)
                tokens = linear("to_patch_embedding.1", patch) + time[b]
                tokens = torch.cat([w["temporal_token"][0], tokens])
                places.append(encode("temporal_transformer", tokens)[:CLASSES])
        for number in range(CLASSES):
            tokens = torch.stack([place[number] for place in places]) + w["space_pos_embedding"][0]
            scores = linear("mlp_head.1", norm("mlp_head.0", encode("space_transformer", tokens)))
            image = scores.reshape(rows, columns, PATCH, PATCH).transpose(1, 2)
            logits[b, number] = image.reshape(height, width)
    return logits


def test_the_imported_model_is_the_published_one():
    w = weights()
    model = TSViPoM(config_of(w, HEADS).model_copy(update={"fill_dates": None})).eval()
    model.load_state_dict(convert(w))
    values, days = torch.randn(2, 4, 3, 6, 6), torch.tensor([[13, 100, 208, 366], [0, 5, 52, 300]])
    with torch.inference_mode():
        found = model(values, days, torch.ones(2, 4, 6, 6, dtype=torch.bool))
    torch.testing.assert_close(found, published(w, values, days), atol=1e-5, rtol=1e-5)


def test_short_series_are_filled_as_the_published_training_did():
    w = weights()
    model = TSViPoM(config_of(w, HEADS)).eval()
    model.load_state_dict(convert(w))
    values, days = torch.randn(1, 4, 3, 6, 6), torch.tensor([[13, 100, 208, 366]])
    filled = torch.cat([values, torch.zeros(1, 56, 3, 6, 6)], 1)
    with torch.inference_mode():
        found = model(values, days, torch.ones(1, 4, 6, 6, dtype=torch.bool))
    expected = published(w, filled, torch.cat([days, torch.zeros(1, 56, dtype=torch.long)], 1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"state_dict": w}], ids=["bare", "wrapped"])
def test_a_checkpoint_becomes_a_model_file(tmp_path, wrap):
    file, output = tmp_path / "best.pth", tmp_path / "tsvit.safetensors"
    w = weights(bands=10, classes=19, prefix="module.")
    torch.save(wrap(w), file)
    card = import_tsvit(file, output, heads=HEADS)
    assert read_card(output).name == card.name == "best"
    model = load_model(output, domain="sits")
    assert torch.equal(model.class_tokens, w["module.temporal_token"][0])
    assert (model.patch, model.config.fill_dates, card.inputs["days"]) == (6, 60, "year")
    assert len(card.inputs["mean"]) == 10
    with pytest.raises(OutputExistsError):
        import_tsvit(file, output, heads=HEADS)


class Harmful:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Harmful(), "read safely"),
        ({"epoch": 3}, "no table of weights"),
        ({"conv.weight": torch.zeros(1)}, "mlp_head.1.weight is missing"),
        (weights() | {"other.weight": torch.zeros(1)}, "unknown name 'other.weight'"),
        (weights(), "3 bands and 5 classes"),
    ],
    ids=["harmful", "no-weights", "foreign", "more", "other-data"],
)
def test_other_files_are_refused(tmp_path, content, message):
    file = tmp_path / "file.pth"
    torch.save(content, file)
    with pytest.raises(CheckpointError, match=message):
        import_tsvit(file, tmp_path / "out.safetensors", heads=HEADS)
    assert not (tmp_path / "out.safetensors").exists()


def test_a_missing_or_damaged_file_says_so(tmp_path):
    with pytest.raises(MissingFileError, match="no such checkpoint"):
        import_tsvit(tmp_path / "none.pth", tmp_path / "out.safetensors")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(CheckpointError, match=r"cut\.pth: no checkpoint"):
        import_tsvit(tmp_path / "cut.pth", tmp_path / "out.safetensors")
